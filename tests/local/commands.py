"""How tests run the command, in a process of its own."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pexpect

from tests.support.waiting import eventually

PADDLEJOB = (str(Path(sys.executable).with_name("paddlejob")),)
FOREVER = "echo up; while :; do sleep 60; done"


def says_up(output, times=1):
    eventually(lambda: output().count("| up") >= times)


def in_terminal(command, *arguments, columns=120, code=0, react=None):
    """Run the command at a terminal and return what it showed, without colours and movements.

    `react`: words to wait for, and what to do with the terminal then.
    """
    shown = io.StringIO()
    environ = {**command.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    terminal = pexpect.spawn(
        PADDLEJOB[0],
        [str(each) for each in arguments],
        env=environ,
        dimensions=(24, columns),
        encoding="utf-8",
        codec_errors="replace",
        timeout=100,
    )
    terminal.logfile_read = shown
    if react:
        words, action = react
        terminal.expect_exact(words)
        action(terminal)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == code
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).replace("\r", "")
