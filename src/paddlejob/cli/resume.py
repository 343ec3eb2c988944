"""`paddlejob resume`: bring the pods of a suspended run back."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli import local_runs
from paddlejob.local.control import Command, send


@click.command("resume")
@local_runs.run_argument
@local_runs.directory_option
def command(run: str, runs: Path) -> None:
    """Start the pods of a suspended RUN again; without RUN, of the only live one."""
    with local_runs.errors_shown():
        found = local_runs.find_live(runs, run)
        click.echo(f"{found.name}: {send(found, Command('resume'))}")
