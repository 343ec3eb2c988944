"""The state of a run on this machine, in the form of a PaddleJob: its record, and the progress in its log."""

from __future__ import annotations

import struct
from bisect import bisect_left
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectMeta, View
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, Role, RoleStatus
from paddlejob.client.errors import NoSuchJobError
from paddlejob.client.job import UNFINISHED
from paddlejob.core.pod_set import Replica, pod_name, training_container_name
from paddlejob.local.sandbox.supervisor import STAMP_FORMAT
from paddlejob.local.store import outcome
from paddlejob.local.store.run_directory import RunDirectory, RunRecord
from paddlejob.training.log_lines import Tracker, training_progress
from paddlejob.training.steps import at_end, declared_total

LOST = "Lost"
END_BYTES = 4096
"""How much of the end of a log is parsed for progress."""
EPOCH_BYTES = 1 << 20
"""How far back from there the last line with an epoch is searched, which may have begun long ago."""


class RunState(NamedTuple):
    """A run at one moment."""

    job: PaddleJob
    result: str
    """The result that worker 0 printed, the reason of a failure, or the progress so far."""


class Fingerprint(NamedTuple):
    """Changes whenever a run changes."""

    recorded: int
    is_alive: bool
    written: tuple[int, ...]
    """Sizes of the files that have the progress of worker 0."""


def read_record(run: RunDirectory) -> RunRecord:
    """Return the record of a run. Raises NoSuchJobError if it was deleted or has not started yet.

    A run that was killed before it wrote a record gets an empty one.
    """
    record = run.read_record()
    if record is None and (run.is_alive or not (run.path / "job.yaml").exists()):
        raise NoSuchJobError(f"run {run.name} was deleted, or has not started yet")
    return record or RunRecord(job=PaddleJob(metadata=ObjectMeta(name=run.job_name)))


def read_state(run: RunDirectory) -> RunState:
    """Return the state of a run. Raises NoSuchJobError."""
    record = read_record(run)
    if not record.result and not run.is_alive:
        # The runner may have written its last record between the two reads.
        record = read_record(run)
    job, is_over = record.job, not run.is_alive
    if job.metadata.creation_timestamp is None:
        created = datetime.fromtimestamp(run.began, UTC)
        job = msgspec.structs.replace(
            job, metadata=msgspec.structs.replace(job.metadata, creation_timestamp=created)
        )
    tracker = _track(run, job)
    status = _with_progress(job.status, tracker, is_over=is_over, processes=_processes(run))
    if is_over:
        reason = record.result or LOST
        status = _without_pods(status, has_verdict=reason not in UNFINISHED)
        if reason in UNFINISHED:
            status = _unfinished(status, reason, _ended(run))
    job = msgspec.structs.replace(job, status=status)
    if record.result == Phase.COMPLETED:
        return RunState(job, record.outcome.summary)
    if record.result == Phase.FAILED:
        return RunState(job, status.message)
    return RunState(job, tracker.result or str(tracker.progress or ""))


def fingerprint(run: RunDirectory) -> Fingerprint:
    """Return a value that changes whenever the state of a run changes."""
    pod = pod_name(run.job_name, Replica(Role.WORKER, 0))
    sizes = (_stat(path)[1] for path in (run.progress(pod), *(run.path / "logs" / pod).glob("*.log")))
    return Fingerprint(_stat(run.path / "status.json")[0], run.is_alive, tuple(sizes))


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _ended(run: RunDirectory) -> datetime:
    written, _ = _stat(run.path / "status.json")
    return datetime.fromtimestamp(written / 1e9 if written else run.began, UTC)


def _track(run: RunDirectory, job: PaddleJob) -> Tracker:
    """Return the progress of worker 0, from the end of its log or else from its reports."""
    tracker = Tracker()
    tracker.total = declared_total(job)
    if job.spec.worker is None:
        return tracker
    pod = pod_name(run.job_name, Replica(Role.WORKER, 0))
    _feed(tracker, run.log(pod, training_container_name(job.spec.worker)))
    reported = outcome.reported_progress(run.progress(pod))
    if tracker.progress is None and reported is not None:
        tracker.add(reported, 0.0)
    return tracker


