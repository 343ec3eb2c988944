"""`paddlejob delete`: end a live run, or remove the traces of one that has ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from paddlejob.cli import local_runs
from paddlejob.local.control import Command, send
from paddlejob.local.errors import InputError
from paddlejob.local.store import run_directory


@click.command("delete")
@click.argument("run")
@local_runs.directory_option
def command(run: str, runs: Path) -> None:
    """End RUN if it lives; if it has ended, remove its logs and everything else it left."""
    with local_runs.errors_shown():
        if not run:
            raise InputError("RUN is empty; give the name of a run")
        found = run_directory.choose(runs, run, live=False)
        if found.is_alive:
            click.echo(
                f"{found.name}: {send(found, Command('delete'))}; its traces stay until it is deleted again"
            )
            return
        shutil.rmtree(found.path)
        click.echo(f"{found.name}: removed")
