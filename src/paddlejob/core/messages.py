"""What a status says: a phase, its reason, and one line for people.

`PhaseReason` and `Event` make every message one line, so that no author has to think of it.
"""

from __future__ import annotations

import re

import msgspec

from paddlejob.api.v1 import Failure, Phase

MESSAGE_LENGTH = 1024
"""What a status and an event can hold."""
LONGEST_TEXT = 65536
"""So much of a text is read; a status may hold a megabyte, in each of thousands of pods."""

LONGEST_SECONDS = 1e9
"""What a program says of the time that is left has no limit of its own."""

_TERMINAL_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
"""Colours, cursor movements and titles, which programs write for a terminal."""


def one_line(text: str, limit: int = MESSAGE_LENGTH) -> str:
    """Collapse blanks and line breaks to single spaces, and keep the beginning of what is too long."""
    line = printable(text[:LONGEST_TEXT])
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def printable(text: str) -> str:
    """Return a text on one line, without what a terminal would obey instead of show."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    shown = (character for character in _TERMINAL_CODES.sub("", line) if character.isprintable())
    return " ".join("".join(shown).split())


def duration(seconds: float) -> str:
    """Return a length of time as kubectl writes it: 45s, 3m20s, 12m, 2h5m, 3d4h."""
    whole = int(max(0.0, min(seconds, LONGEST_SECONDS)))
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


def _in_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


class PhaseReason(msgspec.Struct, frozen=True):
    """A phase, the reason for it, and the reason in words, on one line."""

    phase: Phase
    reason: str
    message: str
    hang: str = ""
    """The part of the message that tells of a hang."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", one_line(self.message))


class Verdict(msgspec.Struct, frozen=True):
    """How a job ends, and the failure that ends it, if one does."""

    phase_reason: PhaseReason
    failure: Failure | None = None
