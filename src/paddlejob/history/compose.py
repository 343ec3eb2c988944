"""Makes the record of a job from what a shell sees of it. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Failure, PaddleJob, PaddleJobStatus, Phase, Role
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
from paddlejob.history.record import DELETED, AttemptRecord, Change, PhaseEntry, Point, RankEnd, Summary

MAX_RANKS = 1000
"""How many ranks of an attempt are kept; the others are only counted."""
TEXT_BYTES = 192 * 1024
"""So much text of all ranks of an attempt is kept, shared equally."""
MAX_TEXT, MIN_TEXT = 16 * 1024, 160
MAX_VALUES = 256
"""How many values of the environment are kept, each of at most VALUE_LENGTH characters."""
VALUE_LENGTH = 200
PHASE_MESSAGE_LENGTH = 300
MAX_DEPTH = 16
NAMED_NODES = 64
"""The nodes of so many pods are part of the environment."""

_SECRET = re.compile(r"token|pass|pwd|secret|credential|key|auth|dsn", re.IGNORECASE)
"""What the name of a variable has whose value is not shown."""
_NAMES = "token|password|passwd|passphrase|pwd|secret|credentials?|key|auth|authorization|dsn"
_SECRET_FLAG = re.compile(rf"^-.*(?:{_NAMES})$", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"""((?:{_NAMES})["']?(?:\s*[=:]\s*|\s+)(?:(?:bearer|basic)\s+)?)("[^"]*"|'[^']*'|[^\s"']+)""",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^/@\s:]*:)([^/@\s]+)(?=@)")
_PRINTED = re.compile(r"\.(?:env|args|command)\.")
READ_LENGTH = 2 * VALUE_LENGTH
"""So much of a value is searched for secrets before it is shortened to VALUE_LENGTH."""


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
        # What is too long is shortened from the beginning, so the stack stays before the log does.
        text=((message if log is None else log).rstrip("\n") + stack).strip("\n")[-MAX_TEXT:],
        from_log=log is not None,
    )


def _within_bounds(ranks: list[RankEnd]) -> tuple[tuple[RankEnd, ...], int]:
    """Share the room for text: the first rank has its own, the others an equal part of the rest."""
    kept = ranks[:MAX_RANKS]
    if not kept:
        return (), 0
    room = max(MIN_TEXT, min(MAX_TEXT, (TEXT_BYTES - MAX_TEXT) // max(1, len(kept) - 1)))
    others = (msgspec.structs.replace(each, text=each.text[-room:]) for each in kept[1:])
    return (kept[0], *others), len(ranks) - len(kept)


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


def environment_of(job: PaddleJob, pods: Iterable[Pod]) -> dict[str, str]:
    """Return what pods are made from and where they run, by name, so that attempts can be compared.

    What looks like a secret is replaced by a hash, which shows that it changed: values of variables and flags
    with such names, and passwords in URLs.
    """
    values: dict[str, str] = {}
    for role, spec in job.spec.roles():
        values[f"{role}.replicas"] = str(_replicas(job, role))
        values.update(_flat(str(role), spec.template.get("spec")))
    for pod in sorted(pods, key=lambda each: each.metadata.name)[:NAMED_NODES]:
        if pod.spec.node_name and (replica := replica_of(job.name, pod)) is not None:
            values[f"{replica}.node"] = pod.spec.node_name
    return {name[:VALUE_LENGTH]: _shown(name, values[name]) for name in sorted(values)[:MAX_VALUES]}


def _replicas(job: PaddleJob, role: Role) -> int:
    """Return how many pods of a role the attempt ran with; the spec may say more by now."""
    size = job.status.world_size
    ran = size is not None and size.attempt == job.status.attempt
    return int(getattr(size, role.value)) if ran else job.spec.replicas(role)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """Return what differs between two environments."""
    changed = (name for name in sorted({*before, *after}) if before.get(name) != after.get(name))
    return tuple(Change(name, before.get(name, ""), after.get(name, "")) for name in changed)


class _Reference(str):
    """Where the value of a variable is, not the value."""

    __slots__ = ()


def _shown(name: str, value: str) -> str:
    if ".env." in name and _SECRET.search(name.rpartition(".env.")[2]) and value:
        return _hidden(value)
    if not isinstance(value, _Reference) and _PRINTED.search(name):
        value = _without_secrets(value[:READ_LENGTH])
    return value if len(value) <= VALUE_LENGTH else f"{value[: VALUE_LENGTH - 3]}..."


def _hidden(value: str) -> str:
    return f"(hidden, sha256 {hashlib.sha256(value.encode()).hexdigest()[:8]})"


def _without_secrets(text: str) -> str:
    found = _IN_URL.sub(lambda match: match[1] + _hidden(match[2]), text)
    return _ASSIGNED.sub(lambda match: match[1] + _hidden(match[2]), found)


def _arguments(path: str, arguments: list[object]) -> Iterator[tuple[str, str]]:
    """Yield the words of a command; the one after a flag that asks for a secret is hidden."""
    before = ""
    for position, each in enumerate(arguments):
        word = each if isinstance(each, str) else ""
        yield f"{path}.{position}", _hidden(word) if _SECRET_FLAG.search(before) else word
        before = word if len(word) <= VALUE_LENGTH else ""


def _flat(path: str, value: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the leaves of a template by path; items of lists are named by their name, if they have one.

    What is nested more deeply than anything in a pod is left out.
    """
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(f"{path}.{key}", each, depth + 1)
    elif isinstance(value, list) and path.endswith((".args", ".command")):
        yield from _arguments(path, value)
    elif isinstance(value, list):
        for position, each in enumerate(value):
            name = each.get("name", position) if isinstance(each, dict) else position
            if isinstance(each, dict) and path.endswith(".env"):
                yield f"{path}.{name}", _variable(each)
            else:
                yield from _flat(f"{path}.{name}", each, depth + 1)
    else:
        yield path, str(value)


def _variable(entry: JsonObject) -> str:
    if "valueFrom" in entry:
        return _Reference(msgspec.json.encode(entry["valueFrom"]).decode())
    return str(entry.get("value", ""))
