"""Records of finished jobs: stored on a cluster, or composed from runs on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import LONG_AGO
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Failure, PaddleJob, Role
from paddlejob.client import ranks
from paddlejob.client.errors import NoSuchJobError
from paddlejob.client.job import LATEST, JobEvent, phase_of
from paddlejob.core.pod_set import ObservedPod, Replica, pod_name, training_container_name
from paddlejob.history import compose
from paddlejob.history.environment import environment_of
from paddlejob.history.record import (
    MAX_POINTS,
    RECORD_KEY,
    AttemptRecord,
    Point,
    Record,
    StoredRecord,
    Summary,
    bound_record,
    object_key,
    summary_of_object,
    thin_curve,
    unpack,
)
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS
from paddlejob.local.store.history import History
from paddlejob.local.store.run_directory import RunDirectory
from paddlejob.training import log_lines as progress

if TYPE_CHECKING:
    from paddlejob.client.cluster import Cluster

PAGE_SIZE = 20
END_BYTES = 65536
WRITE_SECONDS = 6.0
"""Time after the end of a job in which the operator writes its record."""
LOOK_SECONDS = 1.0
_Identity = tuple[str, str]


async def cluster_history(
    cluster: Cluster, *, name: str = "", all_namespaces: bool = False
) -> tuple[Summary, ...]:
    """Return the summaries of all records and of the jobs without a record, newest first."""
    kept = await _kept(cluster, name=name, all_namespaces=all_namespaces)
    jobs = (job.state for job in await cluster.list(all_namespaces=all_namespaces))
    present = (compose.summary_of(job) for job in jobs if name in ("", job.name))
    return _newest_first((kept | {_identity(each): each for each in present}).values())


async def cluster_record(cluster: Cluster, name: str) -> Record:
    """Return the record of the newest job of a name, or the record of this name. Raises NoSuchJobError."""
    wanted = "" if name == LATEST else name.rpartition("-history-")[0] or name
    found = [
        each
        for each in await cluster_history(cluster, name=wanted)
        if name in (LATEST, each.name, object_key(each).name)
    ]
    if not found:
        raise NoSuchJobError(
            f"there is no PaddleJob {name} in namespace {cluster.namespace}, and no record of one; "
            "`kubectl pdj history` lists what there is"
        )
    summary = found[0]
    record = await _read(cluster.client, summary)
    try:
        job = await cluster.get(summary.name)
    except NoSuchJobError:
        return record or Record(summary)
    if job.state.metadata.uid != summary.uid:
        return record or Record(summary)
    return _with_job(record or Record(summary), job.state, await job.pods())


async def unknown_job(cluster: Cluster, name: str) -> NoSuchJobError:
    """Return the error for an unknown job, with its end if it was deleted, or with a similar name."""
    kept: Iterable[Summary] = ()
    known: list[str] = []
    # A user who may not list jobs still gets the error.
    with contextlib.suppress(errors.KubeError):
        kept = (await _kept(cluster, name=name, all_namespaces=False)).values()
    for newest in _newest_first(kept)[:1]:
        ending = ": ".join(filter(None, (newest.result, newest.message)))
        return NoSuchJobError(
            f"PaddleJob {name} in namespace {cluster.namespace} was deleted; its record says {ending}; "
            f"`kubectl pdj postmortem {name}` shows the rest"
        )
    with contextlib.suppress(errors.KubeError):
        known = [job.name for job in await cluster.list()]
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return NoSuchJobError(f"there is no PaddleJob {name} in namespace {cluster.namespace}{hint}")


async def _kept(cluster: Cluster, *, name: str, all_namespaces: bool) -> dict[_Identity, Summary]:
    """Return the summaries of records."""
    selector = f"{names.LABEL_HISTORY},{names.LABEL_JOB}={name}" if name else names.LABEL_HISTORY
    found: list[Summary | None] = []
    token = ""
    while True:
        page = await cluster.client.list(
            CONFIG_MAPS,
            None if all_namespaces else cluster.namespace,
            label_selector=selector,
            limit=PAGE_SIZE,
            continue_token=token,
            type=StoredRecord,
        )
        found += [summary_of_object(each.metadata) for each in page.items]
        token = page.metadata.continue_token
        if not token:
            return {_identity(each): each for each in found if each}


def _identity(summary: Summary) -> _Identity:
    """Return a key for the job of a summary. Users can forge a UID only in their own namespaces."""
    return summary.namespace, summary.uid


async def _read(client: Client, summary: Summary) -> Record | None:
    """Return the record of a summary; None if it does not exist or does not decode."""
    key = object_key(summary)
    try:
        stored = await client.get(CONFIG_MAPS, key.namespace, key.name, type=StoredRecord)
    except errors.NotFoundError:
        return None
    record = unpack(stored.binary_data.get(RECORD_KEY, b""))
    # The summary was checked against the name of the ConfigMap; the one inside could name another job.
    return record and msgspec.structs.replace(record, summary=summary)


class RecordedLog(NamedTuple):
    """The end of a log from the operator's record, and a sentence about the log of the deleted pod."""

    lines: tuple[str, ...]
    note: str


