"""How jobs are printed: tables as kubectl prints them, JSON, YAML and names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from paddlejob.cli.terminal import json_text, say

if TYPE_CHECKING:
    from paddlejob.api.meta import JsonObject
    from paddlejob.api.v1 import PaddleJob, RoleStatus, TrainingProgress
    from paddlejob.client.job import Job

FORMS = ("json", "yaml", "name", "wide")
_GAP = "   "

HEADINGS = ("NAME", "STATUS", "MODE", "PS", "WORKER", "PROGRESS", "DURATION", "AGE", "REASON")
WIDE_HEADINGS = (*HEADINGS, "HETER", "ATTEMPT", "RESTARTS", "LOSS", "ETA", "MESSAGE")


def output_option(*forms: str) -> Callable[..., Any]:
    """Add -o."""
    return click.option(
        "--output", "-o", "form", type=click.Choice(forms or FORMS), default=None, help="Output format."
    )


def print_object(body: Any, form: str) -> None:
    """Print an object as JSON or YAML."""
    if form == "json":
        say(json_text(body))
        return
    import yaml  # noqa: PLC0415

    say(yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=2**16), nl=False)


def print_jobs(jobs: Sequence[Job], form: str, *, as_list: bool) -> None:
    """Print whole jobs: one as itself, several as a List."""
    if form == "name":
        for job in jobs:
            say(job.kind_and_name)
        return
    bodies: list[JsonObject] = [without_managed_fields(job.body) for job in jobs]
    if as_list:
        print_object({"apiVersion": "v1", "kind": "List", "items": bodies}, form)
        return
    for body in bodies:
        if form == "yaml" and len(bodies) > 1:
            say("---")
        print_object(body, form)


def without_managed_fields(body: JsonObject) -> JsonObject:
    """Leave out what nobody reads, as kubectl does."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": metadata}


def table(rows: Sequence[Sequence[str]], widths: list[int] | None = None) -> str:
    """Return rows, the first of which has the headings, in columns; `widths` are kept for further rows.

    A cell stays in its place, whatever is in it.
    """
    rows = [_on_one_line(row) for row in rows]
    widths = [] if widths is None else widths
    if not widths:
        widths += [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _on_one_line(cells: Sequence[str]) -> list[str]:
    from paddlejob.core.messages import printable  # noqa: PLC0415 - not needed for help

    return [printable(cell) for cell in cells]


def row(job: Job, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    """Return a job's cells."""
    state, status = job.state, job.state.status
    cells = (
        job.name,
        str(status.phase) or "Pending",
        status.mode or "-",
        _pods(status.ps, status.phase),
        _pods(status.worker, status.phase),
        _progress(status.progress),
        running(state, now),
        duration(state.metadata.creation_timestamp, None, now),
        "Undecodable" if state.undecodable else status.reason or "-",
    )
    if not wide:
        return cells
    heter = _pods(status.heter, status.phase)
    message = state.undecodable or status.message or "-"
    loss, eta = (status.progress.loss, status.progress.eta) if status.progress else ("", "")
    return (*cells, heter, str(status.attempt), str(status.restarts), loss or "-", eta or "-", message)


def _pods(role: RoleStatus | None, phase: str) -> str:
    """Return how many pods of a role run; `0/2` of a completed job would read as a failure."""
    if role is None:
        return "-"
    if phase == "Completed" and role.succeeded:
        return f"{role.succeeded} done"
    if phase == "Failed" and role.failed:
        return f"{role.failed} failed"
    return role.ready


def _progress(progress: TrainingProgress | None) -> str:
    """Return how far training is, in percent where that is known."""
    if progress is None:
        return "-"
    if progress.percent is not None:
        return f"{progress.percent}%"
    return f"epoch {progress.epoch}" if progress.epoch else f"step {progress.step}"


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
    """Return `step 3/10`; a total that the number has passed counts something else."""
    if not number:
        return ""
    return f"{unit} {number}/{total}" if total >= number else f"{unit} {number}"


def duration(begin: datetime | None, end: datetime | None, now: datetime | None = None) -> str:
    """Return the time from one moment to another, or to now, as kubectl does."""
    if begin is None:
        return "-"
    from paddlejob.core import messages  # noqa: PLC0415 - not needed for help

    return messages.duration(((end or now or datetime.now(UTC)) - begin).total_seconds())


def running(state: PaddleJob, now: datetime | None = None) -> str:
    """Return how long a job has run, suspensions apart, as kubectl does."""
    from paddlejob.client.job import running_seconds  # noqa: PLC0415 - not needed for help
    from paddlejob.core import messages  # noqa: PLC0415

    seconds = running_seconds(state, now or datetime.now(UTC))
    return "-" if seconds is None else messages.duration(seconds)


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values in two columns, without those that have no value."""
    present = [_on_one_line((f"{name}:", value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in present), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in present)