def _feed(tracker: Tracker, log: Path) -> None:
    """Feed the last lines of a log with the times at which they were written."""
    try:
        with log.open("rb") as reader:
            position = max(0, reader.seek(0, 2) - END_BYTES)
            reader.seek(max(0, position - EPOCH_BYTES))
            earlier, text = reader.read(min(position, EPOCH_BYTES)), reader.read()
    except OSError:
        return
    times, ends = _times(log)
    tracker.feed(_last_epoch(earlier).decode(errors="replace"), times[0])
    for line in text.split(b"\n"):
        position += len(line) + 1
        at = bisect_left(ends, position)
        tracker.feed(line.decode(errors="replace"), times[min(at, len(times) - 1)])


def _last_epoch(text: bytes) -> bytes:
    at = max(text.rfind(word) for word in (b"epoch", b"Epoch"))
    return text[text.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0] if at >= 0 else b""


def _times(log: Path) -> tuple[list[float], list[int]]:
    """Return the last times at which a log was written, and its size at each."""
    size = struct.calcsize(STAMP_FORMAT)
    status = log.stat()
    try:
        with log.with_suffix(".times").open("rb") as reader:
            stored = reader.seek(0, 2) // size * size
            reader.seek(max(0, stored - END_BYTES * size))
            stamps = [*struct.iter_unpack(STAMP_FORMAT, reader.read(min(stored, END_BYTES * size)))]
    except OSError:
        stamps = []
    stamps.append((status.st_mtime, status.st_size))
    return [time for time, _ in stamps], [end for _, end in stamps]


def _processes(run: RunDirectory) -> int:
    """Return the number of processes that Paddle's launcher started in worker 0.

    It may be 1 for a job that requests several cards: without these cards the launcher starts one process.
    """
    pod = pod_name(run.job_name, Replica(Role.WORKER, 0))
    logs = run.launcher_logs(pod).glob("workerlog.*")
    return sum(1 for log in logs if log.suffix[1:].isdecimal() and log.stem == "workerlog")


def _with_progress(
    status: PaddleJobStatus, tracker: Tracker, *, is_over: bool, processes: int
) -> PaddleJobStatus:
    progress = training_progress(tracker, datetime.now(UTC).timestamp())
    if progress and is_over:
        progress = at_end(progress, status.phase)
    if progress:
        progress = msgspec.structs.replace(progress, processes=processes)
    return msgspec.structs.replace(status, progress=progress)


def _without_pods(status: PaddleJobStatus, *, has_verdict: bool) -> PaddleJobStatus:
    """Return the status of a run that is over: no pod runs, and stopped pods have not failed."""
    roles = {
        str(role): RoleStatus(
            ready=f"0/{before.ready.rpartition('/')[2]}",
            failed=before.failed if has_verdict else 0,
            succeeded=before.succeeded if has_verdict else 0,
        )
        for role in Role
        if (before := getattr(status, role))
    }
    return msgspec.structs.replace(status, **roles)


def _unfinished(status: PaddleJobStatus, reason: str, ended: datetime) -> PaddleJobStatus:
    """Return the status of a run that ended before its job did."""
    values = {"Running": "False", "Failed": "True"}
    conditions = [
        msgspec.structs.replace(each, status=values[each.type], reason=reason, last_transition_time=ended)
        if each.type in values
        else each
        for each in status.conditions
    ]
    return msgspec.structs.replace(
        status,
        phase=Phase.FAILED,
        reason=reason,
        message=UNFINISHED[reason],
        completion_time=ended,
        conditions=conditions,
    )


class RunEvent(View, frozen=True):
    """An event of a run, as its runner records it."""

    type: str = ""
    reason: str = ""
    message: str = ""
    time: datetime | None = None


def without_deletion(pod: Pod) -> Pod:
    """Return a pod of a run that is over without its deletion time: it is not Terminating."""
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=None)
    )


def manifest_of(state: PaddleJob) -> JsonObject:
    body: JsonObject = msgspec.to_builtins(state)
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, **body}
