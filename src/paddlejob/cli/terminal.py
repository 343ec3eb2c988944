"""The one way of a cluster's text to a terminal, which must not obey what tenants write.

A probe's output is in an event, a line of a log in a message, a file's name in an error, and an administrator
may be the one who reads them: an escape sequence there can forge what is on the screen, or the clipboard.
"""

from __future__ import annotations

import re
from typing import Any

import click

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and bytes that are not text."""
_UNESCAPED = re.compile("[\x7f-\x9f]")
"""Control characters that JSON allows in a string."""
_DIM = "\x1b[2m{}\x1b[0m"
_CLEAR = "\x1b[H\x1b[2J"


def say(text: str = "", *, err: bool = False, nl: bool = True, dim: bool = False) -> None:
    """Print a text; of what a terminal would obey instead of show, only line breaks and tabs stay."""
    shown = plain(text)
    click.echo(_DIM.format(shown) if dim else shown, err=err, nl=nl)


def plain(text: str) -> str:
    """Return a text without colours, and with a question mark for whatever else a terminal would obey."""
    return _OBEYED.sub("?", click.unstyle(text))


def clear() -> None:
    """Empty the screen."""
    click.echo(_CLEAR, nl=False)


def json_text(value: Any) -> str:
    """Return a value as indented JSON, in which all control characters are escaped."""
    import msgspec  # noqa: PLC0415 - not needed for help

    text = msgspec.json.format(msgspec.json.encode(value), indent=4).decode()
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
