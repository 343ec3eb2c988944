"""How far a training program is, read from the lines it prints."""

from __future__ import annotations

import re

import msgspec

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf"
_BEFORE_NUMBER = r"[\s:=\[(]*"
_EPOCH = re.compile(rf"\bepoch{_BEFORE_NUMBER}(\d+)(?:\s*/\s*\d+)?\]?", re.IGNORECASE)
_STEP = re.compile(
    rf"\b(?:(?:global_)?step|batch(?:_id)?|iter|iteration){_BEFORE_NUMBER}(\d+)(?:\s*/\s*(\d+))?",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"(?:\[|\|\s)\s*(\d+)/(\d+)(?:\]|\s\[)")
"""A step without a word, in brackets or of a progress bar: [ 100/1000], | 10/300 [00:05<02:30"""
_LOSS = re.compile(
    rf"(?<![a-z])loss(?:\[\d+\])?(?:\s+is)?{_BEFORE_NUMBER}({_NUMBER})", re.IGNORECASE
)  # Paddle's own lines have its shape in brackets: loss[1]:[0.693]
_RESULT = re.compile(r"^\s*(done\b.*\d.*?)\s*$", re.MULTILINE | re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Progress(msgspec.Struct, frozen=True):
    """What a line says; nothing is known but what it says."""

    epoch: int | None = None
    step: int | None = None
    steps: int | None = None
    loss: str = ""

    def __str__(self) -> str:
        parts = []
        if self.epoch is not None:
            parts.append(f"epoch {self.epoch}")
        if self.step is not None:
            parts.append(f"step {self.step}" + (f"/{self.steps}" if self.steps else ""))
        if self.loss:
            parts.append(f"loss {self.loss}")
        return " ".join(parts)


def parse(line: str) -> Progress | None:
    """Return the progress that a line tells, None for a line about something else."""
    epoch, loss = _EPOCH.search(line), _LOSS.search(line)
    after_epoch = line[epoch.end() :] if epoch else line
    step = _STEP.search(line) or _FRACTION.search(after_epoch)
    if step is None and loss is None:
        return None
    return Progress(
        epoch=int(epoch[1]) if epoch else None,
        step=int(step[1]) if step else None,
        steps=int(step[2]) if step and step[2] else None,
        loss=loss[1] if loss else "",
    )


def result(lines: bytes) -> str:
    """Return the line with which a program tells its result, such as `done auc 0.94 seconds 12.3`."""
    found = _RESULT.findall(_COLOUR.sub("", lines.decode(errors="replace")))
    return str(found[-1]) if found else ""


def last_line(lines: bytes) -> str:
    """Return the last line that is not blank, without colours, as a progress bar would show it."""
    for line in reversed(lines.decode(errors="replace").splitlines()):
        shown = _COLOUR.sub("", line).rstrip("\r").rpartition("\r")[2].strip()
        if shown:
            return shown
    return ""


def last_progress(lines: bytes, among: int = 50) -> Progress | None:
    """Return the progress that the last line which tells one tells."""
    for line in reversed(lines.decode(errors="replace").splitlines()[-among:]):
        if found := parse(_COLOUR.sub("", line)):
            return found
    return None
