"""Result and progress of a run, read from the log and the progress reports of a pod."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.pod_set import Replica, pod_name, training_container_name
from paddlejob.local.store import files
from paddlejob.local.store.run_directory import Outcome, RunDirectory
from paddlejob.training.log_lines import Progress, Tracker, metrics

LOG_BYTES = 1 << 16
"""Bytes at the end of a log that are searched for the result."""
REPORT_BYTES = 4096
MAX_FILES = 20
_FRACTION = re.compile(rb"(\d{1,15})/(\d{1,15})")


class _Report(msgspec.Struct):
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    loss: float | str | None = None


def read(run: RunDirectory, job: PaddleJob) -> Outcome:
    """Return the outcome of a run after its pods have ended."""
    result_line = summary(run, job)
    numbers = metrics(result_line)
    found = files.written_files(run, MAX_FILES + 1)
    return Outcome(
        summary=result_line,
        metrics={name: number for name, number in numbers.items() if math.isfinite(number)},
        files=tuple(found[:MAX_FILES]),
        has_more_files=len(found) > MAX_FILES,
    )


def summary(run: RunDirectory, job: PaddleJob) -> str:
    """Return worker 0's last result line, else its progress, else an empty string."""
    tracker = track_log(run, job, LOG_BYTES)
    return tracker.result or str(tracker.progress or "")


def track_log(run: RunDirectory, job: PaddleJob, end_bytes: int) -> Tracker:
    """Return the progress and result found in the last bytes of worker 0's log."""
    assert job.spec.worker is not None
    pod, container = pod_name(job.name, Replica(Role.WORKER, 0)), training_container_name(job.spec.worker)
    tracker = Tracker()
    for line in read_end(run.log(pod, container), end_bytes).decode(errors="replace").split("\n"):
        tracker.feed(line, 0.0)
    return tracker


def reported_progress(path: Path) -> Progress | None:
    """Return the progress in the last whole line of a report file, None if it has no readable one.

    Recorders and programs append lines of JSON or of N/M.
    """
    lines = read_end(path, REPORT_BYTES).split(b"\n")[:-1]
    return parse_report(lines[-1]) if lines else None


def parse_report(line: bytes) -> Progress | None:
    """Parse a line of a report file. Returns None if it is neither JSON nor N/M."""
    if fraction := _FRACTION.fullmatch(line.strip()):
        return Progress(step=int(fraction[1]), steps=int(fraction[2]))
    with suppress(msgspec.DecodeError, ValueError):
        report = msgspec.json.decode(line, type=_Report)
        loss = None if report.loss is None else float(report.loss)
        return Progress(epoch=report.epoch, step=report.step, steps=report.total, loss=loss)
    return None


def read_end(path: Path, end_bytes: int) -> bytes:
    """Return the last bytes of a file, none if it cannot be read."""
    try:
        with path.open("rb") as reader:
            reader.seek(max(0, reader.seek(0, 2) - end_bytes))
            return reader.read()
    except OSError:
        return b""
