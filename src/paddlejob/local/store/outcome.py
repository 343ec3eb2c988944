"""What came of a run: its result, read from the end of worker 0's log, and the files that it left."""

from __future__ import annotations

import math

from paddlejob import progress
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.pod_set import Replica, pod_name, training_container_name
from paddlejob.local.store import files
from paddlejob.local.store.run_directory import Outcome, RunDirectory

END_BYTES = 1 << 16
"""How much of a log is looked at for the result."""
MOST_FILES = 20


def read(run: RunDirectory, job: PaddleJob) -> Outcome:
    """Return what came of a run whose pods have ended."""
    result_line = summary(run, job)
    numbers = progress.metrics(result_line)
    found = files.written(run, MOST_FILES + 1)
    return Outcome(
        summary=result_line,
        metrics={name: number for name, number in numbers.items() if math.isfinite(number)},
        files=tuple(found[:MOST_FILES]),
        has_more_files=len(found) > MOST_FILES,
    )


def summary(run: RunDirectory, job: PaddleJob) -> str:
    """Return the last line of worker 0 that tells a result, else how far it is, else nothing."""
    tracker = tracked(run, job, END_BYTES)
    return tracker.result or str(tracker.progress or "")


def tracked(run: RunDirectory, job: PaddleJob, end_bytes: int) -> progress.Tracker:
    """Return what the end of worker 0's log tells of its progress."""
    tracker = progress.Tracker()
    for line in _end_of_log(run, job, end_bytes).decode(errors="replace").split("\n"):
        tracker.feed(line, 0.0)
    return tracker


def _end_of_log(run: RunDirectory, job: PaddleJob, end_bytes: int) -> bytes:
    assert job.spec.worker is not None
    pod, container = pod_name(job.name, Replica(Role.WORKER, 0)), training_container_name(job.spec.worker)
    try:
        with run.log(pod, container).open("rb") as reader:
            reader.seek(max(0, reader.seek(0, 2) - end_bytes))
            return reader.read()
    except OSError:
        return b""
