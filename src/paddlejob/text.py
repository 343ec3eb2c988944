"""Text for messages, tables and terminals.

Messages and table cells are one printable line of bounded length. Log lines at a terminal have the rank in
front, and no control characters except colours.
"""

from __future__ import annotations

import re

MESSAGE_LENGTH = 1024
"""Maximum length of a status message or event."""
MAX_TEXT_LENGTH = 65536
"""Maximum number of characters read from one text; a pod status can hold a megabyte."""
MAX_SECONDS = 1e9
"""Longest duration that is formatted. Programs can report any number as their remaining time."""

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d|w))+")
_DURATION_PART = re.compile(r"([0-9.]+)(ms|s|m|h|d|w)")
_TERMINAL_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
"""Colours, cursor movements and window titles."""
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)
_OVERWRITTEN = re.compile(rb"[^\n\r]*\r+(?=[^\n\r])|\r+(?=\n)")
_CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\udc80-\udc9f]")
"""Control characters. The last range holds C1 controls of terminals without UTF-8, as surrogates."""


def one_line(text: str, limit: int = MESSAGE_LENGTH) -> str:
    """Collapse whitespace to single spaces, and cut off the end of a text that is too long."""
    line = printable(text[:MAX_TEXT_LENGTH])
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def printable(text: str) -> str:
    """Return a text on one line, without control characters and terminal codes."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    shown = (character for character in _TERMINAL_CODES.sub("", line) if character.isprintable())
    return " ".join("".join(shown).split())


def duration(seconds: float) -> str:
    """Format a duration as kubectl does: 45s, 3m20s, 12m, 2h5m, 3d4h."""
    whole = int(max(0.0, min(seconds, MAX_SECONDS)))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _in_units(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _in_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    return _in_units(days, "d", hours % 24, "h") if days < 8 else f"{days}d"


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as 3m20s or 1.5h. Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def _in_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


class Prefixes:
    """Puts a label in front of every line, each label in its own colour."""

    def __init__(self, widest: int = 0, *, colours: bool) -> None:
        self._colours = colours
        self._widest = widest
        self._order: dict[str, int] = {}

    def apply(self, text: bytes, label: str) -> bytes:
        """Return whole lines with the label in front of each."""
        self._widest = max(self._widest, len(label))
        mark = f"{label:<{self._widest}} | ".encode()
        if self._colours:
            colour = _COLOURS[self._order.setdefault(label, len(self._order)) % len(_COLOURS)]
            mark = b"\x1b[%dm%s\x1b[0m" % (colour, mark)
            text = tame(text)
        return mark + text[:-1].replace(b"\n", b"\n" + mark) + b"\n"


def tame(text: bytes) -> bytes:
    """Replace control characters except colours, and keep only the last state of a progress bar."""
    decoded = _OVERWRITTEN.sub(b"", text).decode("utf-8", "surrogateescape")
    return _CONTROL.sub("?", decoded).encode("utf-8", "surrogateescape")
