"""The ledger of a recovery: the time from a failure to the next new step, in parts.

`paddlejob.api.training.Recovery` defines the parts. The status that begins an attempt has the kind and the
first part. The others are added to the first progress that is written in the attempt, and to the first
progress with a new step, so that a ledger needs no write of its own. The operator keeps moments in memory:
after it was replaced, the parts between them are absent, and the total is in whole seconds, from the status.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJobStatus, Phase, Recovery, RecoveryKind
from paddlejob.core.actions import Milestone, Plan, ReplaceConfig
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.observed import Observed
from paddlejob.training.findings import Hang
from paddlejob.training.reports import Startup

DIGITS = 3
"""Digits of a second in the status."""
CLOCK_SECONDS = 2.0
"""Resolution of the times in the status and of the API server's clock."""


class Moments(msgspec.Struct, frozen=True):
    """When an attempt passed its milestones, in seconds of one monotonic clock."""

    attempt: int
    seen: float
    """The operator knew of the failure."""
    recorded: float
    """The attempt was on record."""
    stopped: float | None = None
    placed: float | None = None

    def passed(self, latest: Milestone, now: float) -> Moments:
        """Add the moments of the milestones that were passed by now."""
        stopped, placed = self.stopped, self.placed
        if stopped is None and latest >= Milestone.STOPPED:
            stopped = now
        if placed is None and latest >= Milestone.PLACED:
            placed = now
        return msgspec.structs.replace(self, stopped=stopped, placed=placed)


class FirstSteps(msgspec.Struct, frozen=True):
    """The first steps of an attempt, from its reports, by the same clock."""

    attempt: int
    step: int
    at: float
    """When `step`, the latest one, was made or reported."""
    startup: Startup | None = None
    reported: float = 0.0
    """When `startup` was reported."""
    new_step: float | None = None
    """When the first step was made that no earlier attempt had made."""

    @property
    def began(self) -> float | None:
        """When the program began."""
        return self.reported - self.startup.age_seconds if self.startup else None

    @property
    def stepped(self) -> float | None:
        """When the program made its first step; None if the parts that it reports exceed its age."""
        if self.startup is None or self.startup.load_seconds is None:
            return None
        spent = self.startup.seconds
        return self.reported - self.startup.age_seconds + spent if spent <= self.startup.age_seconds else None


def begin(job: Observed, new: NewAttempt, attempt: int) -> Recovery | None:
    """Return the ledger of a restart of all programs as far as it is known when the restart begins."""
    if new.phase is not Phase.RESTARTING or not (new.all_pods or new.in_place):
        return job.status.last_recovery
    kind = RecoveryKind.RECREATE
    if new.in_place:
        kind = RecoveryKind.MIXED if new.to_delete or job.pods.missing else RecoveryKind.IN_PLACE
    return Recovery(attempt, kind, detect_seconds=_rounded(_detected(job, new)))


def _detected(job: Observed, new: NewAttempt) -> float | None:
    """Return the time from the failure until it was known, None if it was not measured."""
    snapshot, hang = job.snapshot, job.snapshot.finding(Hang)
    if new.reason == Reason.HUNG and hang is not None:
        return hang.seconds
    name = new.failure.pod if new.failure else ""
    pod = next((each for each in snapshot.pods if each.metadata.name == name), None)
    if pod is None:
        return None
    process = snapshot.process(pod)
    if process is not None and process.is_down:
        return process.detect_seconds
    return snapshot.state_seconds.get(pod.metadata.uid)


def milestone(job: Observed, decided: Plan) -> Milestone:
    """Return how far the restart of a job is once a plan is carried out."""
    status, pods = job.status, job.pods
    if status.phase is not Phase.RESTARTING or is_complete(status):
        return Milestone.RECORDED
    if pods.outdated or any(map(job.snapshot.may_run_outdated, job.snapshot.pods)):
        return Milestone.RECORDED
    has_addresses = not pods.missing and all(member.pod.status.pod_ip for member in pods.active)
    may_start = (
        status.process_attempt <= status.base_attempt
        or job.snapshot.published_attempt >= status.process_attempt
        or any(isinstance(action, ReplaceConfig) for stage in decided.stages for action in stage)
    )
    return Milestone.PLACED if has_addresses and may_start else Milestone.STOPPED


