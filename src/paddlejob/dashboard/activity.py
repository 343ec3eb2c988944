"""What each rank did over time: trained, waited for others, or made no step.

On this machine all that recorders reported is in files. On a cluster the operator keeps the reports to
itself, and publishes what it finds in them: an event names the ranks that a job without progress waits for.
Of ranks that print their steps the log tells the rest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJob
from paddlejob.client import ranks
from paddlejob.client.job import Job, JobEvent
from paddlejob.client.local_runs import LocalJob
from paddlejob.client.logs.model import LogLine
from paddlejob.core.recording.hangs import PATIENCE, TRAINING, HangLimits
from paddlejob.progress import parse

WAITING, STALLED = "waiting", "stalled"
STALLED_SECONDS = 30.0
"""Who makes no step for so long, and for several times as long as it ever took, is stalled."""
SILENT_SECONDS = HangLimits().floor_seconds
"""The same for who writes no line: evaluations and checkpoints are silent in many programs."""
MOSTLY = 0.5
"""Who waits for more of its time than this is waiting."""
MOST_LOGS = 64
"""As many ranks as the page draws over time."""
MOST_BYTES = 1 << 18
MOST_SPANS = 200

_NO_STEP = re.compile(r"no step for ((?:\d+[smhd])+) \(step \d+\)")
_PART = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_NAMED = re.compile(r"(\S+) \(rank \d+\)")
_MORE = re.compile(r" and \d+ more ")


class Span(NamedTuple):
    """What a rank did for a time; without an end it still does."""

    state: str
    """training, waiting or stalled; or what its program calls it, such as evaluating or saving."""
    began: datetime
    ended: datetime | None


Activity = dict[str, list[Span]]
"""By rank, such as worker-0; a rank of which nothing is known is not in it."""


async def activity_of(job: Job, events: Sequence[JobEvent], logs: LogActivity) -> Activity:
    """Return what is known about the ranks that a job has now; of spans that overlap, the last one counts."""
    now = None if job.state.status.phase.is_terminal else datetime.now(UTC)
    found = logs.spans(now)
    if not isinstance(job, LocalJob):
        for rank, spans in from_events(job.state, events).items():
            found[rank] = found.get(rank, []) + spans
        return found
    reports = {pod.metadata.name: _read(job.run.progress(pod.metadata.name)) for pod in await job.pods()}
    working = min(
        (each for lines in reports.values() if (each := _waiting_a_step(lines)) is not None), default=0.0
    )
    for pod, lines in reports.items():
        if spans := from_reports(lines, now, working):
            found[ranks.rank_of(job.run.job_name, pod)] = spans
    return found


class LogActivity:
    """When the ranks of a job trained and when they were silent, by the lines that they write."""

    def __init__(self) -> None:
        self._ranks: dict[str, _RankLog] = {}

    def feed(self, line: LogLine) -> None:
        """Take note of a line."""
        known = self._ranks.get(line.rank)
        if line.time is None or not line.rank or (known is None and len(self._ranks) >= MOST_LOGS):
            return
        if known is None or known.attempt < line.attempt:
            known = self._ranks[line.rank] = _RankLog(line.attempt)
        if known.attempt == line.attempt:
            known.feed(line.text, line.time.timestamp())

    def spans(self, now: datetime | None) -> Activity:
        """Return what is known until `now`, None for a job that has ended."""
        found = {rank: each.spans_until(now) for rank, each in self._ranks.items()}
        return {rank: spans for rank, spans in found.items() if spans}


class _RankLog:
    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self._spans: list[Span] = []
        self._last: float | None = None
        """When it wrote a line, None before it trains."""
        self._longest = 0.0

    def feed(self, text: str, time: float) -> None:
        if self._last is None:
            progress = parse(text)
            self._last = time if progress and progress.step is not None else None
            return
        self._add_until(self._spans, self._last, time)
        self._longest = max(self._longest, time - self._last)
        self._last = time

    def spans_until(self, now: datetime | None) -> list[Span]:
        spans = list(self._spans)
        if self._last is not None and now is not None:
            self._add_until(spans, self._last, now.timestamp())
            spans[-1] = spans[-1]._replace(ended=None)
        return spans[-MOST_SPANS:]

    def _add_until(self, spans: list[Span], last: float, time: float) -> None:
        is_stalled = time - last > max(SILENT_SECONDS, PATIENCE * self._longest)
        _add(spans, STALLED if is_stalled else TRAINING, last, time)


class _Report(msgspec.Struct, rename="camel"):
    time: float
    phase: str = ""
    step: int = 0
    waiting_seconds: float = 0.0


def _read(path: Path) -> list[_Report]:
    """Return the reports in a file, or the last of them."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - MOST_BYTES))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=_Report))
        except msgspec.DecodeError:
            continue  # half a line at the beginning, or what a program wrote by itself
    return found


