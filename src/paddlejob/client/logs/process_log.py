"""Read the file to which Paddle's launcher writes the output of one process of a pod.

The launcher prints the output of its first process only. The files of the others are in the container and can
be read while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from paddlejob.api.v1 import PaddleJob
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError
from paddlejob.client.logs.container_log import BACKOFF, MAX_LINE_BYTES, ContainerView, Source
from paddlejob.client.logs.model import LogBlock, LogItem, LogQuery, Marker
from paddlejob.client.streams.execution import ContainerCommand, execute
from paddlejob.client.streams.processes import FIND_LOGS
from paddlejob.kube import errors
from paddlejob.kube.client import Client

HEADER_BYTES = 100
NO_FILE = 3
"""Exit code of the script."""
TROUBLE_FAILURES = 3
"""Consecutive failures before trouble is reported: a command also breaks when its container ends."""

_HEADER = re.compile(rb"(\d{1,15}) (\d{1,15}) (\d{1,11})")
"""Offset of the first line, size of the file, and the time of the last write in seconds."""

# $2: local rank, $3: offset, $4: number of last lines, $5: not empty to follow.
# A kubelet does not stop a command whose client is gone, but closes its standard input.
SCRIPT = (
    FIND_LOGS
    + rf"""
read_log() {{
  start=$3
  until file=$logs/workerlog.$2; [ -f "$file" ]; do
    [ -n "$5" ] || exit {NO_FILE}
    sleep 0.2
    find_logs "$1"
  done
  size=$(wc -c <"$file")
  [ -z "$4" ] || start=$((size - $(head -c "$size" "$file" | tail -n "$4" | wc -c)))
  [ "$start" -le "$size" ] || start=0
  echo "$start" $size $(stat -c %Y "$file")
  exec tail -c "+$((start + 1))" $5 "$file"
}}
if [ -z "$5" ]; then read_log "$@"; fi
read_log "$@" &
cat >/dev/null
kill $!
"""
)


class Process(NamedTuple):
    """A process of which the output is in a file."""

    rank: int
    local_rank: int


def resolve(state: PaddleJob, query: LogQuery) -> tuple[LogQuery, Process | None]:
    """Return the query with pods instead of a rank, and the process if its output is in a file.

    Raises ClientError for a query that needs the times of lines.
    """
    place = ranks.place_of(state, query.rank)
    if not place.process or query.container or query.all_containers:
        return msgspec.structs.replace(query, rank=place.pods), None
    if query.previous or query.since_seconds is not None:
        raise ClientError(
            f"rank {query.rank} writes to a file, which has no times and the lines of all restarts: "
            "choose the last lines (tail) instead of since or previous"
        )
    return msgspec.structs.replace(query, rank=place.pods), Process(int(query.rank), place.process)


def source_of_process(source: Source, process: Process) -> Source:
    """Return the source with the rank of the process."""
    return msgspec.structs.replace(source, rank=f"{source.rank} rank {process.rank}")


def ended_marker(source: Source, process: Process) -> Marker:
    """Return the reason why the log of the pod is shown instead."""
    return Marker(
        f"the container of {source.rank} has ended, and the log file of rank {process.rank} with it; showing "
        "the log of the container, which has the last lines of a process that failed (a volume mounted at "
        "PADDLE_LOG_DIR would keep the files)",
        source.attempt,
    )


class ProcessLog:
    """Reads the file of one process into `emit` until its container ends.

    The arguments are those of ContainerLog. Existing lines get the time at which the file was last written.
    """

    def __init__(
        self,
        client: Client,
        source: Source,
        process: Process,
        *,
        emit: Callable[[LogItem], Awaitable[None]],
        view: Callable[[], ContainerView] = lambda: ContainerView(is_over=True),
        trouble: Callable[[str], None] = lambda _: None,
        tail: int | None = None,
    ) -> None:
        self._client = client
        self._source = source
        self._process = process
        self._emit = emit
        self._view = view
        self._trouble = trouble
        self._tail = tail
        self._offset = 0
        """Number of delivered bytes of the file."""
        self._existing = 0
        self._written = ""
        self._unfinished = b""
        """A line without an end. It is read again if the command is repeated."""
        self._header = b""
        self._has_header = False
        self._failures = 0
        self._is_final = False
        self._changed = asyncio.Event()
        self._reading: asyncio.Timeout | None = None

    def wake(self) -> None:
        """Check the view again."""
        self._changed.set()

    def finish(self) -> None:
        """Stop: the job is over, but the container keeps running."""
        self._is_final = True
        self.wake()
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Read to the end. Raises KubeError when the API server rejects the request."""
        while not self._is_final:
            self._changed.clear()
            view = self._view()
            if view.is_gone or view.is_over:
                break
            if not view.is_running:
                await self._changed.wait()
                continue
            try:
                async with asyncio.timeout(None) as self._reading:
                    await self._read(follow=True)
            except TimeoutError:
                continue
            except errors.NotFoundError:
                break
            except (
                ClientError,
                errors.TransportError,
                errors.ServerError,
                errors.TooManyRequestsError,
            ) as error:
                self._failures += 1
                if self._failures >= TROUBLE_FAILURES:
                    self._trouble(str(error))
            finally:
                self._reading = None
            await self._pause()
        await self._deliver_unfinished()

    async def read_all(self) -> None:
        """Read the existing lines. Raises ClientError and KubeError."""
        if await self._read(follow=False) == NO_FILE:
            raise ClientError(
                f"{self._source.rank} has no log file yet: Paddle's launcher has not started this process"
            )
        await self._deliver_unfinished()

    async def _read(self, *, follow: bool) -> int:
        tail = "" if self._tail is None else str(self._tail)
        self._has_header, self._header = False, b""
        command = ContainerCommand(
            words=(
                *("sh", "-c", SCRIPT, "sh", ""),
                *(str(self._process.local_rank), str(self._offset), tail, "-f" if follow else ""),
            ),
            on_stdout=self._take,
            on_stderr=lambda _: None,
            stdin=_open() if follow else None,
        )
        return await execute(
            self._client, self._source.namespace, self._source.pod, self._source.container, command
        )

    async def _take(self, chunk: bytes) -> None:
        if not self._has_header:
            self._header, newline, chunk = (self._header + chunk).partition(b"\n")
            if not newline and len(self._header) < HEADER_BYTES:
                return
            self._begin(self._header)
        data = self._unfinished + chunk
        end = data.rfind(b"\n") + 1
        while len(data) - end > MAX_LINE_BYTES:
            # A longer line is delivered in pieces.
            await self._deliver(data[:end] + data[end : end + MAX_LINE_BYTES] + b"\n", pieces=1)
            data, end = data[end + MAX_LINE_BYTES :], 0
        self._unfinished = data[end:]
        if end:
            await self._deliver(data[:end])

    def _begin(self, header: bytes) -> None:
        numbers = _HEADER.fullmatch(header)
        if numbers is None:
            raise ClientError(
                f"{self._source.rank} cannot be read: unexpected answer {header[:HEADER_BYTES]!r}"
            )
        self._offset, self._existing, written = map(int, numbers.groups())
        self._written = datetime.fromtimestamp(written, UTC).isoformat()
        self._has_header, self._tail, self._failures = True, None, 0
        self._unfinished = b""
        self._trouble("")

    async def _deliver_unfinished(self) -> None:
        if self._unfinished:
            await self._deliver(self._unfinished + b"\n")

    async def _deliver(self, lines: bytes, *, pieces: int = 0) -> None:
        is_old = self._offset < self._existing
        self._offset += len(lines) - pieces
        now = self._client.server_now() or datetime.now(UTC)
        stamp = f"{self._written if is_old else now.isoformat()} ".encode()
        stamped = stamp + lines[:-1].replace(b"\n", b"\n" + stamp) + b"\n"
        await self._emit(LogBlock(self._source.rank, self._source.attempt, stamped))

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BACKOFF.base_seconds(max(1, self._failures))):
                await self._changed.wait()


async def _open() -> AsyncGenerator[bytes, None]:
    """Keep standard input open without sending anything."""
    await asyncio.get_running_loop().create_future()
    yield b""
