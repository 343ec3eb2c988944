"""`paddlejob suspend`: stop the pods of a live run until it is resumed."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.control import Command, send


@click.command("suspend")
@shared.run_argument
@shared.directory_option
def command(run: str, runs: Path) -> None:
    """Stop the pods of RUN until `resume`; without RUN, of the only live run."""
    with shared.errors_shown():
        found = shared.find_live(runs, run)
        click.echo(f"{found.name}: {send(found, Command('suspend'))}")
