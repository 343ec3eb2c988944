"""`paddlejob rm`: remove the logs and files of finished runs."""

from __future__ import annotations

import time
from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.store import run_directory
from paddlejob.local.store.run_directory import RunDirectory


@click.command("rm")
@click.argument("names", nargs=-1, metavar="[RUN]...")
@click.option("--all-finished", is_flag=True, help="Remove every run that has ended.")
@click.option("--older-than", default="", metavar="AGE", help="Remove finished runs of this age, e.g. 7d.")
@shared.directory_option
def command(names: tuple[str, ...], all_finished: bool, older_than: str, runs: Path) -> None:
    """Remove the logs, status and files of each finished RUN.

    RUN is the full name of a run, or of a job that has only one. A live run is stopped with `paddlejob stop`.
    """
    with shared.errors_shown():
        for run in _chosen(runs, names, all_finished=all_finished, older_than=older_than):
            run.remove()
            click.echo(f"{run.name}: removed")


def _chosen(runs: Path, names: tuple[str, ...], *, all_finished: bool, older_than: str) -> list[RunDirectory]:
    """Return what to remove; nothing is removed unless everything that was named can be."""
    if not names and not all_finished and not older_than:
        raise InputError("name a run, or pass --all-finished or --older-than AGE")
    named = [run_directory.choose(runs, shared.not_empty(name), live=False) for name in names]
    if alive := [run.name for run in named if run.is_alive]:
        raise InputError(f"{alive[0]} is running; stop it first with `paddlejob stop {alive[0]}`")
    if not all_finished and not older_than:
        return named
    before = time.time() - shared.seconds_of("--older-than", older_than or "0s")
    old = [run for run in run_directory.all_runs(runs) if run.began <= before and not run.is_alive]
    return [*named, *(run for run in old if run.name not in {each.name for each in named})]
