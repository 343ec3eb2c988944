"""Starts `paddlejob run` in the background."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from paddlejob.client.errors import InvalidJobError
from paddlejob.local.store.run_directory import RunDirectory

LOOK_SECONDS = 0.05


def start_run(runs: Path, text: str, *, python: str = "", options: Sequence[str] = ()) -> RunDirectory:
    """Start the job in a YAML text in a separate process, which outlives this one; return its run.

    `python` is the interpreter for the containers; `options` are other options of `paddlejob run`.
    Raises InvalidJobError if the run does not start.
    """
    command = [sys.executable, "-m", "paddlejob.cli.main", "run", "-", "--run-dir", str(runs)]
    command += [*(("--python", python) if python else ()), *options, "--background"]
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(text.encode())
        stdin.seek(0)
        files = enumerate((stdin, stdout, stderr))
        # A `Popen` object would have to be waited for.
        process = os.posix_spawn(
            sys.executable,
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), number) for number, file in files],
            setsid=True,
        )
        while True:
            has_ended = os.waitpid(process, os.WNOHANG) != (0, 0)
            stdout.seek(0)
            if (first := stdout.readline()).endswith(b"\n"):
                first_event = msgspec.json.decode(first)
                run = RunDirectory(Path(first_event["directory"])) if first_event["type"] == "run" else None
                if run and run.read_record():
                    return run
            if has_ended:
                break
            time.sleep(LOOK_SECONDS)
        stderr.seek(0)
        complaints = stderr.read().decode("utf-8", "replace").splitlines()
    raise InvalidJobError(*(line.removeprefix("error: ") for line in complaints))