def add_steps(
    known: FirstSteps | None,
    attempt: int,
    step: int,
    now: float,
    startup: Startup | None,
    *,
    mark: int | None,
) -> FirstSteps:
    """Add a report; `mark` is the last repeated step, None while steps are repeated.

    A program reports its first step immediately. The moment of a later one lies between two reports.
    """
    at = now
    if known is None or known.attempt != attempt:
        first = FirstSteps(attempt, step, now, startup, now)
        at = first.stepped or now
        known = msgspec.structs.replace(first, at=at)
    elif known.startup is None and startup is not None:
        known = msgspec.structs.replace(known, startup=startup, reported=now)
    new_step = known.new_step
    if new_step is None and mark is not None:
        share = (mark + 1 - known.step) / (step - known.step) if step > known.step else 0.0
        new_step = known.at + max(0.0, min(1.0, share)) * (at - known.at)
    return msgspec.structs.replace(known, step=step, at=at, new_step=new_step)


def fill_in(recovery: Recovery, moments: Moments | None, first: FirstSteps, attempt_began: float) -> Recovery:
    """Return a ledger with the parts that are known by now; its own parts stay as they are.

    `attempt_began` is when the attempt began by its status, to the second, for an operator that did not begin
    it. A program that claims to be older than its attempt is not believed.
    """
    if first.attempt != recovery.attempt:
        return recovery
    measured = moments if moments is not None and moments.attempt == recovery.attempt else None
    earliest = measured.recorded if measured else attempt_began - CLOCK_SECONDS
    if first.began is not None and first.began < earliest:
        first = msgspec.structs.replace(first, startup=None)
    found: dict[str, float | None] = dict(_program_parts(first))
    if measured is not None:
        found |= _operator_parts(measured, first.began)
    if first.new_step is not None:
        if first.stepped is not None:
            found["repeat"] = first.new_step - first.stepped
        detected = recovery.detect_seconds or 0.0
        if measured is not None:
            found["total"] = max(first.new_step, measured.recorded) - measured.seen + detected
        elif math.isfinite(attempt_began):
            found["total"] = round(max(0.0, first.new_step - attempt_began) + detected)
    known = {f"{name}_seconds": _rounded(seconds) for name, seconds in found.items()}
    fresh = {name: seconds for name, seconds in known.items() if getattr(recovery, name) is None}
    return msgspec.structs.replace(recovery, **fresh)


def _program_parts(first: FirstSteps) -> Iterator[tuple[str, float | None]]:
    startup = first.startup
    if startup is not None and startup.seconds <= startup.age_seconds:
        yield "import", startup.import_seconds
        yield "join", startup.join_seconds
        yield "load", startup.load_seconds


def _operator_parts(moments: Moments, began: float | None) -> dict[str, float | None]:
    """Return the parts up to the start of the program of worker 0, which may begin before all others can."""
    placed = moments.placed if began is None or moments.placed is None else min(moments.placed, began)
    stopped = moments.stopped if placed is None or moments.stopped is None else min(moments.stopped, placed)
    return {
        "decide": moments.recorded - moments.seen,
        "stop": _between(moments.recorded, stopped),
        "place": _between(stopped, placed),
        "start": _between(placed, began),
    }


def _between(since: float | None, until: float | None) -> float | None:
    return None if since is None or until is None else max(0.0, until - since)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(max(0.0, seconds), DIGITS)


def is_complete(status: PaddleJobStatus) -> bool:
    """Return whether the ledger of the last recovery has its total."""
    return status.last_recovery is None or status.last_recovery.total_seconds is not None
