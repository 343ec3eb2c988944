"""`paddlejob scale`: another number of workers for a live run."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli import local_runs
from paddlejob.local.control import Command, send


@click.command("scale")
@click.argument("run")
@click.argument("workers", type=int)
@local_runs.directory_option
def command(run: str, workers: int, runs: Path) -> None:
    """Give RUN another number of WORKERS."""
    with local_runs.errors_shown():
        found = local_runs.find_live(runs, run)
        click.echo(f"{found.name}: {send(found, Command('scale', workers))}")
