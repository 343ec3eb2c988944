"""`paddlejob stop`: end live runs; their logs and files stay."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.control import Command, send


@click.command("stop")
@click.argument("names", nargs=-1, required=True, metavar="RUN...", shell_complete=shared.complete_runs)
@shared.directory_option
def command(names: tuple[str, ...], runs: Path) -> None:
    """Stop each live RUN; its pods may save their work. Logs and files stay until `paddlejob rm`.

    RUN is the full name of a run, or of a job that has only one live run.
    """
    with shared.errors_shown():
        for run in [shared.find_live(runs, shared.not_empty(name)) for name in names]:
            click.echo(f"{run.name}: {send(run, Command('stop'))}")
