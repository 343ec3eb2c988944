"""Sends the latest state of this process from a separate thread."""

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
"""One report per second in the first minute, then fewer, so that the file of a long job stays small."""


class Sender:
    """Sends reports to a file or to the operator; it is off if neither is configured."""

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
        """Whether reports are sent; a forked child sends none, because it is not the rank."""
        return self._sink is not None and os.getpid() == self._pid

    def guard(self) -> _Guard:
        """Return a context manager that turns the recorder off on any error, so that training continues."""
        return self._guard

    def turn_off(self, error: BaseException) -> None:
        """Stop reporting, and print the reason once."""
        if self._sink is not None:
            self._sink = None
            # Not through sys.stderr: Python aborts if a thread holds its lock at exit.
            with suppress(Exception):
                line = f"paddlejob recorder is off: {type(error).__name__}: {error}\n"
                os.write(2, line.encode("utf-8", "backslashreplace"))

    def wake(self) -> None:
        """Start the thread, and send a report immediately after the first step."""
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
                report = {"rank": rank(), **attempt(), **local_size(), **state_of(self._progress), **ending}
                report.update(self._progress.startup.report())
                write_next_to_log(report)
                pause = self._sink.send(report)
                if is_last:
                    self._sink.close()
                    return
                self._news.wait(pause)
                self._news.clear()

    def _finish(self) -> None:
        """Make the thread send the last state; wait for it only briefly."""
        self._is_stopped = True
        self._news.set()
        with self.guard():
            if self.is_on and self._sink is not None and self._thread is not None:
                self._thread.join(timeout=self._sink.exit_seconds)


class _Guard:
    """Keeps errors away from training. Not a generator, because it is entered several times per step."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._sender.turn_off(error)
        return True


MOMENTARY = ("waiting", "ended", "startup")


class FileSink:
    """Appends JSON lines to a file that the local runner reads."""

    exit_seconds = LAST_SECONDS

    def __init__(self, path: str) -> None:
        self._path = path
        self._sent: dict[str, Any] = {}
        self._pauses = pauses()

    def send(self, report: dict[str, Any]) -> float:
        """Append a report if it differs from the last one; return the seconds until the next."""
        # Drop momentary values, which mean nothing to later readers of the file.
        report = {name: value for name, value in report.items() if name not in MOMENTARY}
        if report["phase"] != STARTING and report != self._sent:
            self._sent = report
            self._append(json.dumps({"time": round(time.time(), 3), **report}) + "\n")
        return next(self._pauses)

    def close(self) -> None:
        """Do nothing; the file is not kept open."""

    def _append(self, line: str) -> None:
        # A single write in append mode, so that lines of several processes do not mix.
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
    """Yield the seconds between reports to a file, forever."""
    pause = FIRST_SECONDS
    while True:
        for _ in range(REPORTS_PER_DOUBLING):
            yield pause
        pause = min(2 * pause, LAST_SECONDS)


def rank() -> int:
    """Return this process's rank, which Paddle's launcher or the operator sets."""
    text = os.environ.get("PADDLE_TRAINER_ID", "0")
    return int(text) if text.isdigit() else 0


def attempt() -> dict[str, int]:
    """Return the attempt that this process belongs to; a pod may run several, one after the other."""
    text = os.environ.get("PADDLEJOB_ATTEMPT", "")
    return {"attempt": int(text)} if text.isdigit() else {}


def local_size() -> dict[str, int]:
    """Return the number of processes that Paddle's launcher started in this pod, if there are several."""
    text = os.environ.get("PADDLE_LOCAL_SIZE", "1")
    return {"localSize": int(text)} if text.isdigit() and int(text) > 1 else {}


def write_next_to_log(report: dict[str, Any]) -> None:
    """Replace the file next to the log of this process from which `kubectl pdj describe` reads its state.

    The launcher sets both variables. It names the log of the process workerlog.<local rank>.
    """
    directory, process = os.environ.get("PADDLE_LOG_DIR"), os.environ.get("PADDLE_LOCAL_RANK")
    if directory and process and local_size():
        path = os.path.join(directory, "progress." + process)
        # The disk may be full; the report is sent in any case.
        with suppress(OSError):
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(json.dumps(report) + "\n")
            os.replace(path + ".new", path)


def state_of(progress: Progress) -> dict[str, Any]:
    """Return the state as JSON; NaN and infinities become text."""
    known = {
        "phase": progress.phase,
        "step": progress.step,
        "total": progress.total,
        "epoch": progress.epoch,
        "loss": _number(progress.loss),
        "ownSeconds": round(progress.own_seconds, 3),
        "waitingSeconds": round(progress.waiting_seconds, 3),
        "waiting": progress.is_waiting or None,
        "stage": progress.stage,
        "savedStep": progress.saved_step,
        "resumed": progress.resumed or None,
        "counted": not progress.has_reported_steps or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
