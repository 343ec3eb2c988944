"""Sends the newest state of this process, from a thread of its own."""

from __future__ import annotations

import atexit
import json
import math
import os
import threading
import time
from contextlib import suppress
from typing import Any, Iterator

from .operator_sink import REPORT_URL, OperatorSink
from .progress import STARTING, Progress

PROGRESS_FILE = "PADDLEJOB_PROGRESS_FILE"
FIRST_SECONDS = 1.0
LAST_SECONDS = 15.0
REPORTS_PER_DOUBLING = 60
"""A report a second in the first minute, then fewer, so that a file of days stays small."""


class Sender:
    """Sends reports while anything happens, to a file or to the operator; off where nobody listens."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._sink = _sink()
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._has_begun = False
        self._is_stopped = False
        self._guard = _Guard(self)

    @property
    def is_on(self) -> bool:
        """Whether there is somebody to send to, in this process: a forked child is not the rank."""
        return self._sink is not None and os.getpid() == self._pid

    def guard(self) -> _Guard:
        """Turn the recorder off, with one line, on any error inside: it must never end training."""
        return self._guard

    def turn_off(self, error: BaseException) -> None:
        """Report nothing any more, and say once why."""
        if self._sink is not None:
            self._sink = None
            # Not through sys.stderr: Python aborts if a thread holds its lock while the program ends.
            with suppress(Exception):
                line = f"paddlejob recorder is off: {type(error).__name__}: {error}\n"
                os.write(2, line.encode("utf-8", "backslashreplace"))

    def wake(self) -> None:
        """Begin to report; the first step, or word, is reported at once."""
        if self._thread is None and self.is_on:
            with self.guard():
                self._thread = threading.Thread(target=self._run, name="paddlejob-recorder", daemon=True)
                self._thread.start()
                atexit.register(self._finish)
        if self._progress.step and not self._has_begun:
            self._has_begun = True
            self._news.set()

    def _run(self) -> None:
        with self.guard():
            while self.is_on and self._sink is not None:
                is_last = self._is_stopped
                ending = {"ended": True} if is_last else {}
                pause = self._sink.send({"rank": rank(), **state_of(self._progress), **ending})
                if is_last:
                    self._sink.close()
                    return
                self._news.wait(pause)
                self._news.clear()

    def _finish(self) -> None:
        """Have the thread send the last state; the program does not wait for an operator when it exits."""
        self._is_stopped = True
        self._news.set()
        with self.guard():
            if self.is_on and self._sink is not None and self._thread is not None:
                self._thread.join(timeout=self._sink.exit_seconds)


class _Guard:
    """Keeps errors from training; without a generator, since it is entered several times a step."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._sender.turn_off(error)
        return True


class FileSink:
    """Appends JSON lines to a file that the local runner reads."""

    exit_seconds = LAST_SECONDS

    def __init__(self, path: str) -> None:
        self._path = path
        self._sent: dict[str, Any] = {}
        self._pauses = pauses()

    def send(self, report: dict[str, Any]) -> float:
        """Append a report unless it says nothing new; return the seconds until the next."""
        # What holds for the moment only says nothing to those who read the file later.
        report = {name: value for name, value in report.items() if name not in ("waiting", "ended")}
        if report["phase"] != STARTING and report != self._sent:
            self._sent = report
            self._append(json.dumps({"time": round(time.time(), 3), **report}) + "\n")
        return next(self._pauses)

    def close(self) -> None:
        """Nothing is kept open."""

    def _append(self, line: str) -> None:
        # One write of an append-only file: lines of several processes of a pod do not mix.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def _sink() -> FileSink | OperatorSink | None:
    if os.environ.get(PROGRESS_FILE):
        return FileSink(os.environ[PROGRESS_FILE])
    if os.environ.get(REPORT_URL):
        return OperatorSink(os.environ[REPORT_URL], os.path.dirname(os.path.abspath(__file__)))
    return None


def pauses() -> Iterator[float]:
    """Yield the seconds until each next report to a file, without end."""
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
        "waiting": progress.is_waiting or None,
        "savedStep": progress.saved_step,
        "resumed": progress.resumed or None,
        "counted": not progress.says_its_steps or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
