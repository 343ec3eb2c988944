"""How far a training program is and what came of it, read from the lines that it prints.

Knows the lines of PaddleClas, PaddleOCR, PaddleDetection, PaddleSeg, PaddleRec, PaddleVideo, PaddleNLP and
its successors, of `paddle.Model`, of tqdm, and of the programs in Paddle's tutorials: they all write words
and the numbers that belong to them. Pure: no clock, no files, and a bounded amount of work for any line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

LONGEST_LINE = 2000
"""What is looked at of a line: its end, which is what a terminal shows of a progress bar."""
MOST_LOSSES = 64
"""How many losses are kept for a curve; with more, neighbours are averaged."""

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
"""How `paddle.Model` begins its lines; their ETA is that of the epoch, as tqdm's is that of the bar."""
_EPOCH_BEGINS = re.compile(r"epoch[\s:]*+\[?\d++/\d++\]?\s*+", re.IGNORECASE)
_NOT_TRAINING = re.compile(
    r"(?:^|[\s\[(])(?:eval\w*|val|valid\w*|test\w*|predict\w*|infer\w*)\b", re.IGNORECASE
)
_EVALUATION_BEGINS, _EVALUATION_ENDS = "Eval begin", "Eval samples"
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
"""Words for throughput, and their unit where it does not follow the number."""
_METRICS = frozenset(
    {
        *("acc", "accu", "accuracy", "ap", "auc", "bleu", "cer", "dice", "eer", "f1", "fid", "hmean", "iou"),
        *("kappa", "loss", "mae", "map", "miou", "mrr", "mse", "ndcg", "perplexity", "ppl", "precision"),
        *("psnr", "r2", "recall", "rmse", "rouge", "ssim", "top1", "top5", "wer"),
    }
)
"""What a number has to be called for its line to count as a result."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is known of a program's progress; a line tells some of it."""

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    """How many steps there are: in the epoch where `epochs` is known, else in all."""
    loss: float | None = None
    throughput: float | None = None
    throughput_unit: str = ""
    eta_seconds: float | None = None

    @property
    def fraction(self) -> float | None:
        """How much of the work is done, from 0 to 1, where the program tells how much there is."""
        of_epoch = min(1.0, self.step / self.steps) if self.step is not None and self.steps else None
        if self.epochs and self.epoch is not None and of_epoch is not None:
            return min(1.0, (max(0, self.epoch - 1) + of_epoch) / self.epochs)
        return of_epoch

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
    """Follows one program line by line. The caller says what time it is, in seconds of any clock."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
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
        self._stride = 1
        self._skipped = 0

    def feed(self, line: str, now: float) -> bool:
        """Take note of a line; return whether it tells progress."""
        shown = visible(line)
        if shown.startswith((_EVALUATION_BEGINS, _EVALUATION_ENDS)):
            self._is_evaluating = shown.startswith(_EVALUATION_BEGINS)
        update = None if self._is_evaluating else parse(shown)
        if update is None:
            self.result = shown if _is_result(shown) else self.result
            return False
        self.add(update, now, is_bar=_is_bar(shown))
        return True

    def eta_seconds(self, now: float) -> float | None:
        """Return how long it still takes: what the program says, else what its speed so far suggests."""
        if self.progress is None:
            return None
        if self._eta_at is not None and self.progress.eta_seconds is not None:
            return max(0.0, self.progress.eta_seconds - (now - self._eta_at))
        if self._first is None or self._last[1] <= self._first[1]:
            return None
        seconds, done = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return max(0.0, (1 - self._last[1]) * seconds / done - (now - self._last[0]))

    def add(self, update: Progress, now: float, *, is_bar: bool = False) -> None:
        """Take note of progress that is known by other means than a line."""
        update = self._without_overflow(update)
        self.progress = progress = _merged(self.progress or Progress(), update)
        if update.loss is not None:
            self._keep_loss(update.loss)
        if update.eta_seconds is not None:
            # A bar tells when it ends itself, which is not the end where more epochs follow.
            self._eta_at = None if is_bar and progress.epochs else now
        self._measure(progress.fraction, now)

    def _without_overflow(self, update: Progress) -> Progress:
        """Drop an infinite loss unless the loss of the step before was infinite too.

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
            return
        if self._first is None or now <= self._first[0] or fraction < self._last[1]:
            # Lines that come all at once tell nothing about speed.
            self._first = (now, fraction)
        self._last = (now, fraction)

    def _keep_loss(self, loss: float) -> None:
        self._skipped += 1
        if self._skipped < self._stride or not math.isfinite(loss):
            return
        self._skipped = 0
        self.losses.append(loss)
        if len(self.losses) == MOST_LOSSES:
            pairs = zip(self.losses[::2], self.losses[1::2], strict=True)
            self.losses = [(one + other) / 2 for one, other in pairs]
            self._stride *= 2


def parse(line: str) -> Progress | None:
    """Return the progress that a line tells, None for a line about something else or about an evaluation."""
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


def _merged(known: Progress, update: Progress) -> Progress:
    """Return what is known now: an epoch begins with step 0, everything else stays until it is updated."""
    begins_epoch = update.step is None and update.epoch not in (None, known.epoch)
    return Progress(
        epoch=known.epoch if update.epoch is None else update.epoch,
        epochs=update.epochs or known.epochs,
        step=0 if begins_epoch else known.step if update.step is None else update.step,
        steps=update.steps or known.steps,
        loss=known.loss if update.loss is None else update.loss,
        throughput=update.throughput or known.throughput,
        throughput_unit=update.throughput_unit or known.throughput_unit,
        eta_seconds=known.eta_seconds if update.eta_seconds is None else update.eta_seconds,
    )


def metrics(line: str) -> dict[str, float]:
    """Return the numbers that a result tells, by their names: {"auc": 0.94, "seconds": 27.0}."""
    return {each.name: each.number for each in _pairs(visible(line)) if each.total is None}


def visible(line: str) -> str:
    """Return what a terminal shows of a line in the end: without colours, and the last state of a bar."""
    end = _COLOUR.sub("", line[-LONGEST_LINE:].rstrip("\r\n\b "))
    return end.replace("\b", "\r").rpartition("\r")[2].strip()


def _pairs(text: str) -> Iterator[_Pair]:
    for found in _PAIR.finditer(text):
        total = _whole(found[3]) if found[3] else None
        yield _Pair(found[1], found[1].lower(), float(found[2]), total, found.start(), found.end())


def _first(pairs: list[_Pair], keys: frozenset[str]) -> _Pair | None:
    return next((each for each in pairs if each.key in keys), None)


def _step(text: str, pairs: list[_Pair]) -> _Pair | None:
    """Return the step, which has a name, or else is a fraction in brackets or in front of a bar's times."""
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
    """Return the length of a time whose days begin at a group: H:MM:SS, or M:SS."""
    days, first, second, third = (_whole(found[group + each] or "0") or 0 for each in range(4))
    hours, minutes, seconds = (first, second, third) if found[group + 3] else (0, first, second)
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def _whole(number: str | float) -> int | None:
    """Return a number without its fraction; None for one that no counter reaches."""
    try:
        value = int(float(number))
    except (ValueError, OverflowError):
        return None
    return value if 0 <= value < 1 << 53 else None


def _is_bar(text: str) -> bool:
    return _MODEL_STEP.match(text) is not None or _TQDM.search(text) is not None


def _is_result(text: str) -> bool:
    if _DONE.match(text):
        return True
    return any(not _METRICS.isdisjoint(re.split(r"[_/]", name.lower())) for name in metrics(text))
