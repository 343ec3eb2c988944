"""Commands that end only when somebody presses Ctrl-C."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from typing import Any

PATIENCE_SECONDS = 120


def until_it_speaks(command: str, **options: Any) -> str:
    """Run a command until it has printed something, press Ctrl-C, and return what it printed."""
    program = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **options,
    )
    assert program.stdout is not None
    try:
        readable, _, _ = select.select([program.stdout], [], [], PATIENCE_SECONDS)
        assert readable, f"{command} printed nothing"
        printed = os.read(program.stdout.fileno(), 65536)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while program.poll() is None and time.monotonic() < deadline:
            os.killpg(program.pid, signal.SIGINT)
            try:
                program.wait(5)
            except subprocess.TimeoutExpired:
                continue
        assert program.poll() is not None, f"{command} does not end with Ctrl-C"
        return printed.decode()
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        program.stdout.close()
