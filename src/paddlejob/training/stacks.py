"""Parses faulthandler dumps into thread stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from paddlejob.text import printable

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3|^<frozen ")
_RECORDER = "recorder/sender.py"
MAX_NAME_LENGTH = 200
MAX_TEXT_LENGTH = 8192


class Frame(NamedTuple):
    """A call that has not returned."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


Thread = tuple[Frame, ...]
"""Frames, innermost first."""


def parse_threads(dump: str) -> list[Thread]:
    """Return the threads of a process except the recorder's, the main thread first."""
    # faulthandler lists the newest thread first.
    found = [_frames(part) for part in reversed(_THREAD.split(dump)[1:])]
    return [each for each in found if each and not any(_RECORDER in frame.file for frame in each)]


def _frames(text: str) -> Thread:
    return tuple(
        Frame(_name(each["file"]), int(each["line"][:9]), _name(each["function"]))
        for each in _FRAME.finditer(text)
    )


def _name(text: str) -> str:
    return printable(text)[-MAX_NAME_LENGTH:]


class Position(NamedTuple):
    """Position of a process. Only files, lines and functions of its dump are kept."""

    main: int
    """Hash of the main thread's stack."""
    place: str
    dump: str
    """Threads in faulthandler's format, the main thread last; cut off at the front if too long."""


def parse_position(dump: str) -> Position:
    found = parse_threads(dump)
    main = found[0] if found else ()
    return Position(hash(main), _place(main), "\n".join(map(_text, reversed(found)))[-MAX_TEXT_LENGTH:])


def _text(thread: Thread) -> str:
    frames = (f'  File "{frame.file}", line {frame.line} in {frame.function}\n' for frame in thread)
    return f"Thread 0x0 (most recent call first):\n{''.join(frames)}"


def _place(main: Thread) -> str:
    """Return the innermost frame in the program's own code, else the innermost frame: read (data.py:12)."""
    own = (frame for frame in main if not _LIBRARY.search(frame.file))
    innermost = next(own, main[0] if main else None)
    return str(innermost) if innermost else ""


def group_by_stack(dumps: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Group names by the stack of their main thread, largest group first, each with one dump."""
    groups: dict[Thread, tuple[list[str], str]] = {}
    for name, dump in dumps:
        main = next(iter(parse_threads(dump)), ())
        groups.setdefault(main, ([], dump))[0].append(name)
    return sorted(groups.values(), key=lambda group: -len(group[0]))
