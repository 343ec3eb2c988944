"""Progress in Kubeflow's protocol, for programs that report to Kubeflow's operator."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from paddlejob.api.v1 import TrainingProgress
from paddlejob.text import duration
from paddlejob.training.reports import Seconds
from paddlejob.training.steps import percentage

MAX_METRICS = 256
"""Kubeflow's own limit."""
_LOSSES = ("loss", "train_loss")
_STEPS = ("step", "global_step", "current_step", "currentstep")
_EPOCHS = ("epoch", "current_epoch", "currentepoch")
_TOTAL_EPOCHS = ("epochs", "num_epochs", "total_epochs", "totalepochs")
_LARGEST = 1 << 53


class _Metric(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class _TrainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    progress_percentage: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    estimated_remaining_seconds: Seconds | None = None
    metrics: Annotated[tuple[_Metric, ...], msgspec.Meta(max_length=MAX_METRICS)] = ()


class _Update(msgspec.Struct, frozen=True, rename="camel"):
    trainer_status: _TrainerStatus = _TrainerStatus()


_DECODER = msgspec.json.Decoder(_Update)


def parse_update(body: bytes) -> TrainingProgress:
    """Decode an update. Raises one of DECODE_ERRORS."""
    trainer = _DECODER.decode(body).trainer_status
    metrics = {metric.name.lower(): _number(metric.value) for metric in trainer.metrics}
    percent, left = trainer.progress_percentage, trainer.estimated_remaining_seconds
    loss = _first(metrics, _LOSSES)
    return TrainingProgress(
        step=_count(_first(metrics, _STEPS)),
        epoch=_count(_first(metrics, _EPOCHS)),
        epochs=_count(_first(metrics, _TOTAL_EPOCHS)),
        percent=None if percent is None else percentage(percent / 100),
        eta="" if left is None else duration(left),
        loss="" if loss is None else f"{loss:.4g}",
    )


def _number(text: str) -> float | None:
    try:
        return float(text[:64])
    except ValueError:
        return None


def _first(metrics: dict[str, float | None], names: tuple[str, ...]) -> float | None:
    return next((value for name in names if (value := metrics.get(name)) is not None), None)


def _count(value: float | None) -> int:
    """Return a metric as a number of steps or epochs, 0 if it cannot be one."""
    return int(value) if value is not None and math.isfinite(value) and 0 <= value < _LARGEST else 0
