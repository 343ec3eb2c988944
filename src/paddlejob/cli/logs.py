"""`paddlejob logs`: what the pods of a run said."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from paddlejob.cli import local_runs
from paddlejob.local.errors import InputError
from paddlejob.local.logs import Follower, Lines, Prefixes, chosen_pods
from paddlejob.local.run_directory import RunDirectory

LOOK_SECONDS = 0.2


@click.command("logs")
@local_runs.run_argument
@click.option(
    "--rank", "-r", default="all", metavar="RANK", help="Of one worker, or of one pod such as ps-1."
)
@click.option("--follow", "-f", is_flag=True, help="Go on while the run lasts.")
@local_runs.directory_option
def command(run: str, rank: str, follow: bool, runs: Path) -> None:
    """Show the logs of RUN, of all its pods or of one; without RUN, of the newest."""
    with local_runs.errors_shown():
        found = local_runs.find(runs, run)
        record = found.read_record()
        job = record.job.name if record else found.name.rpartition("-")[0]
        present = [each.name for each in (found.path / "logs").iterdir()]
        pods = chosen_pods(job, rank, present)
        if present and not pods:
            raise InputError(f"{found.name} has no rank {rank}; it has {', '.join(sorted(present))}")
        _print(found, Prefixes(job, colours=sys.stdout.isatty()), rank, follow, job)


def _print(run: RunDirectory, prefixes: Prefixes, rank: str, follow: bool, job: str) -> None:
    follower = Follower(run)

    def show(lines: Lines) -> None:
        if chosen_pods(job, rank, (lines.pod,)):
            alone = rank != "all" and not sys.stdout.isatty()
            text = lines.text if alone else prefixes.apply(lines.text, prefixes.label(lines))
            sys.stdout.buffer.write(text)

    while follow and run.is_alive:
        for lines in follower.poll():
            show(lines)
        sys.stdout.flush()
        time.sleep(LOOK_SECONDS)
    for lines in follower.rest():
        show(lines)
    follower.close()
    sys.stdout.flush()
