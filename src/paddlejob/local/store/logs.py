"""Reads growing logs in whole lines, and labels and selects pods."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.pod_set import Replica, pod_name
from paddlejob.local.errors import InputError

if TYPE_CHECKING:
    from paddlejob.local.store.run_directory import RunDirectory

CHUNK_BYTES = 1 << 20
SETTLED_NANOSECONDS = 100_000_000
MAX_LINE_BYTES = 1 << 16
"""Longer lines are shown in pieces; the file on disk keeps them whole."""


class LogLines(msgspec.Struct, frozen=True):
    """Whole lines of one container's log."""

    pod: str
    container: str
    text: bytes
    skipped: int = 0
    """Bytes skipped before these lines."""
    unfinished: bytes = b""
    """An incomplete line after them, if it is a progress bar that redraws itself."""


class Tail:
    """A read position in a growing log."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.lseek(self._file, offset, os.SEEK_SET)
        self._partial = b""
        self._bar = b""

    def read(self, *, may_skip: bool = False) -> tuple[bytes, int]:
        """Return the next whole lines, and the number of bytes skipped to get near the end."""
        skipped = self._skip() if may_skip else 0
        chunk = self._partial + os.read(self._file, CHUNK_BYTES)
        if skipped:
            chunk = chunk.partition(b"\n")[2]
        end = chunk.rfind(b"\n") + 1
        if end == 0 and len(chunk) >= MAX_LINE_BYTES:
            self._partial = b""
            return chunk + b"\n", skipped
        self._partial = chunk[end:]
        return chunk[:end], skipped

    def new_bar(self) -> bytes:
        """Return the incomplete last line, if it is a progress bar that has changed."""
        if b"\r" not in self._partial or self._partial == self._bar:
            return b""
        self._bar = self._partial
        return self._bar

    def rest(self) -> bytes:
        """Return an incomplete last line, terminated."""
        rest, self._partial = self._partial, b""
        return rest + b"\n" if rest else b""

    def close(self) -> None:
        os.close(self._file)

    def _skip(self) -> int:
        here, size = os.lseek(self._file, 0, os.SEEK_CUR), os.fstat(self._file).st_size
        if size - here <= CHUNK_BYTES:
            return 0
        self._partial = b""
        os.lseek(self._file, size - MAX_LINE_BYTES, os.SEEK_SET)
        return size - MAX_LINE_BYTES - here


class Follower:
    """Follows all logs of a run, including those of pods that start later."""

    def __init__(
        self, run: RunDirectory, offsets: Mapping[Path, int] | None = None, *, bars: bool = False
    ) -> None:
        """`bars`: also yield progress bars before their line ends."""
        self._run = run
        self._offsets = offsets or {}
        self._bars = bars
        self._tails: dict[Path, Tail] = {}
        self._directories: dict[Path, int] = {}

    def poll(self, *, may_skip: bool = False) -> Iterator[LogLines]:
        """Yield new lines, one piece per log."""
        self._discover()
        for path, tail in self._tails.items():
            text, skipped = tail.read(may_skip=may_skip)
            bar = tail.new_bar() if self._bars else b""
            if text or skipped or bar:
                yield LogLines(path.parent.name, path.stem, text, skipped, bar)

    def rest(self) -> Iterator[LogLines]:
        """Yield all remaining lines, after every writer has ended."""
        while pieces := list(self.poll()):
            yield from pieces
        for path, tail in self._tails.items():
            if text := tail.rest():
                yield LogLines(path.parent.name, path.stem, text)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    def _discover(self) -> None:
        """Open new logs in directories that have changed since the last poll.

        A run continues when its directory is removed; open logs can still be read.
        """
        for directory in (self._run.path / "logs", *self._directories):
            with suppress(FileNotFoundError):
                changed = directory.stat().st_mtime_ns
                if self._directories.get(directory) != changed:
                    # File system clocks are coarse: a log created right now may not change this time.
                    is_settled = time.time_ns() - changed > SETTLED_NANOSECONDS
                    self._directories[directory] = changed if is_settled else 0
                    self._open_logs(directory)

    def _open_logs(self, directory: Path) -> None:
        for entry in sorted(directory.iterdir()):
            if entry.is_dir():
                self._directories.setdefault(entry, 0)
                self._open_logs(entry)
            elif entry.suffix == ".log" and entry not in self._tails:
                self._tails[entry] = Tail(entry, self._offsets.get(entry, 0))


def log_label(job: str, lines: LogLines, *, is_training: bool) -> str:
    """Return the rank, followed by the container unless it is the training container."""
    name = short_name(job, lines.pod)
    return name if is_training else f"{name}/{lines.container}"


def short_name(job: str, pod: str) -> str:
    """Return a pod's name without the job's, such as worker-0."""
    return pod.removeprefix(f"{job}-")


def widest_label(job: PaddleJob, selection: str) -> int:
    """Return the length of the longest label of the selected containers."""
    widest = 0
    for role, spec in job.spec.roles():
        chosen = chosen_pods(job.name, selection, _pods_of(job, role))
        pod_spec = spec.template["spec"]
        others = (*(pod_spec.get("initContainers") or ()), *pod_spec["containers"][1:])
        container = max((1 + len(each["name"]) for each in others), default=0)
        widest = max([widest, *(len(short_name(job.name, pod)) + container for pod in chosen)])
    return widest


def check_selection(job: PaddleJob, selection: str) -> None:
    """Raise InputError if the selection matches no pod of the job."""
    pods = [pod for role, _ in job.spec.roles() for pod in _pods_of(job, role)]
    if selection not in ("all", "none") and not chosen_pods(job.name, selection, pods):
        shown = [short_name(job.name, pod) for pod in pods]
        several = f"{shown[0]} to {shown[-1]}" if len(shown) > 5 else ", ".join(shown)
        raise InputError(f"--logs {selection}: there is no such pod; give all, none or one of {several}")


def _pods_of(job: PaddleJob, role: Role) -> list[str]:
    return [pod_name(job.name, Replica(role, index)) for index in range(job.spec.replicas(role))]


def chosen_pods(job: str, selection: str, pods: Iterable[str]) -> set[str]:
    """Return the pods selected by `all`, `none`, a worker's rank, a name such as ps-1, or a role."""
    match selection:
        case "all":
            return set(pods)
        case "none":
            return set()
    wanted = f"worker-{selection}" if selection.isdecimal() else selection
    names = {pod: short_name(job, pod) for pod in pods}
    return {pod for pod, name in names.items() if wanted in (pod, name, name.rpartition("-")[0])}
