"""Printing to a terminal, which must not interpret text from tenants of a cluster.

Events, log lines and file names can contain escape sequences that forge the screen or fill the clipboard of
an administrator.
"""

from __future__ import annotations

import re

import click

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and bytes that are not text."""
_DIM = "\x1b[2m{}\x1b[0m"
_CLEAR = "\x1b[H\x1b[2J"


def say(text: str = "", *, err: bool = False, nl: bool = True, dim: bool = False) -> None:
    """Print a text without control characters, except line breaks and tabs."""
    shown = plain(text)
    click.echo(_DIM.format(shown) if dim else shown, err=err, nl=nl)


def plain(text: str) -> str:
    """Return a text without colours and with a question mark for each control character."""
    return _CONTROL.sub("?", click.unstyle(text))


def clear() -> None:
    """Clear the screen."""
    click.echo(_CLEAR, nl=False)
