"""`paddlejob scale`: set the number of workers of a live run."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.control import Command, send


@click.command("scale")
@click.argument("run", shell_complete=shared.complete_runs)
@click.argument("workers", type=int)
@shared.directory_option
def command(run: str, workers: int, runs: Path) -> None:
    """Set the number of workers of RUN."""
    with shared.errors_shown():
        found = shared.find_live(runs, run)
        click.echo(f"{found.name}: {send(found, Command('scale', workers))}")
