"""`paddlejob suspend`: take the pods of a live run away."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli import local_runs
from paddlejob.local.control import Command, send


@click.command("suspend")
@local_runs.run_argument
@local_runs.directory_option
def command(run: str, runs: Path) -> None:
    """Stop the pods of RUN, to be resumed later; without RUN, of the only live one."""
    with local_runs.errors_shown():
        found = local_runs.find_live(runs, run)
        click.echo(f"{found.name}: {send(found, Command('suspend'))}")
