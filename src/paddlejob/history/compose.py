"""Builds the parts of a record from a job, its pods and its status, and collects later changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from paddlejob.api.meta import ObjectMeta
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Failure, PaddleJob, PaddleJobStatus, Phase, Recovery
from paddlejob.core.pod_set import (
    ObservedPod,
    PodState,
    ending_of,
    observe_pod,
    replica_of,
    training_container_name,
)
from paddlejob.history.environment import changes, redact
from paddlejob.history.record import (
    DELETED,
    MAX_PHASES,
    MAX_POINTS,
    AttemptRecord,
    PhaseEntry,
    Point,
    RankEnd,
    Record,
    Summary,
    thin_curve,
)
from paddlejob.text import one_line
from paddlejob.training.findings import Hang
from paddlejob.training.goodput import goodput_at

MAX_RANKS = 1000
"""Maximum number of ranks of an attempt; further ranks are only counted."""
TEXT_BYTES = 192 * 1024
"""Maximum text of all ranks of an attempt, shared equally."""
MAX_TEXT, MIN_TEXT = 16 * 1024, 160
CUT_MARGIN = 256
PHASE_MESSAGE_LENGTH = 300


def summary_of(job: PaddleJob, *, deleted_at: datetime | None = None) -> Summary:
    """Return the summary of a job in its current state, or its state at its deletion."""
    status, metadata = job.status, job.metadata
    gone = deleted_at is not None and not status.phase.is_terminal
    was = status.phase or Phase.PENDING
    deletion = "deleted" if was is Phase.TERMINATING else f"deleted while it was {was}"
    return Summary(
        name=job.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        mode=status.mode,
        result=DELETED if gone else str(was),
        reason=DELETED if gone else status.reason,
        message=deletion if gone else one_line(status.message),
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
    """Return the record of an attempt that a new status ends, by a result or by a new attempt."""
    kept, more = _limit_ranks(list(ranks))
    old = before.status
    return AttemptRecord(
        attempt=old.attempt,
        result=str(after.phase),
        reason=after.reason,
        message=one_line(after.message),
        began=old.attempt_time or before.metadata.creation_timestamp,
        ended=after.completion_time or now,
        failure=failure_of_attempt(after.last_failure, old.attempt),
        recovery=_recovery_of_attempt(old),
        ranks=kept,
        more_ranks=more,
    )


def failure_of_attempt(failure: Failure | None, attempt: int) -> Failure | None:
    """Return the failure if it belongs to the attempt; a status keeps failures of earlier attempts."""
    return failure if failure is not None and failure.attempt == attempt else None


def _recovery_of_attempt(status: PaddleJobStatus) -> Recovery | None:
    """Return the restart that began the current attempt."""
    last = status.last_recovery
    return last if last is not None and last.attempt == status.attempt else None


def reconstruct_attempt(job: PaddleJob, *, deleted_at: datetime | None = None) -> AttemptRecord:
    """Reconstruct the record of an attempt from the status alone, if its end was not recorded."""
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
        recovery=_recovery_of_attempt(status),
    )


def reconstruct_job(summary: Summary) -> PaddleJob:
    """Reconstruct a job from its summary, if it was deleted while no operator was running."""
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
    """Return the ended pods of the current attempt, servers first, in order of rank.

    If the job hangs, running pods are included: their stacks show the cause.
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


def sort_by_failure(members: list[ObservedPod], failure: Failure | None) -> list[ObservedPod]:
    """Sort pods: the one that failed first, other failed pods, the rest."""
    name = failure.pod if failure else ""
    return sorted(
        members, key=lambda each: (each.pod.metadata.name != name, each.state is not PodState.FAILED)
    )


def stacks_by_pod(hang: Hang | None) -> dict[str, str]:
    """Return the stacks of a hang by pod name."""
    found: dict[str, str] = {}
    for name, dump in hang.stacks if hang else ():
        pod = name.partition(" ")[0]
        found[pod] = f"{found.get(pod, '')}\n\nstack of {name}:\n{dump.strip()}"
    return found


def rank_end(member: ObservedPod, log: str | None = None, stack: str = "") -> RankEnd:
    """Return how a rank ended, with the end of its log and its stack, if available."""
    ending, status = ending_of(member), member.pod.status
    message = ending.message if ending and ending.message else status.message
    return RankEnd(
        rank=str(member.replica),
        state=str(member.state),
        exit_code=ending.exit_code if ending else 0,
        reason=status.reason or (ending.reason if ending else ""),
        node=member.pod.spec.node_name,
        time=ending.finished_at if ending else None,
        # Text is cut at the beginning, so that the stack is kept in preference to the log.
        text=((message if log is None else log).rstrip("\n") + stack).strip("\n")[-MAX_TEXT:],
        from_log=log is not None,
    )


