"""`paddlejob resume`: start the pods of a suspended run again."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.control import Command, send


@click.command("resume")
@shared.run_argument
@shared.directory_option
def command(run: str, runs: Path) -> None:
    """Start the pods of a suspended RUN again; without RUN, of the only live run."""
    with shared.errors_shown():
        found = shared.find_live(runs, run)
        click.echo(f"{found.name}: {send(found, Command('resume'))}")
