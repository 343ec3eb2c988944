"""Delays before the pods of a job are created again: longer after each failure in a row.

Every new attempt is delayed, for any cause: counted and uncounted failures, deleted pods, changed addresses.
Only the first restart in a row that is not the program's fault starts immediately. So no failure makes the
operator write without end.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, RestartPolicy, Role
from paddlejob.core.actions import Action, Create, Delete, PatchGroup, ReplaceConfig, Stages
from paddlejob.core.attempts import advance

PROGRESS_SECONDS = 600.0
"""A job that was Running for this long has made progress, and its next restart is the first in a row again.

The kubelet forgets the crashes of a container after the same time.
"""

NEW_STEP_SECONDS = 60.0
"""The same with a new step: enough that a program which only says so cannot be restarted without delay."""

EARLY_RESTARTS = 5
"""How many consecutive restarts may be as quick as the policy allows and may go uncounted."""

LEAST_SECONDS = 60.0
"""What later ones wait at least, where the policy allows less."""

EARLY_ROUNDS = 5
"""How many rounds of writes an attempt may make without a delay."""

MAX_ROUND_SECONDS = 120.0
"""What the next round waits at most: what stood in the way may be gone any time, such as a quota."""

MAX_CLOCK_STEP_SECONDS = 60.0
"""How far the clock may be set back without an effect on a delay: time synchronization does so."""


def restarts_in_a_row(status: PaddleJobStatus, now: datetime) -> int:
    """Return how often a job has been restarted since it last made progress: a new step, or enough time."""
    enough = NEW_STEP_SECONDS if advance.has_advanced(status) else PROGRESS_SECONDS
    for condition in status.conditions:
        since = condition.last_transition_time
        if condition.type == Phase.RUNNING and condition.status == "True" and since is not None:
            return 0 if (now - since).total_seconds() >= enough else status.consecutive_restarts
    return status.consecutive_restarts


def progress_limit(job: PaddleJob) -> int | None:
    """Return how many restarts without a new step end a job, None if their number alone is limited."""
    return job.spec.restart_policy.no_progress_limit if advance.knows_steps(job.status) else None


def has_restarts_left(job: PaddleJob) -> bool:
    """Return whether a failure that counts restarts the job: all such failures have one limit."""
    if limit := progress_limit(job):
        return not advance.is_stuck(job.status, limit)
    return job.status.restarts < job.spec.backoff_limit


def restarts_each(in_a_row: int, job: PaddleJob, *, all_pods: bool) -> int:
    """Return how often in a row each part of a job was restarted: all pods as one, or each worker alone."""
    return in_a_row if all_pods else math.ceil(in_a_row / max(1, job.spec.replicas(Role.WORKER)))


def delay_seconds(policy: RestartPolicy, in_a_row: int, *, first_at_once: bool) -> float:
    """Return how long the latest of so many restarts in a row waits."""
    if in_a_row <= 1 and first_at_once:
        return 0.0
    delay = min(policy.max_delay_seconds, policy.delay_seconds * 2.0 ** min(in_a_row - 1, 30))
    return max(delay, LEAST_SECONDS) if in_a_row > EARLY_RESTARTS else delay


def is_round(stages: Stages) -> bool:
    """Return whether something is created or changed that others may undo: then the next round waits.

    An attempt has a few such rounds: its PodGroup, its pods, its ConfigMap, pods that wait for a place.
    """
    return any(
        isinstance(action, Create | ReplaceConfig | PatchGroup) for stage in stages for action in stage
    )


def removals(stages: Stages) -> Stages:
    """Return what is done of a round that has to wait."""
    kept = (tuple(action for action in stage if _gives_back(action)) for stage in stages)
    return tuple(stage for stage in kept if stage)


def _gives_back(action: Action) -> bool:
    """Return whether an action only takes away: an object, or a reservation of quota that others wait for."""
    gives_quota = isinstance(action, PatchGroup) and "admission" in action.changes
    return gives_quota or isinstance(action, Delete)


def after_round(job: PaddleJob, now: datetime) -> dict[str, object]:
    """Return the changes of a status that a round is recorded by; who edits a job need not wait."""
    is_edited = job.status.observed_generation != job.metadata.generation
    rounds = 1 if is_edited else job.status.rounds + 1
    late = rounds - EARLY_ROUNDS
    delay = delay_seconds(job.spec.restart_policy, late + 1, first_at_once=False) if late >= 0 else 0.0
    return {"rounds": rounds, "retry_time": after(now, min(MAX_ROUND_SECONDS, delay))}


def after(now: datetime, seconds: float) -> datetime | None:
    """Return when a delay is over, None for none."""
    return now + timedelta(seconds=seconds) if seconds else None


def seconds_until_retry(job: PaddleJob, now: datetime) -> float:
    """Return the seconds until pods may be created.

    A time well beyond the longest delay was written before the clock was set back; it has passed.
    """
    if job.status.retry_time is None:
        return 0.0
    left = (job.status.retry_time - now).total_seconds()
    longest = max(job.spec.restart_policy.max_delay_seconds, LEAST_SECONDS, MAX_ROUND_SECONDS)
    return left if 0.0 < left <= longest + MAX_CLOCK_STEP_SECONDS else 0.0