def _waiting_a_step(reports: Sequence[_Report]) -> float | None:
    """Return the seconds of each step in which a rank may wait for others, None where there was no step."""
    steps = reports[-1].step - reports[0].step if reports else 0
    return (reports[-1].waiting_seconds - reports[0].waiting_seconds) / steps if steps > 0 else None


def from_reports(reports: Sequence[_Report], now: datetime | None, working: float = 0.0) -> list[Span]:
    """Return what a process did; `now` is the end of what is known, None for one that has ended.

    `working` is how much of what may be waiting in a step is not: the rank that waits least has so much.
    """
    spans: list[Span] = []
    longest = 0.0
    for before, after in itertools.pairwise(reports):
        pause = after.time - before.time
        # A smaller step is that of a process that was started again.
        is_stalled = after.step <= before.step and before.phase == TRAINING and _is_long(pause, longest)
        waited = after.waiting_seconds - before.waiting_seconds - working * (after.step - before.step)
        if not is_stalled:
            longest = max(longest, pause)
        state = STALLED if is_stalled else before.phase or TRAINING
        if state == TRAINING and waited > MOSTLY * pause:
            state = WAITING
        _add(spans, state, before.time, after.time)
    if reports and now is not None:
        last = reports[-1]
        is_stalled = last.phase == TRAINING and _is_long(now.timestamp() - last.time, longest)
        _add(spans, STALLED if is_stalled else last.phase or TRAINING, last.time, None)
    return spans[-MOST_SPANS:]


def _is_long(pause: float, longest: float) -> bool:
    return pause > max(STALLED_SECONDS, PATIENCE * longest)


def _add(spans: list[Span], state: str, began: float, ended: float | None) -> None:
    end = None if ended is None else datetime.fromtimestamp(ended, UTC)
    if spans and spans[-1].state == state:
        spans[-1] = spans[-1]._replace(ended=end)
    else:
        spans.append(Span(state, datetime.fromtimestamp(began, UTC), end))


def from_events(job: PaddleJob, events: Iterable[JobEvent]) -> Activity:
    """Return when the ranks of a job made no step: those that were waited for, and those that waited."""
    found: Activity = {}
    every = [f"{role}-{index}" for role, spec in job.spec.roles() for index in range(spec.replicas)]
    still = _NO_STEP.search(job.status.message)
    hangs = [each for each in events if each.reason == Reason.HUNG and each.time is not None]
    for event in hangs:
        if (seconds := _NO_STEP.search(event.message)) is None or event.time is None:
            continue
        end = None if still and event is hangs[-1] else event.time
        awaited = _awaited(job.name, event.message) or set(every)
        for rank in every:
            state = STALLED if rank in awaited else WAITING
            found.setdefault(rank, []).append(Span(state, event.time - _length(seconds[1]), end))
    return found


def _awaited(job: str, message: str) -> set[str]:
    """Return the ranks that a message names, none where it does not name all of them."""
    return set() if _MORE.search(message) else {ranks.rank_of(job, pod) for pod in _NAMED.findall(message)}


def _length(text: str) -> timedelta:
    return timedelta(**{_UNITS[unit]: int(number) for number, unit in _PART.findall(text)})
