"""Tables, JSON, YAML and names of jobs."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob, RoleStatus, TrainingProgress
from paddlejob.cli.terminal import say
from paddlejob.client.job import Job, running_seconds
from paddlejob.text import duration as seconds_text
from paddlejob.text import printable

FORMS = ("json", "yaml", "name", "wide")
_GAP = "   "

HEADINGS = ("NAME", "STATUS", "MODE", "PS", "WORKER", "PROGRESS", "DURATION", "AGE", "REASON")
WIDE_HEADINGS = (*HEADINGS, "HETER", "ATTEMPT", "RESTARTS", "LOSS", "ETA", "MESSAGE")
_C1_CONTROL = re.compile("[\x7f-\x9f]")
"""Control characters that JSON allows in a string."""


def output_option(*forms: str) -> Callable[..., Any]:
    """Add -o."""
    return click.option(
        "--output", "-o", "form", type=click.Choice(forms), default=None, help="Output format."
    )


def print_object(body: Any, form: str) -> None:
    """Print an object as JSON or YAML."""
    if form == "json":
        say(json_text(body))
        return
    import yaml  # noqa: PLC0415 - takes long to import

    say(yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=2**16), nl=False)


def json_text(value: Any) -> str:
    """Return a value as indented JSON with all control characters escaped."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=4).decode()
    return _C1_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_jobs(jobs: Sequence[Job], form: str, *, as_list: bool) -> None:
    """Print jobs as names, JSON or YAML."""
    if form == "name":
        for job in jobs:
            say(job.kind_and_name)
        return
    bodies: list[JsonObject] = [without_managed_fields(job.printed) for job in jobs]
    if as_list:
        print_object({"apiVersion": "v1", "kind": "List", "items": bodies}, form)
        return
    for body in bodies:
        if form == "yaml" and len(bodies) > 1:
            say("---")
        print_object(body, form)


def without_managed_fields(body: JsonObject) -> JsonObject:
    """Return an object without managedFields, as kubectl shows it."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": metadata}


def table(rows: Sequence[Sequence[str]], widths: list[int] | None = None) -> str:
    """Return rows in columns; the first row usually has the headings.

    `widths` receives the widths of the columns, for rows that are printed later.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [] if widths is None else widths
    if not widths:
        widths += [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def cut_to_terminal(text: str) -> str:
    """Shorten lines that would wrap at the terminal; a pipe or a file gets all of them."""
    if not sys.stdout.isatty():
        return text
    room = shutil.get_terminal_size().columns
    return "\n".join(line if len(line) <= room else f"{line[: room - 1]}…" for line in text.splitlines())


def headings(*, is_local: bool, wide: bool = False) -> tuple[str, ...]:
    """Return the headings of `row`; a run on this machine has a result instead of a reason."""
    found = WIDE_HEADINGS if wide else HEADINGS
    return tuple("RESULT" if is_local and each == "REASON" else each for each in found)


def row(job: Job, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    """Return the cells of a job."""
    state, status = job.state, job.state.status
    cells = (
        job.name,
        job.phase,
        status.mode or "-",
        _pods(status.ps, status.phase),
        _pods(status.worker, status.phase),
        _progress(status.progress),
        running(state, now),
        duration(state.metadata.creation_timestamp, None, now),
        "Undecodable" if state.undecodable else job.result or "-",
    )
    if not wide:
        return cells
    heter = _pods(status.heter, status.phase)
    message = state.undecodable or status.message or "-"
    loss, eta = (status.progress.loss, status.progress.eta) if status.progress else ("", "")
    eta = "" if status.phase.is_terminal else eta
    return (*cells, heter, str(status.attempt), str(job.restarts), loss or "-", eta or "-", message)


def _pods(role: RoleStatus | None, phase: str) -> str:
    """Return how many pods of a role are ready, or succeeded or failed after the end of the job."""
    if role is None:
        return "-"
    if phase == "Completed" and role.succeeded:
        return f"{role.succeeded} done"
    if phase == "Failed" and role.failed:
        return f"{role.failed} failed"
    return role.ready


def _progress(progress: TrainingProgress | None) -> str:
    """Return the progress in percent, or else as an epoch or step."""
    if progress is None:
        return "-"
    if progress.percent is not None:
        return f"{progress.percent}%"
    if progress.epoch:
        return f"epoch {progress.epoch}"
    return f"step {progress.step}" if progress.step else "-"


def training(progress: TrainingProgress | None, *, is_over: bool = False) -> str:
    """Return the progress of training in one line: epoch, step, percent, loss, throughput, phase and ETA."""
    if progress is None:
        return ""
    parts = (
        _of_total("epoch", progress.epoch, progress.epochs),
        _of_total("step", progress.step, progress.steps),
        "" if progress.percent is None else f"{progress.percent}%",
        progress.loss and f"loss {progress.loss}",
        progress.throughput,
        progress.phase if progress.phase != "training" and not is_over else "",
        f"ETA {progress.eta}" if progress.eta and not is_over else "",
    )
    return ", ".join(filter(None, parts))


def _of_total(unit: str, number: int, total: int) -> str:
    """Return `step 3/10`, or `step 3` if the total is unknown or exceeded."""
    if not number:
        return ""
    return f"{unit} {number}/{total}" if total >= number else f"{unit} {number}"


def duration(begin: datetime | None, end: datetime | None, now: datetime | None = None) -> str:
    """Return the time between two moments, or until now, as kubectl writes it."""
    if begin is None:
        return "-"
    return seconds_text(((end or now or datetime.now(UTC)) - begin).total_seconds())


def running(state: PaddleJob, now: datetime | None = None) -> str:
    """Return how long a job has run, without suspensions, as kubectl writes it."""
    seconds = running_seconds(state, now or datetime.now(UTC))
    return "-" if seconds is None else seconds_text(seconds)


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values in two columns; pairs without a value are left out."""
    present = [(f"{name}:", printable(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in present), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in present)
