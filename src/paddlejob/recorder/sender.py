"""Sends the newest state of this process, from a thread of its own."""

from __future__ import annotations

import atexit
import faulthandler
import json
import math
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Iterator

from .progress import Progress

PROGRESS_FILE = "PADDLEJOB_PROGRESS_FILE"
STACKS_FILE = "PADDLEJOB_STACKS_FILE"
FIRST_SECONDS = 1.0
LAST_SECONDS = 15.0
REPORTS_PER_DOUBLING = 60
"""A report a second in the first minute, then fewer, so that a file of days stays small."""


class Sender:
    """Appends JSON lines to PROGRESS_FILE while anything happens; off when there is no such file."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._path = os.environ.get(PROGRESS_FILE, "")
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._sent = ""

    @property
    def is_on(self) -> bool:
        """Whether there is somebody to send to, in this process: a forked child is not the rank."""
        return bool(self._path) and os.getpid() == self._pid

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn the recorder off, with one line, on any error inside: it must never end training."""
        try:
            yield
        except Exception as error:
            if self._path:
                self._path = ""
                # Not through sys.stderr: Python aborts if a thread holds its lock while the program ends.
                with suppress(OSError):
                    os.write(2, f"paddlejob recorder is off: {type(error).__name__}: {error}\n".encode())

    def prepare(self) -> None:
        """Write the stacks of all threads to STACKS_FILE on SIGUSR1."""
        path = os.environ.get(STACKS_FILE)
        if not path or signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL:
            return
        with self.guard():
            # Open for as long as the process lives: the handler runs when nothing can be opened any more.
            file = open(path, "a", buffering=1)  # noqa: SIM115
            faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)

    def wake(self) -> None:
        """Begin to report, with the first step or word."""
        if self._thread is None and self.is_on:
            self._thread = threading.Thread(target=self._run, name="paddlejob-recorder", daemon=True)
            self._thread.start()
            atexit.register(self._finish)

    def _run(self) -> None:
        with self.guard():
            for pause in pauses():
                self._send()
                if self._stopped.wait(pause) or not self.is_on:
                    return

    def _finish(self) -> None:
        self._stopped.set()
        with self.guard():
            assert self._thread is not None
            self._thread.join(timeout=LAST_SECONDS)
            if self.is_on:
                self._send()

    def _send(self) -> None:
        state = state_of(self._progress)
        text = json.dumps(state)
        if text == self._sent:
            return
        self._sent = text
        line = json.dumps({"time": round(time.time(), 3), "rank": rank(), **state}) + "\n"
        # One write of an append-only file: lines of several processes of a pod do not mix.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def pauses() -> Iterator[float]:
    """Yield the seconds until each next report, without end."""
    pause = FIRST_SECONDS
    while True:
        for _ in range(REPORTS_PER_DOUBLING):
            yield pause
        pause = min(2 * pause, LAST_SECONDS)


def rank() -> int:
    """Return this process's rank as Paddle's launcher or the operator has set it."""
    text = os.environ.get("PADDLE_TRAINER_ID", "0")
    return int(text) if text.isdigit() else 0


def state_of(progress: Progress) -> dict[str, Any]:
    """Return what is known, as JSON can say it: NaN and infinities are words there."""
    known = {
        "phase": progress.phase,
        "step": progress.step,
        "total": progress.total,
        "epoch": progress.epoch,
        "loss": _number(progress.loss),
        "ownSeconds": round(progress.own_seconds, 3),
        "waitingSeconds": round(progress.waiting_seconds, 3),
    }
    return {name: value for name, value in known.items() if value is not None}


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
