"""What the recorders inside pods report: lines of JSON, or of N/M, that programs append to a file."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec

from paddlejob.progress import Progress

END_BYTES = 4096
_FRACTION = re.compile(rb"(\d{1,15})/(\d{1,15})")


class _Report(msgspec.Struct):
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    loss: float | str | None = None


def newest(path: Path) -> Progress | None:
    """Return what the last whole line tells, None where there is none that can be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - END_BYTES))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    return parse(lines[-1]) if lines else None


def parse(line: bytes) -> Progress | None:
    """Return what a line tells, None for one that is neither form."""
    if fraction := _FRACTION.fullmatch(line.strip()):
        return Progress(step=int(fraction[1]), steps=int(fraction[2]))
    with suppress(msgspec.DecodeError, ValueError):
        report = msgspec.json.decode(line, type=_Report)
        loss = None if report.loss is None else float(report.loss)
        return Progress(epoch=report.epoch, step=report.step, steps=report.total, loss=loss)
    return None
