"""Progress and result of a training program, parsed from the lines that it prints.

Understands PaddleClas, PaddleOCR, PaddleDetection, PaddleSeg, PaddleRec, PaddleVideo, PaddleNLP and its
successors, `paddle.Model`, tqdm, and the programs in Paddle's tutorials. All of them print names with
numbers. The work for a line is bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from paddlejob.api.v1 import TrainingProgress
from paddlejob.text import duration
from paddlejob.training.epochs import PrintedStep, StepCounter
from paddlejob.training.steps import percentage

MAX_LINE_LENGTH = 2000
"""Only the end of a longer line is parsed, which is the part of a progress bar that a terminal shows."""
SILENT_SECONDS = 60.0
SILENT_PAUSES = 5
"""A program without new progress for longer than this time and this many of its longest pauses is silent."""
MAX_LOSSES = 64
"""Number of losses kept for a curve; neighbours are averaged if there are more."""

_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?|nan\b|inf\b)"
_PAIR = re.compile(
    rf"(?<![\w./-])([A-Za-z][\w/]*+)(?:\([^()]{{0,80}}+\)|\[\d++\])?+(?:\s++is\b)?+[\s:=\[]*+({_NUMBER})"
    r"(?:\s?/\s?(\d++))?+",
    re.IGNORECASE | re.ASCII,
)
"""A word and its number, with the total of a fraction: `loss[1]:[0.693]`, `Epoch [2/10]`, `acc is: 0.9`"""
_BARE_FRACTION = re.compile(r"\[\s*+(\d++)/(\d++)\s*+\]")
"""A step without a word: `Epoch: [0] [ 100/1000]`"""
_TIME = r"(?:(\d++) days?, )?+(\d++):(\d\d)(?::(\d\d))?+"
_ETA = re.compile(rf"\beta[\s:=]*+(?:{_TIME}|(\d++) ?s\b)", re.IGNORECASE)
_TQDM = re.compile(
    rf"(?<!\d)(\d++)/(\d++) \[[\d:]++<(?:{_TIME}|\?)(?:, *+(\d++(?:\.\d*+)?)(it/s|s/it))?+", re.IGNORECASE
)
_TOTAL_STEPS = re.compile(r"\btotal (?:optimization|training) steps[\s:=]*+(\d[\d,]*+)", re.IGNORECASE)
_UNIT = re.compile(r"\s?([A-Za-z]{1,16}+/s)(?:ec)?\b")
_MODEL_STEP = re.compile(r"step\s++\d++/\d++ (?:\[[=>.]*+\] )?- ")
"""Beginning of the lines of `paddle.Model`. Their ETA is for the epoch, as tqdm's is for the bar."""
_EPOCH_BEGINS = re.compile(r"epoch[\s:]*+\[?\d++/\d++\]?\s*+", re.IGNORECASE)
_NOT_TRAINING = re.compile(
    r"(?:^|[\s\[(])(?:eval\w*|val|valid\w*|test\w*|predict\w*|infer\w*)\b", re.IGNORECASE
)
_EVALUATION_BEGINS, _EVALUATION_ENDS = "Eval begin", "Eval samples"
_COUNTS_OVER_EPOCHS = re.compile(r"\bglobal[_ ]step\b|\[TRAIN\] epoch: \d++, iter: ", re.IGNORECASE)
"""Steps over all epochs, by name and as PaddleSeg prints them."""
_FIRST_EPOCH_IS_0 = re.compile(r"\bEpoch: \[\d++\] \[")
"""The lines of PaddleDetection."""
_DEBUG = re.compile(r".{0,60}?\bDEBUG\b")
"""Lines of this level are no results: PaddleFormers prints settings such as `sft_loss_ratio : 0.0`."""
_DONE = re.compile(r"done\b.*\w", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*+m")

_STEPS = frozenset({"step", "global_step", "batch", "batch_id", "iter", "iteration"})
_EPOCHS = frozenset({"epoch", "progress_or_epoch"})
_LOSSES = frozenset({"loss", "avg_loss", "train_loss", "mean_loss", "total_loss"})
_THROUGHPUTS = {
    "ips": "",
    "speed": "",
    "interval_samples_per_second": "samples/s",
    "global_samples_per_second": "samples/s",
    "samples_per_second": "samples/s",
    "tokens_per_sec_per_card": "tokens/s/card",
    "rows/s": "rows/s",
    "images/s": "images/s",
}
"""Words for throughput, and their unit if it does not follow the number."""
_METRICS = frozenset(
    {
        *("acc", "accu", "accuracy", "ap", "auc", "bleu", "cer", "dice", "eer", "f1", "fid", "hmean", "iou"),
        *("kappa", "loss", "mae", "map", "miou", "mrr", "mse", "ndcg", "perplexity", "ppl", "precision"),
        *("psnr", "r2", "recall", "rmse", "rouge", "ssim", "top1", "top5", "wer"),
    }
)
"""Metric names that make a line count as a result."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Progress of a program; one line usually has only some of the fields.

    `parse` returns the numbers of a line as printed. A Tracker counts steps over all epochs.
    """

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    """Total of the step, None if unknown."""
    loss: float | None = None
    throughput: float | None = None
    throughput_unit: str = ""
    eta_seconds: float | None = None
    epoch_step: int | None = None
    """Step within the epoch, if the program prints that."""

    @property
    def fraction(self) -> float | None:
        """Completed part of the work from 0 to 1, in whole epochs if only their total is known."""
        if self.step is not None and self.steps:
            return min(1.0, self.step / self.steps)
        if self.epoch is not None and self.epochs:
            return min(1.0, max(0, self.epoch - 1) / self.epochs)
        return None

    def __str__(self) -> str:
        parts = []
        if self.epoch is not None:
            parts.append(f"epoch {self.epoch}" + (f"/{self.epochs}" if self.epochs else ""))
        if self.step is not None:
            parts.append(f"step {self.step}" + (f"/{self.steps}" if self.steps else ""))
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        return " ".join(parts)


class _Pair(NamedTuple):
    name: str
    key: str
    """The name in lower case."""
    number: float
    total: int | None
    start: int
    end: int


class Tracker:
    """Follows one program line by line. The caller passes the time in seconds of any clock."""

    def __init__(self, counter: StepCounter | None = None) -> None:
        """`counter` has the epochs of an earlier attempt of the program."""
        self.counter = counter or StepCounter()
        self.progress: Progress | None = None
        self.total: int | None = None
        """Total number of steps that the job declares; used for lines until they exceed it."""
        self.losses: list[float] = []
        """The losses so far, evenly thinned out."""
        self.result = ""
        """The last line that looks like a result: `done auc 0.94`, `[Eval][Epoch 9][Avg]top1: 0.7`."""
        self._is_evaluating = False
        self._loss_step: int | None = None
        self._is_infinite = self._was_infinite = False
        """Whether the newest loss is infinite, and the one before it."""
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._eta_at: float | None = None
        self._progressed_at: float | None = None
        """Time of the last new progress."""
        self._longest_pause = 0.0
        self._stride = 1
        self._skipped = 0

    def feed(self, line: str, now: float) -> bool:
        """Parse a line; return whether it has progress."""
        shown = visible(line)
        if shown.startswith((_EVALUATION_BEGINS, _EVALUATION_ENDS)):
            self._is_evaluating = shown.startswith(_EVALUATION_BEGINS)
        update = None if self._is_evaluating else parse(shown)
        if update is None:
            self.result = shown if _is_result(shown) else self.result
            return False
        self._add_line(update, shown, now)
        return True

    def restart(self) -> None:
        """Begin a new process of the program; its speed and total are measured again."""
        self.counter.restart()
        self._first = self._eta_at = None
        self._is_evaluating = False

    def is_silent(self, now: float) -> bool:
        """Return whether progress is overdue, so that the remaining time is unknown."""
        limit = max(SILENT_SECONDS, SILENT_PAUSES * self._longest_pause)
        return self._progressed_at is not None and now - self._progressed_at > limit

    def eta_seconds(self, now: float) -> float | None:
        """Return the remaining time: as printed by the program, else estimated from its speed."""
        if self.progress is None or self.is_silent(now):
            return None
        if self._eta_at is not None and self.progress.eta_seconds is not None:
            left = self.progress.eta_seconds - (now - self._eta_at)
        elif self._first is None or self._last[1] <= self._first[1]:
            return None
        else:
            seconds, done = self._last[0] - self._first[0], self._last[1] - self._first[1]
            left = (1 - self._last[1]) * seconds / done - (now - self._last[0])
        # The rest, such as an evaluation after the last step, takes an unknown time.
        return left if left > 0 else None

    def add(self, update: Progress, now: float) -> None:
        """Add progress with steps over all epochs."""
        self._add(update, update.steps or (self.progress.steps if self.progress else None), now)

    def _add(self, update: Progress, steps: int | None, now: float) -> None:
        update, before = self._without_overflow(update), self.progress
        self.progress = progress = _merge(before or Progress(), update, steps)
        if update.loss is not None:
            self._keep_loss(update.loss)
        if update.eta_seconds is not None:
            self._eta_at = now
        if progress != before:
            pause = 0.0 if self._progressed_at is None else now - self._progressed_at
            self._longest_pause, self._progressed_at = max(self._longest_pause, pause), now
        # Whole epochs are too coarse to measure the speed.
        self._measure(progress.fraction if progress.step is not None and progress.steps else None, now)

    def _add_line(self, update: Progress, text: str, now: float) -> None:
        bar = _TQDM.search(text)
        position = self.counter.count(
            PrintedStep(
                update.epoch,
                update.epochs,
                update.step,
                update.steps,
                bar=bar[0] if bar else "",
                counts_over_epochs=_COUNTS_OVER_EPOCHS.search(text) is not None,
                first_epoch_is_0=_FIRST_EPOCH_IS_0.search(text) is not None,
            )
        )
        # A total in a line may be the size of an epoch.
        is_declared = self.total is not None and (position.step or 0) <= self.total
        steps = self.total if is_declared else position.steps
        is_of_bar = bar is not None or _MODEL_STEP.match(text) is not None
        if is_of_bar and update.steps != steps:
            # The ETA of a bar is for the bar alone, which is not the end if more epochs follow.
            self._eta_at, update = None, msgspec.structs.replace(update, eta_seconds=None)
        # A second pass shows that the total was only the size of a pass.
        self._add(msgspec.structs.replace(update, **position._asdict()), steps, now)

    def _without_overflow(self, update: Progress) -> Progress:
        """Drop an infinite loss unless the previous step had one too.

        Mixed precision skips a step that overflows; a loss that stays infinite has diverged.
        """
        if update.loss is None:
            return update
        if update.step is None or update.step != self._loss_step:
            self._loss_step = update.step
            self._was_infinite, self._is_infinite = self._is_infinite, math.isinf(update.loss)
        if math.isinf(update.loss) and not self._was_infinite:
            return msgspec.structs.replace(update, loss=None)
        return update

    def _measure(self, fraction: float | None, now: float) -> None:
        if fraction is None:
            self._first = None
            return
        if self._first is None or now <= self._first[0] or fraction < self._last[1]:
            # Lines that arrive together do not show the speed.
            self._first = self._last = (now, fraction)
        if fraction > self._last[1]:
            self._last = (now, fraction)

    def _keep_loss(self, loss: float) -> None:
        self._skipped += 1
        if self._skipped < self._stride or not math.isfinite(loss):
            return
        self._skipped = 0
        self.losses.append(loss)
        if len(self.losses) == MAX_LOSSES:
            pairs = zip(self.losses[::2], self.losses[1::2], strict=True)
            self.losses = [(one + other) / 2 for one, other in pairs]
            self._stride *= 2


def training_progress(tracker: Tracker, now: float) -> TrainingProgress | None:
    """Return the progress as a field of the status, None if there is none."""
    known = tracker.progress
    if known is None:
        return None
    eta = tracker.eta_seconds(now)
    unit = f" {known.throughput_unit}" if known.throughput_unit else ""
    return TrainingProgress(
        step=known.step or 0,
        steps=known.steps or 0,
        epoch=known.epoch or 0,
        epochs=known.epochs or 0,
        epoch_step=known.epoch_step or 0,
        percent=None if known.fraction is None else percentage(known.fraction),
        loss="" if known.loss is None else f"{known.loss:.4g}",
        throughput="" if known.throughput is None else f"{known.throughput:.4g}{unit}",
        eta="" if eta is None else duration(eta),
    )


def parse(line: str) -> Progress | None:
    """Return the progress in a line, None for evaluations and other lines."""
    text = visible(line)
    if total := _TOTAL_STEPS.search(text):
        return Progress(steps=_whole(total[1].replace(",", "")))
    pairs = list(_pairs(text))
    step = _step(text, pairs)
    loss = next((each for each in pairs if each.key == "loss"), None) or _first(pairs, _LOSSES)
    epoch = _first(pairs, _EPOCHS)
    if step is None and loss is None and not (epoch and _EPOCH_BEGINS.fullmatch(text)):
        return None
    begin = min(each.start for each in (step, loss, epoch) if each is not None)
    if _NOT_TRAINING.search(text, 0, begin + 1):
        return None
    value, unit = _throughput(text, pairs)
    return Progress(
        epoch=_whole(epoch.number) if epoch else None,
        epochs=epoch.total if epoch else None,
        step=_whole(step.number) if step else None,
        steps=step.total if step else None,
        loss=loss.number if loss else None,
        throughput=value,
        throughput_unit=unit,
        eta_seconds=_eta(text),
    )


def _merge(known: Progress, update: Progress, steps: int | None) -> Progress:
    """Merge an update: fields stay until they are updated."""
    return Progress(
        epoch=known.epoch if update.epoch is None else update.epoch,
        epochs=update.epochs or known.epochs,
        step=known.step if update.step is None else update.step,
        steps=steps,
        loss=known.loss if update.loss is None else update.loss,
        throughput=update.throughput or known.throughput,
        throughput_unit=update.throughput_unit or known.throughput_unit,
        eta_seconds=known.eta_seconds if update.eta_seconds is None else update.eta_seconds,
        epoch_step=known.epoch_step if update.step is None else update.epoch_step,
    )


def metrics(line: str) -> dict[str, float]:
    """Return the numbers in a result by name: {"auc": 0.94, "seconds": 27.0}."""
    return {each.name: each.number for each in _pairs(visible(line)) if each.total is None}


def visible(line: str) -> str:
    """Return a line as a terminal shows it: without colours, and with the last state of a bar."""
    end = _COLOUR.sub("", line[-MAX_LINE_LENGTH:].rstrip("\r\n\b "))
    return end.replace("\b", "\r").rpartition("\r")[2].strip()


def _pairs(text: str) -> Iterator[_Pair]:
    for found in _PAIR.finditer(text):
        total = _whole(found[3]) if found[3] else None
        yield _Pair(found[1], found[1].lower(), float(found[2]), total, found.start(), found.end())


def _first(pairs: list[_Pair], keys: frozenset[str]) -> _Pair | None:
    return next((each for each in pairs if each.key in keys), None)


def _step(text: str, pairs: list[_Pair]) -> _Pair | None:
    """Return the step: a named number, else a fraction in brackets or before the times of a bar."""
    found = next((each for each in pairs if each.key in _STEPS and each.number >= 0), None)
    if found is not None:
        return found
    bare = _TQDM.search(text) or _BARE_FRACTION.search(text, _end_of_epoch(pairs))
    return _Pair("", "", float(bare[1]), _whole(bare[2]), bare.start(), bare.end()) if bare else None


def _end_of_epoch(pairs: list[_Pair]) -> int:
    epoch = _first(pairs, _EPOCHS)
    return epoch.end if epoch else 0


def _throughput(text: str, pairs: list[_Pair]) -> tuple[float | None, str]:
    if pair := next((each for each in pairs if each.key in _THROUGHPUTS), None):
        unit = _UNIT.match(text, pair.end)
        return pair.number, _THROUGHPUTS[pair.key] or (unit[1] if unit else "")
    bar = _TQDM.search(text)
    if bar is None or not bar[7]:
        return None, ""
    rate = float(bar[7])
    return (rate, "it/s") if bar[8].lower() == "it/s" else (1 / rate if rate else None, "it/s")


def _eta(text: str) -> float | None:
    if found := _ETA.search(text):
        return float(_whole(found[5]) or 0) if found[5] else _seconds(found, 1)
    found = _TQDM.search(text)
    return _seconds(found, 3) if found and found[4] else None


def _seconds(found: re.Match[str], group: int) -> float:
    """Return the seconds of H:MM:SS or M:SS, with the days in the given group of the match."""
    days, first, second, third = (_whole(found[group + each] or "0") or 0 for each in range(4))
    hours, minutes, seconds = (first, second, third) if found[group + 3] else (0, first, second)
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def _whole(number: str | float) -> int | None:
    """Return a number without its fraction; None if it is too large for a counter."""
    try:
        value = int(float(number))
    except (ValueError, OverflowError):
        return None
    return value if 0 <= value < 1 << 53 else None


def _is_result(text: str) -> bool:
    if _DONE.match(text):
        return True
    if _DEBUG.match(text):
        return False
    return any(not _METRICS.isdisjoint(re.split(r"[_/]", name.lower())) for name in metrics(text))
