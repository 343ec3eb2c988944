"""Reads logs while they grow, in whole lines, and merges those of several pods."""

from __future__ import annotations

import os
import re
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
LONGEST_LINE_BYTES = 1 << 16
"""What is longer is shown in pieces; the file on disk has it whole."""

_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)
_DRAWN_OVER = re.compile(rb"[^\n\r]*\r+(?=[^\n\r])|\r+(?=\n)")
_UNTAMED = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\udc80-\udc9f]")
"""Control characters; the last range are those of terminals that are not UTF-8, as surrogates."""


class LogLines(msgspec.Struct, frozen=True):
    """Whole lines of one container's log."""

    pod: str
    container: str
    text: bytes
    skipped: int = 0
    """How many bytes before them were passed over."""
    unfinished: bytes = b""
    """A line after them that is not whole yet, where it is a progress bar that draws over itself."""


class Tail:
    """A place in a growing log."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.lseek(self._file, offset, os.SEEK_SET)
        self._partial = b""
        self._bar = b""

    def read(self, *, may_skip: bool = False) -> tuple[bytes, int]:
        """Return the next whole lines, and how many bytes were skipped to come near the end."""
        skipped = self._skip() if may_skip else 0
        chunk = self._partial + os.read(self._file, CHUNK_BYTES)
        if skipped:
            chunk = chunk.partition(b"\n")[2]
        end = chunk.rfind(b"\n") + 1
        if end == 0 and len(chunk) >= LONGEST_LINE_BYTES:
            self._partial = b""
            return chunk + b"\n", skipped
        self._partial = chunk[end:]
        return chunk[:end], skipped

    def new_bar(self) -> bytes:
        """Return the line that is not whole yet, if it is a progress bar that has moved."""
        if b"\r" not in self._partial or self._partial == self._bar:
            return b""
        self._bar = self._partial
        return self._bar

    def rest(self) -> bytes:
        """Return a last line without its end."""
        rest, self._partial = self._partial, b""
        return rest + b"\n" if rest else b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _skip(self) -> int:
        here, size = os.lseek(self._file, 0, os.SEEK_CUR), os.fstat(self._file).st_size
        if size - here <= CHUNK_BYTES:
            return 0
        self._partial = b""
        os.lseek(self._file, size - LONGEST_LINE_BYTES, os.SEEK_SET)
        return size - LONGEST_LINE_BYTES - here


class Follower:
    """Follows all logs of a run, also those of pods that are yet to come."""

    def __init__(
        self, run: RunDirectory, offsets: Mapping[Path, int] | None = None, *, bars: bool = False
    ) -> None:
        """`bars`: yield also what progress bars draw before their line ends."""
        self._run = run
        self._offsets = offsets or {}
        self._bars = bars
        self._tails: dict[Path, Tail] = {}
        self._directories: dict[Path, int] = {}

    def poll(self, *, may_skip: bool = False) -> Iterator[LogLines]:
        """Yield what is new, one piece a log."""
        self._discover()
        for path, tail in self._tails.items():
            text, skipped = tail.read(may_skip=may_skip)
            bar = tail.new_bar() if self._bars else b""
            if text or skipped or bar:
                yield LogLines(path.parent.name, path.stem, text, skipped, bar)

    def rest(self) -> Iterator[LogLines]:
        """Yield everything that is left, once nobody writes any more."""
        while pieces := list(self.poll()):
            yield from pieces
        for path, tail in self._tails.items():
            if text := tail.rest():
                yield LogLines(path.parent.name, path.stem, text)

    def close(self) -> None:
        """Close the files."""
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    def _discover(self) -> None:
        """Find new logs: in directories that have changed since the last look.

        A run continues when its directory is removed; logs that are open can still be read.
        """
        for directory in (self._run.path / "logs", *self._directories):
            with suppress(FileNotFoundError):
                self._look_again(directory)

    def _look_again(self, directory: Path) -> None:
        changed = directory.stat().st_mtime_ns
        if self._directories.get(directory) != changed:
            # The clock of file systems is coarse: a log that comes right after this look may not move it.
            is_settled = time.time_ns() - changed > SETTLED_NANOSECONDS
            self._directories[directory] = changed if is_settled else 0
            self._look_into(directory)

    def _look_into(self, directory: Path) -> None:
        for entry in sorted(directory.iterdir()):
            if entry.is_dir():
                self._directories.setdefault(entry, 0)
                self._look_into(entry)
            elif entry.suffix == ".log" and entry not in self._tails:
                self._tails[entry] = Tail(entry, self._offsets.get(entry, 0))


class Prefixes:
    """Puts in front of every line who said it."""

    def __init__(self, widest: int = 0, *, colours: bool) -> None:
        self._colours = colours
        self._widest = widest
        self._order: dict[str, int] = {}

    def apply(self, text: bytes, label: str) -> bytes:
        """Return whole lines with the speaker in front of each."""
        self._widest = max(self._widest, len(label))
        mark = f"{label:<{self._widest}} | ".encode()
        if self._colours:
            colour = _COLOURS[self._order.setdefault(label, len(self._order)) % len(_COLOURS)]
            mark = b"\x1b[%dm%s\x1b[0m" % (colour, mark)
            text = tame(text)
        return mark + text[:-1].replace(b"\n", b"\n" + mark) + b"\n"


def tame(text: bytes) -> bytes:
    """Remove control characters except colours, and keep the last state of a progress bar."""
    decoded = _DRAWN_OVER.sub(b"", text).decode("utf-8", "surrogateescape")
    return _UNTAMED.sub("?", decoded).encode("utf-8", "surrogateescape")


def speaker(job: str, lines: LogLines, *, is_training: bool) -> str:
    """Return who says something: the rank, and the container where it is not the one that trains."""
    name = short_name(job, lines.pod)
    return name if is_training else f"{name}/{lines.container}"


def short_name(job: str, pod: str) -> str:
    """Return a pod's name without the job's: worker-0."""
    return pod.removeprefix(f"{job}-")


def widest_label(job: PaddleJob, selection: str) -> int:
    """Return how long the longest name is of the containers that a selection means."""
    widest = 0
    for role, spec in job.spec.roles():
        chosen = chosen_pods(job.name, selection, _pods_of(job, role))
        pod_spec = spec.template["spec"]
        others = (*(pod_spec.get("initContainers") or ()), *pod_spec["containers"][1:])
        container = max((1 + len(each["name"]) for each in others), default=0)
        widest = max([widest, *(len(short_name(job.name, pod)) + container for pod in chosen)])
    return widest


def check_selection(job: PaddleJob, selection: str) -> None:
    """Raise InputError when a selection means no pod of the job."""
    pods = [pod for role, _ in job.spec.roles() for pod in _pods_of(job, role)]
    if selection not in ("all", "none") and not chosen_pods(job.name, selection, pods):
        shown = [short_name(job.name, pod) for pod in pods]
        several = f"{shown[0]} to {shown[-1]}" if len(shown) > 5 else ", ".join(shown)
        raise InputError(f"--logs {selection}: there is no such pod; give all, none or one of {several}")


def _pods_of(job: PaddleJob, role: Role) -> list[str]:
    return [pod_name(job.name, Replica(role, index)) for index in range(job.spec.replicas(role))]


def chosen_pods(job: str, selection: str, pods: Iterable[str]) -> set[str]:
    """Return the pods that `all`, `none`, a worker's rank, a name such as ps-1 or a role means."""
    match selection:
        case "all":
            return set(pods)
        case "none":
            return set()
    wanted = f"worker-{selection}" if selection.isdecimal() else selection
    names = {pod: short_name(job, pod) for pod in pods}
    return {pod for pod, name in names.items() if wanted in (pod, name, name.rpartition("-")[0])}
