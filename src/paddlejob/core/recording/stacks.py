"""Reads what faulthandler writes: where the threads of a process are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from paddlejob.core.messages import printable

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3|^<frozen ")
_RECORDER = "recorder/sender.py"
LONGEST_NAME = 200
MOST_TEXT = 8192


class Frame(NamedTuple):
    """A call that has not returned."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


Thread = tuple[Frame, ...]
"""Its calls, the innermost first."""


def threads(dump: str) -> list[Thread]:
    """Return the threads of a process without the recorder's own, the main thread first."""
    # Threads are listed from the newest to the oldest.
    found = [_frames(part) for part in reversed(_THREAD.split(dump)[1:])]
    return [each for each in found if each and not any(_RECORDER in frame.file for frame in each)]


def _frames(text: str) -> Thread:
    return tuple(
        Frame(_name(each["file"]), int(each["line"][:9]), _name(each["function"]))
        for each in _FRAME.finditer(text)
    )


def _name(text: str) -> str:
    return printable(text)[-LONGEST_NAME:]


class Position(NamedTuple):
    """Where a process is; of what it sent nothing but files, lines and functions is left."""

    main: int
    """Equal where two main threads are at the same place."""
    place: str
    dump: str
    """Its threads as faulthandler writes them, the main thread last, and not without it."""


def position(dump: str) -> Position:
    """Read where a process is."""
    found = threads(dump)
    main = found[0] if found else ()
    return Position(hash(main), _place(main), "\n".join(map(_text, reversed(found)))[-MOST_TEXT:])


def _text(thread: Thread) -> str:
    frames = (f'  File "{frame.file}", line {frame.line} in {frame.function}\n' for frame in thread)
    return f"Thread 0x0 (most recent call first):\n{''.join(frames)}"


def _place(main: Thread) -> str:
    """Return where a thread is, in the program's own code if it is there: read (data.py:12)."""
    own = (frame for frame in main if not _LIBRARY.search(frame.file))
    innermost = next(own, main[0] if main else None)
    return str(innermost) if innermost else ""


def grouped(dumps: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Join the names whose main threads are at the same place, most names first, each with one dump."""
    groups: dict[Thread, tuple[list[str], str]] = {}
    for name, dump in dumps:
        main = next(iter(threads(dump)), ())
        groups.setdefault(main, ([], dump))[0].append(name)
    return sorted(groups.values(), key=lambda group: -len(group[0]))
