"""Read the log of one container from first to last line, across restarts and broken connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from paddlejob.api.pod import ContainerStatus, ContainerTerminated, Pod
from paddlejob.client.logs.model import STAMP, LogBlock, LogItem, Marker, by_attempt
from paddlejob.client.logs.window import Window
from paddlejob.core.explain import termination_message
from paddlejob.core.pod_set import FINAL_PHASES, has_ended
from paddlejob.kube import errors, responses
from paddlejob.kube.backoff import Backoff
from paddlejob.kube.client import Client
from paddlejob.kube.transport import Stream

MAX_LINE_BYTES = 1 << 20
"""A longer line is delivered in pieces, each with the timestamp of the line."""
BACKOFF = Backoff(first_seconds=0.5, max_seconds=10.0)
MAX_FAILURES = 5
"""Consecutive failures without a line before `read_all` gives up. Following never gives up."""


class Source(msgspec.Struct, frozen=True):
    """The container of a log."""

    namespace: str
    pod: str
    container: str
    rank: str
    attempt: int


class ContainerView(msgspec.Struct, frozen=True):
    """The state of a container as its pod reports it."""

    restarts: int = 0
    has_started: bool = False
    is_running: bool = False
    is_over: bool = False
    """The container will not run again."""
    is_gone: bool = False
    """The pod was deleted; another pod may have its name."""
    ending: str = ""
    """How the container last ended, as text."""


GONE = ContainerView(is_gone=True)


def container_view(pod: Pod, container: str) -> ContainerView:
    """Return the state of a container from its pod's status."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    status = next((each for each in statuses if each.name == container), ContainerStatus())
    is_init = any(each.name == container for each in pod.status.init_container_statuses)
    ended = status.state.terminated
    previous = ended or status.last_state.terminated
    return ContainerView(
        restarts=status.restart_count,
        has_started=bool(status.state.running or previous),
        is_running=status.state.running is not None,
        is_over=_is_over(pod, ended, is_init=is_init),
        ending=_ending(previous.exit_code, previous.reason, previous.message) if previous else "",
    )


def _is_over(pod: Pod, ended: ContainerTerminated | None, *, is_init: bool) -> bool:
    """Return whether a container will not run again.

    A sidecar among the init containers runs until the others have ended. A kubelet restarts it under every
    restart policy of the pod; an ordinary init container that fails for good ends the pod.
    """
    if is_init:
        is_last = ended is not None and (ended.exit_code == 0 or has_ended(pod))
        return pod.status.phase in FINAL_PHASES or is_last
    return has_ended(pod) or (ended is not None and pod.spec.restart_policy == "Never")


def _ending(code: int, reason: str, message: str) -> str:
    why = f" ({reason})" if reason not in ("", "Error", "Completed") else ""
    words = termination_message(message)
    return f"exited with code {code}{why}" + (f": {words}" if words else "")


