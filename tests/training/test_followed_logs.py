"""Logs of real programs over epochs and a restart, followed line by line.

`logs/*.txt` are logs with timestamps, as `kubectl logs --timestamps` prints them. The logs of the examples,
`paddle.Model` and tqdm were recorded; the others have the form that the projects print, which
tests/contract/test_kit_logs.py compares with their source. `logs/*.table` has the progress of the job after
each line, the step of an attempt that repeats steps in parentheses, and the seconds of goodput so far.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from paddlejob.api.meta import ObjectMeta
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, TrainingProgress
from paddlejob.training import goodput, steps
from paddlejob.training.log_lines import Tracker, training_progress, visible

LOGS = Path(__file__).parent / "logs"
HEADINGS = ("LINE", "EPOCH", "STEP", "DONE", "ETA", "LOST", "TRAINED", "REPEATED", "TEXT")
TEXT_LENGTH = 70


class FollowedJob:
    """A job of which one worker prints a log."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.job = PaddleJob(ObjectMeta("demo"), status=PaddleJobStatus(phase=Phase.RUNNING))
        self.last = datetime.min.replace(tzinfo=UTC)

    def feed(self, text: str, time: datetime) -> None:
        if self.job.metadata.creation_timestamp is None:
            self.job = msgspec.structs.replace(self.job, metadata=ObjectMeta("demo", creation_timestamp=time))
        elif self.job.status.phase is Phase.RESTARTING:
            self._change(time, phase=Phase.RUNNING)
        self.last = time
        self.tracker.feed(text, time.timestamp())
        status = self.job.status
        found = training_progress(self.tracker, time.timestamp())
        if found is None:
            return
        fresh = steps.add_report(status.progress, found, attempt=status.attempt)
        spent = goodput.goodput_at(self.job, time) if goodput.passes_mark(status, fresh) else status.goodput
        self._set(msgspec.structs.replace(status, progress=fresh, goodput=spent))

    def restart(self) -> None:
        ended = steps.end_attempt(self.job.status, counted=True)
        attempt = ended.attempt + 1
        self._change(self.last, ended, phase=Phase.RESTARTING, attempt=attempt, base_attempt=attempt)
        self.tracker.counter.restart()
        self.tracker = Tracker(self.tracker.counter)

    def _change(self, time: datetime, status: PaddleJobStatus | None = None, **fields) -> None:
        new = msgspec.structs.replace(status or self.job.status, **fields)
        self._set(goodput.add_goodput(self.job, new, time))

    def _set(self, status: PaddleJobStatus) -> None:
        self.job = msgspec.structs.replace(self.job, status=status)

    def row(self) -> tuple[str, ...]:
        progress = self.job.status.progress or TrainingProgress()
        spent = goodput.goodput_at(self.job, self.last)
        total = f"/{progress.steps}" if progress.steps else ""
        behind = f" ({progress.attempt_step})" if progress.attempt_step else ""
        return (
            f"{progress.epoch}" + (f"/{progress.epochs}" if progress.epochs else ""),
            f"{progress.step}{total}{behind}",
            "-" if progress.percent is None else f"{progress.percent}%",
            progress.eta or "-",
            f"{progress.lost_steps}",
            f"{spent.training_seconds}s",
            f"{spent.repeating_seconds}s",
        )


def followed(log: str) -> str:
    """Return the table of a log."""
    job, rows = FollowedJob(), [HEADINGS]
    for number, line in enumerate(log.split("\n")[:-1], 1):
        if line.startswith("==> "):
            if rows[1:]:
                job.restart()
            rows.append((str(number), *("",) * (len(HEADINGS) - 2), line))
            continue
        time, _, text = line.partition(" ")
        job.feed(text, datetime.fromisoformat(time))
        rows.append((str(number), *job.row(), visible(text)[:TEXT_LENGTH]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize("table", sorted(LOGS.glob("*.table")), ids=lambda path: path.stem)
def test_every_line_of_a_log_is_counted(table: Path):
    log = table.with_suffix(".txt").read_bytes().decode()
    assert followed(log).splitlines() == table.read_text().splitlines()


def test_the_log_of_a_training_with_paddleformers():
    tracker, printed = Tracker(), []
    for number, line in enumerate((LOGS / "paddleformers-1.2.txt").read_text().splitlines()):
        tracker.feed(line, float(number))
        if found := re.search(r"\bglobal_step: (\d+)", line):
            printed.append(int(found[1]))
            shown = training_progress(tracker, float(number))
            assert (shown.step, shown.steps) == (printed[-1], 30)
            assert shown.percent == min(99, round(100 * printed[-1] / 30))
            assert bool(shown.eta) is (1 < printed[-1] < 30)
    assert sorted({*printed}) == list(range(1, 31))
    assert tracker.result == ""
