"""Detects hangs and stragglers from reports, and requests the stacks of hung ranks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase, Role
from paddlejob.core.actions import Event, EventType
from paddlejob.core.pod_set import has_run, is_spare, replica_of
from paddlejob.operator.reports.rank_registry import Rank, RankRegistry
from paddlejob.operator.state import ClusterState
from paddlejob.training import stacks
from paddlejob.training.findings import Awaited, Hang, Slowdown
from paddlejob.training.hangs import HangLimits, find_awaited, find_hang
from paddlejob.training.stragglers import Straggler, find_stragglers

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""A rank counts as silent after this time, unless its reporting interval is longer."""
MAX_JOBS_ASKED = 64
"""Maximum number of hung jobs with stacks, which are kept in memory until the jobs progress."""
LOGGED_STACKS = 5
STACKS_SECONDS = 15.0
"""Time after its next report in which a rank may send its stacks."""

RecordEvent = Callable[[PaddleJob, Event], None]


class Watchdog:
    """Finds hangs and stragglers for the reconciler.

    A new process learns the pauses of jobs again. A hang in a job's status lasts until the job progresses.
    """

    def __init__(
        self,
        state: ClusterState,
        registry: RankRegistry,
        record_event: RecordEvent,
        limits: HangLimits,
        *,
        straggler_seconds: float,
    ) -> None:
        self._state = state
        self._registry = registry
        self._record_event = record_event
        self._limits = limits
        self._requested_at: dict[ObjectKey, float] = {}
        """Jobs with requested stacks, and the time of the first request."""
        self._hung: dict[ObjectKey, Hang] = {}
        self._straggler_seconds = straggler_seconds
        self._slow: dict[ObjectKey, dict[str, float]] = {}
        """Reported stragglers by job, and when each was found."""

    def wants_stacks(self, job: ObjectKey) -> bool:
        """Return whether the ranks of a job must send their stacks."""
        return job in self._requested_at

    async def run(self) -> None:
        """Check all jobs periodically until cancelled."""
        self._state.watches_hangs = True
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._registry.prune(
                lambda key: {pod.metadata.uid for pod in self._pods(key)}, asyncio.get_running_loop().time()
            )
            for key in {*self._registry.jobs(), *self._hung, *self._requested_at, *self._slow}:
                try:
                    self._check(key, asyncio.get_running_loop().time())
                except Exception:
                    log.exception("%s: bug in the operator; the job is checked again later", key)

    def _check(self, key: ObjectKey, now: float) -> None:
        job, pods = self._state.job(key), self._pods(key)
        first_attempt = job.status.first_process_attempt if job else 0
        ranks = self._registry.ranks(key, {pod.metadata.uid for pod in pods}, first_attempt)
        runs = job is not None and job.status.phase is Phase.RUNNING
        hang = self._find(job, pods, ranks, now) if job and runs else None
        if job is not None:
            self._check_stragglers(job, ranks if runs else [], now)
            self._check_awaited(job, ranks, now)
        else:
            self._slow.pop(key, None)
        known = self._state.finding(job, Hang) if job else None
        if hang is None or job is None:
            self._requested_at.pop(key, None)
            was_reported = self._hung.pop(key, None) is not None
            if was_reported or (known and any(rank.pace.moved_at > rank.pace.since for rank in ranks)):
                self._state.note(key, Hang, None)
        elif _is_new(hang, known) and self._has_stacks(key, ranks, now):
            self._hung[key] = hang
            self._requested_at.pop(key, None)
            self._report_hang(job, hang)

    def _pods(self, key: ObjectKey) -> tuple[Pod, ...]:
        job = self._state.job(key)
        return self._state.pods.find("owner", job.metadata.uid) if job else ()

    def _check_stragglers(self, job: PaddleJob, ranks: list[Rank], now: float) -> None:
        """Report a rank that was slow for a whole window, once all ranks have been measured."""
        key, known = job.metadata.key, self._slow.pop(job.metadata.key, {})
        timed = [(rank.pace.place, rank.timer.last) for rank in ranks if rank.timer.last is not None]
        found = find_stragglers(timed, known) if len(timed) == len(ranks) else []
        for straggler in found:
            if straggler.name not in known:
                self._record_event(job, Event(EventType.WARNING, Reason.STRAGGLER, str(straggler)))
        if found:
            self._slow[key] = {each.name: known.get(each.name, now) for each in found}
        before, slowdown = self._state.finding(job, Slowdown), self._slowdown(job, found, now)
        if slowdown != before:
            self._state.note(key, Slowdown, slowdown)

    def _check_awaited(self, job: PaddleJob, ranks: list[Rank], now: float) -> None:
        """Note the rank that all others wait for; it is kept after they end, until new ranks train."""
        silent_seconds = 3 * self._registry.next_seconds(job.metadata.namespace)
        found = find_awaited((rank.pace for rank in ranks), now, silent_seconds=silent_seconds)
        if found != "":
            awaited = Awaited(job.status.attempt, found) if found else None
            self._state.note(job.metadata.key, Awaited, awaited, reconcile=False)

    def _slowdown(self, job: PaddleJob, found: list[Straggler], now: float) -> Slowdown | None:
        """Return the slowdown of the rank slow the longest, keeping its first message."""
        if not found:
            return None
        since, before = self._slow[job.metadata.key], self._state.finding(job, Slowdown)
        worst = min(found, key=lambda each: since[each.name])
        pod, more = worst.name.partition(" ")[0], len(found) - 1
        message = f"{worst}; so do {more} more ranks" if more else str(worst)
        if before is not None and before.pod == pod:
            message = before.message
        is_lasting = now - since[worst.name] >= self._straggler_seconds
        return Slowdown(job.status.attempt, pod, message, is_lasting)

    def _find(self, job: PaddleJob, pods: tuple[Pod, ...], ranks: list[Rank], now: float) -> Hang | None:
        return find_hang(
            (rank.pace for rank in ranks),
            now,
            attempt=job.status.attempt,
            silent_seconds=self._silent_seconds(job.metadata.namespace),
            limits=self._limits,
            never_reported=() if any(rank.pace.step for rank in ranks) else _never_reported(job, pods, ranks),
        )

    def _silent_seconds(self, namespace: str) -> float:
        shortest = min(SILENT_SECONDS, self._limits.floor_seconds)
        return max(shortest, 3 * self._registry.next_seconds(namespace))

    def _has_stacks(self, key: ObjectKey, ranks: list[Rank], now: float) -> bool:
        """Request the stacks of the ranks; return whether all have sent them or the time is over."""
        if key not in self._requested_at and len({*self._requested_at, *self._hung}) >= MAX_JOBS_ASKED:
            return True
        since = self._requested_at.setdefault(key, now)
        late = since + self._registry.next_seconds(key.namespace) * 1.2 + STACKS_SECONDS
        silent_seconds = self._silent_seconds(key.namespace)
        reporting = [rank.pace for rank in ranks if now - rank.pace.reported_at < silent_seconds]
        # If no rank reports, the operator may be the cause, so wait the whole time.
        return now > late or (bool(reporting) and all(each.position for each in reporting))

    def _report_hang(self, job: PaddleJob, hang: Hang) -> None:
        self._state.note(job.metadata.key, Hang, hang)
        self._record_event(job, Event(EventType.WARNING, Reason.HUNG, hang.message))
        for names, dump in stacks.group_by_stack(hang.stacks)[:LOGGED_STACKS]:
            log.warning("%s: stack of %s:\n%s", job.metadata.key, ", ".join(names), dump)


def _is_new(hang: Hang, known: Hang | None) -> bool:
    """Return whether a hang is new, or was uncertain before: a lack of reports, or no learned timeout."""
    if known is None or known.attempt != hang.attempt:
        return True
    return (hang.has_reports and not known.has_reports) or (hang.is_learned and not known.is_learned)


def _never_reported(job: PaddleJob, pods: tuple[Pod, ...], ranks: list[Rank]) -> list[str]:
    """Return the names and nodes of pods with the recorder that never reported, sorted."""
    reported = {rank.pod_uid for rank in ranks}
    return sorted(
        f"{pod.metadata.name} on {pod.spec.node_name}"
        for pod in pods
        if pod.metadata.uid not in reported
        and (replica := replica_of(job.name, pod)) is not None
        and replica.role is not Role.PS
        and not (is_spare(pod) and not any(map(has_run, pod.status.container_statuses)))
    )
