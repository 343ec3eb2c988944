"""Makes the record of a job from what a shell sees of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from paddlejob.api.meta import ObjectMeta
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Failure, PaddleJob, PaddleJobStatus, Phase
from paddlejob.core.messages import one_line
from paddlejob.core.pod_set import (
    ObservedPod,
    PodState,
    ending_of,
    observe_pod,
    replica_of,
    training_container_name,
)
from paddlejob.core.policy.goodput import goodput_at
from paddlejob.core.recording.hangs import Hang
from paddlejob.history.record import DELETED, AttemptRecord, PhaseEntry, Point, RankEnd, Summary
from paddlejob.history.redaction import redact

MAX_RANKS = 1000
"""How many ranks of an attempt are kept; the others are only counted."""
TEXT_BYTES = 192 * 1024
"""So much text of all ranks of an attempt is kept, shared equally."""
MAX_TEXT, MIN_TEXT = 16 * 1024, 160
CUT_MARGIN = 256
PHASE_MESSAGE_LENGTH = 300


def summary_of(job: PaddleJob, *, deleted_at: datetime | None = None) -> Summary:
    """Return what a list shows of a job as it is now, or as it was when it was deleted."""
    status, metadata = job.status, job.metadata
    gone = deleted_at is not None and not status.phase.is_terminal
    was = status.phase or Phase.PENDING
    farewell = "deleted" if was is Phase.TERMINATING else f"deleted while it was {was}"
    return Summary(
        name=job.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        mode=status.mode,
        result=DELETED if gone else str(was),
        reason=DELETED if gone else status.reason,
        message=farewell if gone else one_line(status.message),
        created=metadata.creation_timestamp,
        started=status.start_time,
        ended=deleted_at if gone else status.completion_time,
        attempt=status.attempt,
        restarts=status.restarts,
        failure=status.last_failure,
        goodput=goodput_at(job, deleted_at) if gone and deleted_at else status.goodput,
    )


def attempt_record(
    before: PaddleJob, after: PaddleJobStatus, now: datetime, ranks: Iterable[RankEnd] = ()
) -> AttemptRecord:
    """Return the record of the attempt that a new status ends: by a verdict, or by the attempt after it."""
    kept, more = _within_bounds(list(ranks))
    old = before.status
    return AttemptRecord(
        attempt=old.attempt,
        result=str(after.phase),
        reason=after.reason,
        message=one_line(after.message),
        began=old.attempt_time or before.metadata.creation_timestamp,
        ended=after.completion_time or now,
        failure=failure_of_attempt(after.last_failure, old.attempt),
        ranks=kept,
        more_ranks=more,
    )


def failure_of_attempt(failure: Failure | None, attempt: int) -> Failure | None:
    """Return a failure that belongs to an attempt; the last of an earlier one stays in the status."""
    return failure if failure is not None and failure.attempt == attempt else None


def remembered_attempt(job: PaddleJob, *, deleted_at: datetime | None = None) -> AttemptRecord:
    """Return what the status alone still tells of an attempt whose end nobody has recorded."""
    status, failure = job.status, job.status.last_failure
    if deleted_at is None and not status.phase.is_terminal:
        attempt = failure.attempt if failure else max(0, status.attempt - 1)
        message = failure.message if failure else ""
        return AttemptRecord(
            attempt, str(Phase.RESTARTING), message=message, ended=status.attempt_time, failure=failure
        )
    summary = summary_of(job, deleted_at=deleted_at)
    return AttemptRecord(
        status.attempt,
        summary.result,
        summary.reason,
        summary.message,
        began=status.attempt_time or job.metadata.creation_timestamp,
        ended=summary.ended,
        failure=failure_of_attempt(failure, status.attempt),
    )


def last_seen(summary: Summary) -> PaddleJob:
    """Return what is still known of a job that was deleted while no operator looked."""
    metadata = ObjectMeta(summary.name, summary.namespace, summary.uid, creation_timestamp=summary.created)
    status = PaddleJobStatus(
        phase=Phase(summary.result),
        mode=summary.mode,
        start_time=summary.started,
        attempt=summary.attempt,
        restarts=summary.restarts,
        last_failure=summary.failure,
    )
    return PaddleJob(metadata, status=status)


def ended_ranks(job: PaddleJob, pods: Iterable[Pod], *, hangs: bool = False) -> list[ObservedPod]:
    """Return the pods of the present attempt that have ended, servers first, in order of rank.

    Of a job that hangs, those that run tell why it is ended, and are returned too.
    """
    ended = {PodState.FAILED, PodState.SUCCEEDED, *((PodState.RUNNING,) if hangs else ())}
    training = {role: training_container_name(spec) for role, spec in job.spec.roles()}
    found = []
    for pod in pods:
        if (replica := replica_of(job.name, pod)) is not None:
            member = observe_pod(replica, pod, training.get(replica.role, ""))
            is_present = job.status.base_attempt <= member.attempt <= job.status.attempt
            if is_present and member.state in ended:
                found.append(member)
    order = list(training)
    return sorted(
        found,
        key=lambda each: (
            order.index(each.replica.role) if each.replica.role in order else len(order),
            each.replica.index,
        ),
    )


def first_failed_first(members: list[ObservedPod], failure: Failure | None) -> list[ObservedPod]:
    """Put the pod that failed first before the others, and those that failed before those that did not."""
    name = failure.pod if failure else ""
    return sorted(
        members, key=lambda each: (each.pod.metadata.name != name, each.state is not PodState.FAILED)
    )


def stacks_by_pod(hang: Hang | None) -> dict[str, str]:
    """Return where the processes of each pod were when their job hung."""
    found: dict[str, str] = {}
    for name, dump in hang.stacks if hang else ():
        pod = name.partition(" ")[0]
        found[pod] = f"{found.get(pod, '')}\n\nstack of {name}:\n{dump.strip()}"
    return found


def rank_end(member: ObservedPod, log: str | None = None, stack: str = "") -> RankEnd:
    """Return how a rank ended, with the end of its log where that was read, and where it was, if it hung."""
    ending, status = ending_of(member), member.pod.status
    message = ending.message if ending and ending.message else status.message
    return RankEnd(
        rank=str(member.replica),
        state=str(member.state),
        exit_code=ending.exit_code if ending else 0,
        reason=status.reason or (ending.reason if ending else ""),
        node=member.pod.spec.node_name,
        time=ending.finished_at if ending else None,
        # The beginning is cut off, so that the stack is kept rather than the log.
        text=((message if log is None else log).rstrip("\n") + stack).strip("\n")[-MAX_TEXT:],
        from_log=log is not None,
    )


def _within_bounds(ranks: list[RankEnd]) -> tuple[tuple[RankEnd, ...], int]:
    """Share the room for text: the first rank keeps all of its text, the others an equal part of the rest."""
    kept = ranks[:MAX_RANKS]
    room = max(MIN_TEXT, min(MAX_TEXT, (TEXT_BYTES - MAX_TEXT) // max(1, len(kept) - 1)))
    bounded = (_with_text(each, room if position else MAX_TEXT) for position, each in enumerate(kept))
    return tuple(bounded), len(ranks) - len(kept)


def _with_text(rank: RankEnd, room: int) -> RankEnd:
    # The margin keeps the name of a credential at the cut together with its value.
    text = redact(rank.text[-room - CUT_MARGIN :])[-room:]
    return msgspec.structs.replace(rank, text=text)


def phase_entry(status: PaddleJobStatus, now: datetime) -> PhaseEntry:
    """Return an entry of the timeline."""
    message = one_line(status.message, PHASE_MESSAGE_LENGTH)
    return PhaseEntry(now, str(status.phase), status.reason, message)


def point_of(status: PaddleJobStatus) -> Point | None:
    """Return how far a job is as a point of its curve."""
    progress = status.progress
    if progress is None or progress.updated is None:
        return None
    time = int(progress.updated.timestamp())
    return Point(time, progress.epoch, progress.step, progress.loss, status.attempt)
