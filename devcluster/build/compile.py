"""Builds missing programs into the cache, and shows progress."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from devcluster.build.programs import Binary, binary
from devcluster.build.toolchain import find_go, go_environment
from devcluster.cache import cache_directory, locked
from devcluster.errors import DevclusterError

LINE_INTERVAL_SECONDS = 30.0
TERMINAL_INTERVAL_SECONDS = 1.0
LOG_TAIL_LINES = 20


def about(seconds: int) -> str:
    """Format a duration: `about 7 minutes`, `about 20 seconds`."""
    if seconds < 90:
        return f"about {seconds} seconds"
    return f"about {round(seconds / 60)} minutes"


class Progress:
    """Shows progress: one rewritten line on a terminal, otherwise a line every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rewrites = stream.isatty()
        self.interval_seconds = TERMINAL_INTERVAL_SECONDS if self._rewrites else LINE_INTERVAL_SECONDS

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._write(f"\r\x1b[K{text}\n" if self._rewrites else f"{text}\n")

    def update(self, text: str) -> None:
        """Write a line that the next one may replace."""
        self._write(f"\r\x1b[K{text}" if self._rewrites else f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def ensure(
    names: Iterable[str], *, kubernetes: str = "kubernetes", progress: Progress | None = None
) -> dict[str, Path]:
    """Give the path of every named program, building those that are missing.

    Guarantees: a program found in the cache costs nothing; concurrent callers build it once; a path that
    exists is a complete program.
    Raises: DevclusterError with the compiler's last lines when a build fails.
    """
    wanted = {name: binary(name, kubernetes=kubernetes) for name in names}
    missing = [item for item in wanted.values() if not item.path.exists()]
    if missing:
        _build_missing(missing, progress or Progress(sys.stderr))
    return {name: item.path for name, item in wanted.items()}


def _build_missing(missing: list[Binary], progress: Progress) -> None:
    lock = cache_directory() / "build.lock"
    with locked(lock, on_wait=lambda: progress.say("another process is building, waiting for it")):
        for item in missing:
            # Another process may have built it during the wait for the lock.
            if not item.path.exists():
                _build(item, progress)


def _build(item: Binary, progress: Progress) -> None:
    go = find_go(item.module.go_version, progress.say)
    item.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=item.path.parent, prefix=".building-") as scratch:
        output, log = Path(scratch) / item.program.name, Path(scratch) / "log"
        started = time.monotonic()
        command = [str(go), "build", *item.flags, "-o", str(output), item.program.package]
        with log.open("w") as sink, _started(command, item.module.directory, sink) as process:
            _watch(process, item, started, progress)
        if process.returncode != 0:
            raise DevclusterError(_failure(item, process.returncode, log))
        output.rename(item.path)
    progress.say(f"built {item.program.name} {item.version} in {time.monotonic() - started:.0f} s")


def _started(command: list[str], directory: Path, sink: TextIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=directory,
        env=go_environment(),
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=subprocess.STDOUT,
    )


def _watch(process: subprocess.Popen[bytes], item: Binary, started: float, progress: Progress) -> None:
    label = f"building {item.program.name} {item.version}"
    expectation = f"({about(item.expected_build_seconds)} the first time)"
    progress.update(f"{label} ... {expectation}")
    try:
        while True:
            try:
                process.wait(timeout=progress.interval_seconds)
            except subprocess.TimeoutExpired:
                progress.update(f"{label} ... {time.monotonic() - started:.0f} s {expectation}")
            else:
                return
    except BaseException:
        process.terminate()
        raise


def _failure(item: Binary, code: int, log: Path) -> str:
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
    return f"Building {item.program.name} {item.version} failed (go build ended with {code}):\n{tail}"
