"""`paddlejob runs`: what ran and runs on this machine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from paddlejob.cli.local import shared
from paddlejob.local.store import run_directory
from paddlejob.local.store.run_directory import RunDirectory, RunRecord

HEADINGS = ("RUN", "STATE", "MODE", "PS", "WORKER", "AGE", "TOOK")


@click.command("runs")
@click.option("--output", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@shared.directory_option
def command(form: str, runs: Path) -> None:
    """List the runs on this machine, newest first."""
    found = [(run, record) for run in run_directory.all_runs(runs) if (record := run.read_record())]
    if form == "json":
        for run, record in found:
            line = {"run": run.name, "state": state_of(run, record), "directory": str(run.path)}
            click.echo(msgspec.json.encode({**line, "status": record.job.status}))
        return
    if not found:
        click.echo(f"there are no runs in {runs}; start one with `paddlejob run FILE`", err=True)
        return
    for cells in (HEADINGS, *(_cells(run, record) for run, record in found)):
        click.echo(_line(cells, found))


def state_of(run: RunDirectory, record: RunRecord) -> str:
    """Return how a run stands; one whose runner was killed is lost."""
    if record.result:
        return record.result
    return str(record.job.status.phase) or "Pending" if run.is_alive else "Lost"


def _cells(run: RunDirectory, record: RunRecord) -> tuple[str, ...]:
    status, created = record.job.status, record.job.metadata.creation_timestamp
    now = datetime.now(UTC)
    ended = status.completion_time
    return (
        run.name,
        state_of(run, record),
        status.mode,
        status.ps.ready if status.ps and record.job.spec.ps else "-",
        status.worker.ready if status.worker else "-",
        _span((now - created).total_seconds()) if created else "",
        _span((ended - created).total_seconds()) if ended and created else "",
    )


def _line(cells: tuple[str, ...], found: list[tuple[RunDirectory, RunRecord]]) -> str:
    widest = max(len(run.name) for run, _ in found)
    widths = (max(widest, 3), 11, 10, 5, 6, 6, 6)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"
