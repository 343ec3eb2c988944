"""`paddlejob rm`: remove the logs and files of finished runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.store import files, run_directory
from paddlejob.local.store.run_directory import RunDirectory

MOST_NAMED = 5


@click.command("rm")
@click.argument("names", nargs=-1, metavar="[RUN]...", shell_complete=shared.complete_runs)
@click.option("--all-finished", is_flag=True, help="Remove every run that has ended.")
@click.option("--older-than", default="", metavar="AGE", help="Remove finished runs of this age, e.g. 7d.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before removing files that programs wrote.")
@shared.directory_option
def command(names: tuple[str, ...], all_finished: bool, older_than: str, yes: bool, runs: Path) -> None:
    """Remove the logs, status and files of each finished RUN.

    RUN is the full name of a run, or of a job that has only one. A live run is stopped with `paddlejob stop`.
    """
    with shared.errors_shown():
        chosen = _chosen(runs, names, all_finished=all_finished, older_than=older_than)
        if not yes:
            _ask(chosen)
        for run in chosen:
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


def _ask(chosen: list[RunDirectory]) -> None:
    """Ask before files that programs wrote, such as models, are lost. Raises InputError for no."""
    found = [(run, written) for run in chosen if (written := files.written(run, 2))]
    for run, written in found[:MOST_NAMED]:
        more = " and more" if len(written) > 1 else ""
        click.echo(f"{run.name} has files: {written[0].path}{more}", err=True)
    if len(found) > MOST_NAMED:
        click.echo(f"and {len(found) - MOST_NAMED} more runs have files", err=True)
    if not found:
        return
    if not sys.stdin.isatty():
        raise InputError(
            "nothing was removed; pass --yes to remove these files, or copy them with `paddlejob cp`"
        )
    if not click.confirm(f"remove {'it' if len(chosen) == 1 else f'all {len(chosen)} runs'}?", err=True):
        raise InputError("nothing was removed")