def _limit_ranks(ranks: list[RankEnd]) -> tuple[tuple[RankEnd, ...], int]:
    """Limit the text: the first rank keeps MAX_TEXT, the others share the rest equally."""
    kept = ranks[:MAX_RANKS]
    room = max(MIN_TEXT, min(MAX_TEXT, (TEXT_BYTES - MAX_TEXT) // max(1, len(kept) - 1)))
    bounded = (_with_text(each, room if position else MAX_TEXT) for position, each in enumerate(kept))
    return tuple(bounded), len(ranks) - len(kept)


def _with_text(rank: RankEnd, room: int) -> RankEnd:
    # The margin keeps a credential's name at the cut together with its value, so that it is redacted.
    text = redact(rank.text[-room - CUT_MARGIN :])[-room:]
    return msgspec.structs.replace(rank, text=text)


def phase_entry(status: PaddleJobStatus, now: datetime) -> PhaseEntry:
    """Return the timeline entry of a status."""
    message = one_line(status.message, PHASE_MESSAGE_LENGTH)
    return PhaseEntry(now, str(status.phase), status.reason, message)


def point_of(status: PaddleJobStatus) -> Point | None:
    """Return the progress of a status as a point of the curve."""
    progress = status.progress
    if progress is None or progress.updated is None:
        return None
    time = int(progress.updated.timestamp())
    return Point(time, progress.epoch, progress.step, progress.loss, status.attempt)


class Track:
    """Changes of a job since its record was last written."""

    def __init__(self, job: PaddleJob, recorded: int, clock: float) -> None:
        self.job = job
        self.recorded = recorded
        """Attempts before this number are in the record or in `attempts`."""
        self.deleted_at: datetime | None = None
        self.ended_clock: float | None = None
        """When the job ended, by the monotonic clock."""
        self.attempts: list[tuple[AttemptRecord, dict[str, str]]] = []
        """Ended attempts with their environments."""
        self.timeline: list[PhaseEntry] = []
        self.curve: list[Point] = []
        self.sampled = 0
        """Time of the newest point, written or not."""
        self.environment: dict[str, str] = {}
        """Environment of the current attempt when the job started running."""
        self.saved_at = clock
        """When the record was last written, by the monotonic clock."""
        self.tries = 0
        self.reads_logs = False
        """Whether logs are being read, after which the end of an attempt is added."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended or was deleted."""
        return self.ended_clock is not None

    @property
    def summary(self) -> Summary:
        """Summary of the job."""
        return summary_of(self.job, deleted_at=self.deleted_at)

    @property
    def waiting_bytes(self) -> int:
        """Size of the unwritten text."""
        return sum(len(rank.text) for attempt, _ in self.attempts for rank in attempt.ranks)

    def update(self, job: PaddleJob) -> None:
        """Update the job."""
        # The record of a deleted job shows its last phase before the deletion.
        if job.status.phase is not Phase.TERMINATING:
            self.job = job

    def add_phase(self, status: PaddleJobStatus, now: datetime) -> None:
        """Add the phase to the timeline."""
        self.timeline.append(phase_entry(status, now))
        del self.timeline[1:-MAX_PHASES]

    def add_progress(self, status: PaddleJobStatus) -> None:
        """Add the progress to the curve if it is newer."""
        point = point_of(status)
        if point is not None and self.sampled < point.time:
            self.sampled = point.time
            self.curve = list(thin_curve((*self.curve, point), MAX_POINTS))

    def end_attempt(self, ended: AttemptRecord, environment: dict[str, str] | None = None) -> None:
        """Add an ended attempt."""
        self.attempts.append((ended, environment or {}))
        self.environment = {}

    def note_hang(self, found: AttemptRecord) -> None:
        """Add the stacks of the current attempt's ranks; the record of its end replaces them."""
        self.attempts.append((found, {}))

    def merge_into(self, kept: Record | None) -> Record:
        """Return the record with these changes merged in."""
        before = kept or Record(self.summary)
        attempts, environment = {each.attempt: each for each in before.attempts}, before.environment
        for ended, own in self.attempts:
            known = attempts.get(ended.attempt)
            if known is None or known.result == Phase.RUNNING:
                changed = changes(environment, own) if environment and own else ()
                ranks = ended.ranks or (known.ranks if known else ())
                attempts[ended.attempt] = msgspec.structs.replace(ended, changes=changed, ranks=ranks)
                environment = own or environment
        # Some entries may be stored already, if the response to an earlier write was lost.
        entries = (each for each in self.timeline if each not in before.timeline)
        last = before.curve[-1].time if before.curve else 0
        return msgspec.structs.replace(
            before,
            summary=self.summary,
            attempts=tuple(attempts.values()),
            timeline=(*before.timeline, *entries),
            curve=(*before.curve, *(each for each in self.curve if each.time > last)),
            environment=environment,
        )
