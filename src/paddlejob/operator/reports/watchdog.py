"""Looks for jobs whose ranks report that they make no progress, asks them where they are, and says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase, Role
from paddlejob.core.actions import Event, EventType
from paddlejob.core.pod_set import replica_of
from paddlejob.core.recording import stacks
from paddlejob.core.recording.hangs import Hang, HangLimits, find_awaited, find_hang
from paddlejob.core.recording.stragglers import Slowdown, Straggler, find_stragglers
from paddlejob.operator.reports.book import Book, Rank
from paddlejob.operator.state import ClusterState

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""A rank that has not reported for this long counts as not reporting, unless it was asked to wait longer."""
MOST_JOBS_ASKED = 64
"""How many jobs that hang can be asked for their stacks: what they say is kept until they go on."""
LOGGED_STACKS = 5
STACKS_SECONDS = 15.0
"""How much longer than until its next report a rank may take to say where it is."""

RecordEvent = Callable[[PaddleJob, Event], None]


class Watchdog:
    """Finds hangs and stragglers for the reconciler.

    The pauses of jobs are learned again by a new process. A hang on record lasts until its job moves.
    """

    def __init__(
        self,
        state: ClusterState,
        book: Book,
        record_event: RecordEvent,
        limits: HangLimits,
        *,
        straggler_seconds: float,
    ) -> None:
        self._state = state
        self._book = book
        self._record_event = record_event
        self._limits = limits
        self._asked: dict[ObjectKey, float] = {}
        """Since when the ranks of a job are asked where they are."""
        self._hung: dict[ObjectKey, Hang] = {}
        self._straggler_seconds = straggler_seconds
        self._slow: dict[ObjectKey, dict[str, float]] = {}
        """Stragglers that were told of, and when."""

    def wants_stacks(self, job: ObjectKey) -> bool:
        """Tell whether the ranks of a job are to say where they are."""
        return job in self._asked

    async def run(self) -> None:
        """Look until cancelled."""
        self._state.watches_hangs = True
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._book.prune(
                lambda key: {pod.metadata.uid for pod in self._pods(key)}, asyncio.get_running_loop().time()
            )
            for key in {*self._book.jobs(), *self._hung, *self._asked, *self._slow}:
                try:
                    self._look(key, asyncio.get_running_loop().time())
                except Exception:
                    log.exception("%s: bug in the operator; it is looked at again", key)

    def _look(self, key: ObjectKey, now: float) -> None:
        job, pods = self._state.job(key), self._pods(key)
        ranks = self._book.ranks(key, {pod.metadata.uid for pod in pods})
        runs = job is not None and job.status.phase is Phase.RUNNING
        hang = self._find(job, pods, ranks, now) if job and runs else None
        if job is not None:
            self._look_for_stragglers(job, ranks if runs else [], now)
            self._look_for_awaited(job, ranks, now)
        else:
            self._slow.pop(key, None)
        known = self._state.noticed(job, Hang) if job else None
        if hang is None or job is None:
            self._asked.pop(key, None)
            was_told = self._hung.pop(key, None) is not None
            if was_told or (known and any(rank.pace.moved_at > rank.pace.since for rank in ranks)):
                self._state.notice(key, Hang, None)
        elif _is_news(hang, known) and self._has_asked(key, ranks, now):
            self._hung[key] = hang
            self._asked.pop(key, None)
            self._tell(job, hang)

    def _pods(self, key: ObjectKey) -> tuple[Pod, ...]:
        job = self._state.job(key)
        return self._state.pods.find("owner", job.metadata.uid) if job else ()

    def _look_for_stragglers(self, job: PaddleJob, ranks: list[Rank], now: float) -> None:
        """Tell of a rank once it has been slow for a whole window, as all others have been measured."""
        key, known = job.metadata.key, self._slow.pop(job.metadata.key, {})
        timed = [(rank.pace.place, rank.timer.last) for rank in ranks if rank.timer.last is not None]
        found = find_stragglers(timed, known) if len(timed) == len(ranks) else []
        for straggler in found:
            if straggler.name not in known:
                self._record_event(job, Event(EventType.WARNING, Reason.STRAGGLER, str(straggler)))
        if found:
            self._slow[key] = {each.name: known.get(each.name, now) for each in found}
        before, slowdown = self._state.noticed(job, Slowdown), self._slowdown(job, found, now)
        if slowdown != before:
            self._state.notice(key, Slowdown, slowdown)

    def _look_for_awaited(self, job: PaddleJob, ranks: list[Rank], now: float) -> None:
        """Note whom all ranks wait for; that is kept when they end, until others train."""
        silent_seconds = 3 * self._book.next_seconds(job.metadata.namespace)
        found = find_awaited((rank.pace for rank in ranks), now, silent_seconds=silent_seconds)
        if found is None:
            self._state.awaited.pop(job.metadata.key, None)
        elif found:
            self._state.awaited[job.metadata.key] = (job.status.attempt, found)

    def _slowdown(self, job: PaddleJob, found: list[Straggler], now: float) -> Slowdown | None:
        """Return what is to be known of the rank that has been slow for longest, in the words used first."""
        if not found:
            return None
        since, before = self._slow[job.metadata.key], self._state.noticed(job, Slowdown)
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
        return max(shortest, 3 * self._book.next_seconds(namespace))

    def _has_asked(self, key: ObjectKey, ranks: list[Rank], now: float) -> bool:
        """Ask the ranks where they are, and tell whether all have said so or had the time to."""
        if key not in self._asked and len({*self._asked, *self._hung}) >= MOST_JOBS_ASKED:
            return True
        since = self._asked.setdefault(key, now)
        late = since + self._book.next_seconds(key.namespace) * 1.2 + STACKS_SECONDS
        silent_seconds = self._silent_seconds(key.namespace)
        reporting = [rank.pace for rank in ranks if now - rank.pace.reported_at < silent_seconds]
        # While no rank reports, it may be our own fault, so they are given the time.
        return now > late or (bool(reporting) and all(each.position for each in reporting))

    def _tell(self, job: PaddleJob, hang: Hang) -> None:
        self._state.notice(job.metadata.key, Hang, hang)
        self._record_event(job, Event(EventType.WARNING, Reason.HUNG, hang.message))
        for names, dump in stacks.grouped(hang.stacks)[:LOGGED_STACKS]:
            log.warning("%s: stack of %s:\n%s", job.metadata.key, ", ".join(names), dump)


def _is_news(hang: Hang, known: Hang | None) -> bool:
    """Return whether a hang is new, or until now was only a lack of reports or uncertain."""
    if known is None or known.attempt != hang.attempt:
        return True
    return (hang.has_reports and not known.has_reports) or (hang.is_learned and not known.is_learned)


def _never_reported(job: PaddleJob, pods: tuple[Pod, ...], ranks: list[Rank]) -> list[str]:
    """Return the places of pods that have the recorder and never reported, in order."""
    reported = {rank.pod_uid for rank in ranks}
    return sorted(
        f"{pod.metadata.name} on {pod.spec.node_name}"
        for pod in pods
        if pod.metadata.uid not in reported
        and (replica := replica_of(job.name, pod)) is not None
        and replica.role is not Role.PS
    )
