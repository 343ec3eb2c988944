"""`paddlejob runs`: what ran and runs on this machine."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from paddlejob.api.v1 import Phase, Role
from paddlejob.cli.local import shared
from paddlejob.local.store import outcome, run_directory
from paddlejob.local.store.run_directory import RunDirectory, RunRecord

WIDE = ("MODE", "PS", "DIRECTORY")


class Listed(NamedTuple):
    """A run and its record."""

    run: RunDirectory
    record: RunRecord
    state: str


@click.command("runs")
@click.argument("names", nargs=-1, metavar="[RUN]...", shell_complete=shared.complete_runs)
@shared.output_option("text", "wide", "json", "yaml", "name")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Only the newest runs.")
@shared.directory_option
def command(names: tuple[str, ...], form: str, limit: int | None, runs: Path) -> None:
    """List the runs on this machine, or only each RUN, newest first.

    WORKERS is running/wanted while a run lasts, then what became of them. RESULT is the last line of worker 0
    that tells one, or why the run failed; while it lasts, how far it is.
    """
    with shared.errors_shown():
        chosen = [run_directory.find(runs, name) for name in names] or run_directory.all_runs(runs)
        found = [
            Listed(run, record, state_of(run, record)) for run in chosen if (record := run.read_record())
        ]
        if not found and form in ("text", "wide"):
            click.echo(f"there are no runs in {runs}; start one with `paddlejob run FILE`", err=True)
        elif form in ("text", "wide"):
            _print_table(found[:limit], is_wide=form == "wide")
        else:
            for each in found[:limit]:
                shared.print_object(form, each.run.name, _object(each))


def state_of(run: RunDirectory, record: RunRecord) -> str:
    """Return how a run stands; one whose runner was killed is lost."""
    if record.result:
        return record.result
    return str(record.job.status.phase) or "Pending" if run.is_alive else "Lost"


def _object(each: Listed) -> dict[str, object]:
    record = each.record
    return {
        "run": each.run.name,
        "state": each.state,
        "directory": str(each.run.path),
        "python": record.python,
        "outcome": msgspec.to_builtins(record.outcome),
        "status": msgspec.to_builtins(record.job.status),
    }


def _print_table(found: list[Listed], *, is_wide: bool) -> None:
    headings = ("RUN", "STATE", "WORKERS", "RESTARTS", "AGE", "TOOK", *(WIDE if is_wide else ()), "RESULT")
    rows = [headings, *(_cells(each, is_wide=is_wide) for each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    # A long result must not wrap at a terminal; whoever reads from a pipe wants all of it.
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(line if room is None or len(line) <= room else f"{line[: room - 1]}…")


def _cells(each: Listed, *, is_wide: bool) -> tuple[str, ...]:
    began, ended = each.run.began, each.run.recorded
    return (
        each.run.name,
        each.state,
        _pods(each, Role.WORKER),
        str(_restarts(each.record)),
        _span(time.time() - began),
        "" if each.run.is_alive else _span(ended - began),
        *((each.record.job.status.mode, _pods(each, Role.PS), str(each.run.path)) if is_wide else ()),
        _result(each),
    )


def _pods(each: Listed, role: Role) -> str:
    """Return how the pods of a role stand: `1/2` run, `2 done`, `1 failed`, `2 stopped`."""
    job = each.record.job
    wanted, status = job.spec.replicas(role), {Role.PS: job.status.ps, Role.WORKER: job.status.worker}[role]
    if not wanted or status is None:
        return "-"
    if each.run.is_alive and not each.record.result:
        return status.ready
    if status.failed:
        return f"{status.failed} failed"
    if status.succeeded and each.state == Phase.COMPLETED:
        return f"{status.succeeded} done"
    return f"{wanted} stopped"


def _restarts(record: RunRecord) -> int:
    """Return how often the job was restarted as a whole, or its most restarted pod by itself."""
    by_pod = (sum(each.restart_count for each in pod.status.container_statuses) for pod in record.pods)
    return record.job.status.restarts + max(by_pod, default=0)


def _result(each: Listed) -> str:
    record = each.record
    match each.state:
        case Phase.COMPLETED:
            return record.outcome.summary
        case Phase.FAILED:
            return record.job.status.message
    return outcome.summary(each.run, record.job)


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"
