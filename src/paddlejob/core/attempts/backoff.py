"""Delays before the pods of a job are created again, longer after each consecutive failure.

Every new attempt is delayed, for any cause: counted and uncounted failures, deleted pods, changed addresses.
Only the first restart in a row starts immediately, unless a node is suspect. This bounds the number of writes
for any failure.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, RestartPolicy, Role
from paddlejob.core.actions import Action, Create, Delete, PatchGroup, ReplaceConfig, Stages
from paddlejob.training import steps

PROGRESS_SECONDS = 600.0
"""A job that was Running for this long has made progress: the count of consecutive restarts begins again.

The kubelet resets the back-off of a container after the same time.
"""

NEW_STEP_SECONDS = 60.0
"""The same for a job with a new step; a program that only claims new steps is still delayed."""

EARLY_RESTARTS = 5
"""How many consecutive restarts may be as quick as the policy allows and may remain uncounted."""

MIN_SECONDS = 60.0
"""Minimum delay of later restarts, even if the policy allows less."""

EARLY_ROUNDS = 5
"""Number of rounds of writes that an attempt may make without a delay."""

MAX_ROUND_SECONDS = 120.0
"""Maximum delay of a round: an obstacle such as a quota may disappear at any time."""

MAX_CLOCK_STEP_SECONDS = 60.0
"""How far time synchronization may set the clock back without an effect on a delay."""


def restarts_in_a_row(status: PaddleJobStatus, now: datetime) -> int:
    """Return the number of restarts since the job last made progress: a new step, or enough running time."""
    enough = NEW_STEP_SECONDS if steps.has_advanced(status) else PROGRESS_SECONDS
    for condition in status.conditions:
        since = condition.last_transition_time
        if condition.type == Phase.RUNNING and condition.status == "True" and since is not None:
            return 0 if (now - since).total_seconds() >= enough else status.consecutive_restarts
    return status.consecutive_restarts


def progress_limit(job: PaddleJob) -> int | None:
    """Return the limit of restarts without a new step, None if only their total number is limited."""
    return job.spec.restart_policy.no_progress_limit if steps.knows_steps(job.status) else None


def has_restarts_left(job: PaddleJob) -> bool:
    """Return whether another counted failure would restart the job instead of ending it."""
    if limit := progress_limit(job):
        return not steps.is_stuck(job.status, limit)
    return job.status.restarts < job.spec.backoff_limit


def restarts_each(in_a_row: int, job: PaddleJob, *, all_pods: bool) -> int:
    """Return the consecutive restarts of each unit: the whole job, or on average each worker."""
    return in_a_row if all_pods else math.ceil(in_a_row / max(1, job.spec.replicas(Role.WORKER)))


def delay_seconds(policy: RestartPolicy, in_a_row: int, *, first_is_immediate: bool) -> float:
    """Return the delay of the latest of `in_a_row` consecutive restarts."""
    if in_a_row <= 1 and first_is_immediate:
        return 0.0
    delay = min(policy.max_delay_seconds, policy.delay_seconds * 2.0 ** min(in_a_row - 1, 30))
    return max(delay, MIN_SECONDS) if in_a_row > EARLY_RESTARTS else delay


def is_round(stages: Stages) -> bool:
    """Return whether the stages create or change objects, which others may undo.

    An attempt has a few such rounds: its PodGroup, its pods, its ConfigMap, its standby pods.
    """
    return any(
        isinstance(action, Create | ReplaceConfig | PatchGroup) for stage in stages for action in stage
    )


def removals(stages: Stages) -> Stages:
    """Return the actions of a delayed round that do not have to wait."""
    kept = (tuple(action for action in stage if _releases(action)) for stage in stages)
    return tuple(stage for stage in kept if stage)


def _releases(action: Action) -> bool:
    """Return whether the action only releases something: deletes an object or gives back reserved quota."""
    gives_quota = isinstance(action, PatchGroup) and "admission" in action.changes
    return gives_quota or isinstance(action, Delete)


def add_round(status: PaddleJobStatus, job: PaddleJob, now: datetime) -> PaddleJobStatus:
    """Record a round in a new status of the job; an edit of the spec resets the count."""
    is_edited = job.status.observed_generation != job.metadata.generation
    rounds = 1 if is_edited else job.status.rounds + 1
    late = rounds - EARLY_ROUNDS
    delay = delay_seconds(job.spec.restart_policy, late + 1, first_is_immediate=False) if late >= 0 else 0.0
    return change_status(status, rounds=rounds, retry_time=end_of_delay(now, min(MAX_ROUND_SECONDS, delay)))


def end_of_delay(now: datetime, seconds: float) -> datetime | None:
    """Return when a delay ends, None if it is zero."""
    return now + timedelta(seconds=seconds) if seconds else None


def seconds_until_retry(job: PaddleJob, now: datetime) -> float:
    """Return the seconds until pods may be created.

    A retry time well beyond the longest delay was written before the clock was set back, and is ignored.
    """
    if job.status.retry_time is None:
        return 0.0
    left = (job.status.retry_time - now).total_seconds()
    longest = max(job.spec.restart_policy.max_delay_seconds, MIN_SECONDS, MAX_ROUND_SECONDS)
    return left if 0.0 < left <= longest + MAX_CLOCK_STEP_SECONDS else 0.0
