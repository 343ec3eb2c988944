"""The activity of each rank over time: training, waiting for others, or stalled.

Local runs have the reports of the recorders in files. On a cluster the operator publishes only its findings:
an event names the ranks that a hung job waits for. Logs with step numbers add the rest.
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
from paddlejob.text import parse_duration
from paddlejob.training.hangs import PATIENCE, TRAINING, HangLimits
from paddlejob.training.log_lines import parse

WAITING, STALLED = "waiting", "stalled"
STALLED_SECONDS = 30.0
"""A rank without a step for this long, and for several times its longest step, is stalled."""
SILENT_SECONDS = HangLimits().floor_seconds
"""The same for a rank without log lines: many programs print nothing in evaluations and checkpoints."""
WAITING_SHARE = 0.5
"""A rank that waits for more than this share of its time is waiting."""
MAX_LOGS = 64
"""The number of ranks that the page draws."""
MAX_BYTES = 1 << 18
MAX_SPANS = 200

_NO_STEP = re.compile(r"no step for ((?:\d+[smhd])+) \(step \d+\)")
_NAMED = re.compile(r"(\S+) \(rank \d+\)")
_MORE = re.compile(r" and \d+ more ")


class Span(NamedTuple):
    """A state of a rank from `began` to `ended`, None if it continues."""

    state: str
    """training, waiting or stalled, or a phase of the program such as evaluating or saving."""
    began: datetime
    ended: datetime | None


Activity = dict[str, list[Span]]
"""Spans by rank, such as worker-0. Ranks without data are left out."""


async def activity_of(job: Job, events: Sequence[JobEvent], logs: LogActivity) -> Activity:
    """Return the activity of the current ranks. If spans overlap, the last one counts."""
    now = None if job.state.status.phase.is_terminal else datetime.now(UTC)
    found = logs.spans(now)
    if not isinstance(job, LocalJob):
        for rank, spans in from_events(job.state, events).items():
            found[rank] = found.get(rank, []) + spans
        return found
    reports = {pod.metadata.name: _read(job.run.progress(pod.metadata.name)) for pod in await job.pods()}
    working = min(
        (each for lines in reports.values() if (each := _wait_per_step(lines)) is not None), default=0.0
    )
    for pod, lines in reports.items():
        if spans := from_reports(lines, now, working):
            found[ranks.rank_of(job.run.job_name, pod)] = spans
    return found


class LogActivity:
    """Finds out from log lines when the ranks of a job trained and when they were silent."""

    def __init__(self) -> None:
        self._ranks: dict[str, _RankLog] = {}

    def feed(self, line: LogLine) -> None:
        known = self._ranks.get(line.rank)
        if line.time is None or not line.rank or (known is None and len(self._ranks) >= MAX_LOGS):
            return
        if known is None or known.attempt < line.attempt:
            known = self._ranks[line.rank] = _RankLog(line.attempt)
        if known.attempt == line.attempt:
            known.feed(line.text, line.time.timestamp())

    def spans(self, now: datetime | None) -> Activity:
        """Return the activity until `now`, None for a finished job."""
        found = {rank: each.spans_until(now) for rank, each in self._ranks.items()}
        return {rank: spans for rank, spans in found.items() if spans}


class _RankLog:
    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self._spans: list[Span] = []
        self._last: float | None = None
        """Time of the last line, None before the first step."""
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
        return spans[-MAX_SPANS:]

    def _add_until(self, spans: list[Span], last: float, time: float) -> None:
        is_stalled = time - last > max(SILENT_SECONDS, PATIENCE * self._longest)
        _add(spans, STALLED if is_stalled else TRAINING, last, time)


class _Report(msgspec.Struct, rename="camel"):
    time: float
    phase: str = ""
    step: int = 0
    waiting_seconds: float = 0.0


def _read(path: Path) -> list[_Report]:
    """Return the last reports in a file, at most MAX_BYTES."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - MAX_BYTES))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=_Report))
        except msgspec.DecodeError:
            continue  # a partial first line, or output of the program
    return found


def _wait_per_step(reports: Sequence[_Report]) -> float | None:
    """Return the seconds per step that a rank may have waited for others, None without a step."""
    steps = reports[-1].step - reports[0].step if reports else 0
    return (reports[-1].waiting_seconds - reports[0].waiting_seconds) / steps if steps > 0 else None


def from_reports(reports: Sequence[_Report], now: datetime | None, working: float = 0.0) -> list[Span]:
    """Return the activity of a process until `now`, None for a finished process.

    `working` is the part of the possible waiting time per step that is work: the minimum over all ranks.
    """
    spans: list[Span] = []
    longest = 0.0
    for before, after in itertools.pairwise(reports):
        pause = after.time - before.time
        # The step number is smaller after a restart of the process.
        is_stalled = after.step <= before.step and before.phase == TRAINING and _is_long(pause, longest)
        waited = after.waiting_seconds - before.waiting_seconds - working * (after.step - before.step)
        if not is_stalled:
            longest = max(longest, pause)
        state = STALLED if is_stalled else before.phase or TRAINING
        if state == TRAINING and waited > WAITING_SHARE * pause:
            state = WAITING
        _add(spans, state, before.time, after.time)
    if reports and now is not None:
        last = reports[-1]
        is_stalled = last.phase == TRAINING and _is_long(now.timestamp() - last.time, longest)
        _add(spans, STALLED if is_stalled else last.phase or TRAINING, last.time, None)
    return spans[-MAX_SPANS:]


def _is_long(pause: float, longest: float) -> bool:
    return pause > max(STALLED_SECONDS, PATIENCE * longest)


def _add(spans: list[Span], state: str, began: float, ended: float | None) -> None:
    end = None if ended is None else datetime.fromtimestamp(ended, UTC)
    if spans and spans[-1].state == state:
        spans[-1] = spans[-1]._replace(ended=end)
    else:
        spans.append(Span(state, datetime.fromtimestamp(began, UTC), end))


def from_events(job: PaddleJob, events: Iterable[JobEvent]) -> Activity:
    """Return when ranks were stalled and when the others waited for them, from Hung events."""
    found: Activity = {}
    every = [f"{role}-{index}" for role, spec in job.spec.roles() for index in range(spec.replicas)]
    still = _NO_STEP.search(job.status.message)
    hangs = [each for each in events if each.reason == Reason.HUNG and each.time is not None]
    for event in hangs:
        if (seconds := _NO_STEP.search(event.message)) is None or event.time is None:
            continue
        end = None if still and event is hangs[-1] else event.time
        awaited = _awaited_ranks(job.name, event.message) or set(every)
        begin = event.time - timedelta(seconds=parse_duration(seconds[1]))
        for rank in every:
            state = STALLED if rank in awaited else WAITING
            found.setdefault(rank, []).append(Span(state, begin, end))
    return found


def _awaited_ranks(job: str, message: str) -> set[str]:
    """Return the ranks in a message, empty if the message is shortened."""
    return set() if _MORE.search(message) else {ranks.rank_of(job, pod) for pod in _NAMED.findall(message)}
