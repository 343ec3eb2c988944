"""Programs on a terminal of their own, as a person uses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pexpect

PATIENCE_SECONDS = 90
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Colours and movements of the cursor."""

Terminal = Callable[..., Any]


@contextmanager
def on_terminal(
    program: str, *words: str, env: Mapping[str, str], cwd: str | None = None
) -> Iterator[Terminal]:
    """Give a function that starts a program with more words; what still runs in the end is killed."""
    begun = []

    def start(*arguments: object, **variables: str) -> Any:
        child = pexpect.spawn(
            program,
            [*words, *map(str, arguments)],
            env={**env, "TERM": "xterm", **variables},
            cwd=cwd,
            encoding="utf-8",
            timeout=PATIENCE_SECONDS,
            dimensions=(40, 200),
        )
        child.str_last_chars = 4000  # a screen, when what was expected does not come
        begun.append(child)
        return child

    try:
        yield start
    finally:
        for child in begun:
            child.close(force=True)


def ended(child: Any) -> tuple[int, str]:
    """Wait for the end; return the exit code and what was printed since the last look, without colours."""
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus, CONTROL.sub("", child.before).replace("\r\n", "\n")