async def recorded_log(client: Client, job: PaddleJob, failure: Failure) -> RecordedLog:
    """Return the last lines of a failed pod that was deleted, or restarted in place."""
    rank = ranks.rank_of(job.name, failure.pod)
    is_in_place = job.status.process_attempt > max(job.status.base_attempt, failure.attempt)
    attempt = await recorded_attempt(client, job, failure.attempt)
    text = next((each.text for each in attempt.ranks if each.rank == rank), "") if attempt else ""
    if text:
        event = "was restarted in place" if is_in_place else "was deleted"
        note = f"pod {failure.pod} {event}; its last lines are from the operator's record"
        return RecordedLog(tuple(text.splitlines()), note)
    if is_in_place:
        return RecordedLog(
            (), f"kubectl pdj logs {job.name} --previous shows the last lines of {failure.pod}"
        )
    note = f"pod {failure.pod} was deleted with its log; spec.cleanPodPolicy: Never keeps failed pods"
    return RecordedLog((), note)


async def recorded_attempt(client: Client, job: PaddleJob, attempt: int) -> AttemptRecord | None:
    """Return an attempt of this job from the operator's record; None without one.

    Waits for the operator, which writes the record a few seconds after the end of the job.
    """
    summary = Summary(job.name, job.metadata.namespace, job.metadata.uid)
    while True:
        try:
            record = await _read(client, summary)
        except errors.KubeError:
            # The record only replaces a missing log, which the caller reports.
            return None
        known = record.attempts if record else ()
        found = next((each for each in reversed(known) if each.attempt == attempt), None)
        if found or not _is_record_due(job, client.server_now()):
            return found
        await asyncio.sleep(LOOK_SECONDS)


def _is_record_due(job: PaddleJob, now: datetime | None) -> bool:
    """Return whether the operator may still write the record of a job that has just ended."""
    ended = job.status.completion_time
    return ended is not None and now is not None and now - ended < timedelta(seconds=WRITE_SECONDS)


def _newest_first(summaries: Iterable[Summary]) -> tuple[Summary, ...]:
    return tuple(sorted(summaries, key=lambda each: (each.created or LONG_AGO, each.uid), reverse=True))


def _with_job(record: Record, job: PaddleJob, pods: list[Pod]) -> Record:
    """Add the last attempt of an existing job to its record."""
    members = compose.sort_by_failure(compose.ended_ranks(job, pods), job.status.last_failure)
    if members and job.status.attempt not in {each.attempt for each in record.attempts}:
        ranks = (compose.rank_end(each) for each in members)
        ended = compose.attempt_record(job, job.status, datetime.now(UTC), ranks)
        record = msgspec.structs.replace(record, attempts=(*record.attempts, ended))
    environment = record.environment or environment_of(job, pods, secrets.token_bytes(16))
    return msgspec.structs.replace(record, summary=compose.summary_of(job), environment=environment)


def local_summary(run: RunDirectory, state: PaddleJob) -> Summary:
    """Return the summary of a run, under the name of the run."""
    began, ended = (datetime.fromtimestamp(each, UTC) for each in (run.began, run.recorded))
    summary = compose.summary_of(state)
    return msgspec.structs.replace(
        summary,
        name=run.name,
        uid=run.name,
        result=phase_of(state),
        created=began,
        ended=summary.ended or (ended if summary.is_final else None),
    )


def local_record(run: RunDirectory, state: PaddleJob, pods: list[Pod], events: list[JobEvent]) -> Record:
    """Return the record of a run, from its logs and events."""
    job = msgspec.structs.replace(state, metadata=msgspec.structs.replace(state.metadata, name=run.job_name))
    members = compose.sort_by_failure(compose.ended_ranks(job, pods), job.status.last_failure)
    ranks = [compose.rank_end(each, _end_of_log(run, each)) for each in members]
    summary = local_summary(run, state)
    last = compose.attempt_record(job, job.status, summary.ended or datetime.now(UTC), ranks)
    return bound_record(
        Record(
            summary,
            attempts=(*_earlier_attempts(events), last),
            curve=_curve(run, job),
            environment=environment_of(job, pods, secrets.token_bytes(16)),
        )
    )


def _earlier_attempts(events: list[JobEvent]) -> Iterator[AttemptRecord]:
    """Yield the attempts in events such as `attempt 2: worker-1 exited with code 137`."""
    for event in events:
        head, _, message = event.message.partition(": ")
        word, _, number = head.partition(" ")
        if word == "attempt" and number.isascii() and number.isdecimal():
            yield AttemptRecord(int(number) - 1, event.reason, event.reason, message)


def _end_of_log(run: RunDirectory, member: ObservedPod) -> str | None:
    container = member.training.name if member.training else ""
    try:
        with run.log(member.pod.metadata.name, container).open("rb") as reader:
            reader.seek(max(0, reader.seek(0, 2) - END_BYTES))
            return reader.read().decode(errors="replace")
    except OSError:
        return None


def _curve(run: RunDirectory, job: PaddleJob) -> tuple[Point, ...]:
    """Return the loss curve from the log of worker 0, with at most one point per second."""
    worker = job.spec.worker
    if worker is None:
        return ()
    tracker, points = progress.Tracker(), []
    for piece in History(run, [pod_name(job.name, Replica(Role.WORKER, 0))]).read():
        if piece.lines.container != training_container_name(worker):
            continue
        for line in piece.lines.text.decode(errors="replace").splitlines():
            if tracker.feed(line, piece.time) and tracker.progress:
                current = tracker.progress
                loss = "" if current.loss is None else f"{current.loss:.4g}"
                points.append(Point(int(piece.time), current.epoch or 0, current.step or 0, loss))
        if len(points) > 2 * MAX_POINTS:
            points = list(thin_curve(tuple(points), MAX_POINTS))
    return tuple(points)
