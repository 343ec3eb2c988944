"""Log lines for a terminal: the rank in front of each line, and no control characters except colours."""

from __future__ import annotations

import re

_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)
_OVERWRITTEN = re.compile(rb"[^\n\r]*\r+(?=[^\n\r])|\r+(?=\n)")
_CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\udc80-\udc9f]")
"""Control characters. The last range holds C1 controls of terminals without UTF-8, as surrogates."""


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