class ContainerLog:
    """Reads one container's log into `emit` until the container will not write again.

    `view` returns the state of the container; call `wake` when it may have changed. `trouble` is called with
    the error of a broken connection, and with an empty text when the connection works again.
    """

    def __init__(
        self,
        client: Client,
        source: Source,
        *,
        emit: Callable[[LogItem], Awaitable[None]],
        view: Callable[[], ContainerView] = lambda: GONE,
        trouble: Callable[[str], None] = lambda _: None,
        window: Window | None = None,
        since: str = "",
        tail: int | None = None,
    ) -> None:
        """`window` is from an earlier pod with this name: the API server may still send its lines."""
        self._client = client
        self._source = source
        self._attempt = source.attempt
        self._view = view
        self._emit = emit
        self._trouble = trouble
        self._begin = {"sinceTime": since, "tailLines": "" if tail is None else str(tail)}
        self.window = window or Window()
        self.window.resume(same_clock=False)
        self._has_begun = False
        self._instance: int | None = None
        self._is_complete = False
        """Whether the current instance of the container was read to its end."""
        self._is_final = False
        self._failures = 0
        self._error: errors.KubeError = errors.TransportError("the log could not be read")
        self._changed = asyncio.Event()
        self._reading: asyncio.Timeout | None = None

    def wake(self) -> None:
        """Check the view again."""
        self._changed.set()

    def finish(self) -> None:
        """Read the existing lines and stop: the job is over, but the container keeps running."""
        if self._is_final:
            # The last read is running. Interrupting it again would never let it end.
            return
        self._is_final = True
        self.wake()
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Read to the end. Raises KubeError when the API server rejects the request."""
        while True:
            self._changed.clear()
            view = self._view()
            if view.is_gone:
                return
            if self._instance is not None and view.restarts > self._instance:
                await self._cross_restart(view)
            elif not view.has_started or self._is_complete:
                if view.is_over or self._is_final:
                    return
                await self._changed.wait()
            elif not await self._read_instance(view):
                return

    async def read_all(self, *, previous: bool = False) -> None:
        """Read the existing lines of this instance, or of the one before the last restart.

        Raises KubeError, also when the connection breaks repeatedly.
        """
        while not await self._read(previous=previous):
            if self._failures >= MAX_FAILURES:
                raise self._error
            await self._pause()

    async def _read_instance(self, view: ContainerView) -> bool:
        """Read the current instance, and return whether to keep reading."""
        self._instance = view.restarts
        follows = view.is_running and not self._is_final
        try:
            ended = await self._read(follow=follows)
        except errors.NotFoundError:
            return False
        # Only a read that began after the container had ended has certainly returned all of it.
        self._is_complete = ended and not follows
        if not self._is_complete and not (follows and self._is_final):
            await self._pause()
        return True

    async def _cross_restart(self, view: ContainerView) -> None:
        """Read the rest of the previous instance, and begin the current one."""
        restarted = f"{self._source.rank} restarted"
        if view.restarts - 1 != self._instance:
            # The server keeps only one previous instance, and it is not the one that was read last.
            await self._emit(Marker(restarted, self._source.attempt))
            self._is_complete = False
        if not self._is_complete:
            while not await self._read(previous=True):
                await self._pause()
        await self._emit(Marker(f"{restarted}: {view.ending}", self._source.attempt))
        self._instance, self._is_complete = view.restarts, False

    async def _read(self, *, follow: bool = False, previous: bool = False) -> bool:
        """Read undelivered lines. Return whether the log ended, False if the connection broke.

        Raises NotFoundError when the pod is gone.
        """
        if self._has_begun:
            self.window.resume()
        try:
            async with (
                asyncio.timeout(None) as self._reading,
                self._client.log_stream(
                    self._source.namespace, self._source.pod, query=self._query(follow, previous)
                ) as stream,
            ):
                if stream.status != 200:
                    raise await responses.error_from_stream(stream)
                self._trouble("")
                await self._copy(stream, has_last_line=not follow)
        except TimeoutError:
            return False
        except errors.BadRequestError as error:
            if "is not valid for pod" in str(error):
                raise
            # The container has not started, or its previous instance is gone.
            return previous
        except (errors.TransportError, errors.ServerError, errors.TooManyRequestsError) as error:
            self._error = error
            self._trouble(str(error))
            return False
        else:
            return True
        finally:
            self._reading = None

    def _query(self, follow: bool, previous: bool) -> dict[str, str]:  # noqa: FBT001
        query = {
            "container": self._source.container,
            "timestamps": "true",
            "follow": "true" if follow else "",
            "previous": "true" if previous else "",
        }
        resume_from = self.window.resume_from if self._has_begun else ""
        query |= {"sinceTime": resume_from} if resume_from else self._begin
        return {name: value for name, value in query.items() if value}

    async def _copy(self, stream: Stream, *, has_last_line: bool) -> None:
        unfinished = b""
        async for chunk in stream.chunks():
            data = unfinished + chunk if unfinished else chunk
            while len(data) > MAX_LINE_BYTES and b"\n" not in data[:MAX_LINE_BYTES]:
                piece, data = _split(data)
                await self._deliver(piece)
            end = data.rfind(b"\n") + 1
            unfinished = data[end:]
            if end:
                await self._deliver(data[:end])
        if unfinished and has_last_line:
            await self._deliver(unfinished + b"\n")

    async def _deliver(self, block: bytes) -> None:
        self._failures = 0
        if new := self.window.take(block):
            if not self._has_begun and any(self._begin.values()):
                self.window.begin_with(new)
            self._has_begun = True
            for attempt, lines in by_attempt(new, self._attempt):
                self._attempt = attempt
                await self._emit(LogBlock(self._source.rank, attempt, lines))

    async def _pause(self) -> None:
        """Wait for a change, at most for a time that grows with every failure."""
        self._failures += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BACKOFF.base_seconds(self._failures)):
                await self._changed.wait()
        self._changed.clear()


def _split(line: bytes) -> tuple[bytes, bytes]:
    """Return the first piece of a long line, and the rest with the timestamp of the line in front.

    Without it, text that looks like a timestamp could be taken for one.
    """
    stamp = STAMP.match(line)
    piece, rest = line[:MAX_LINE_BYTES], line[MAX_LINE_BYTES:]
    return piece + b"\n", (stamp[0] if stamp else b"") + rest
