"""`stack`: the call stacks of the ranks of a job."""

from __future__ import annotations

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.streams.stacks import format_stacks


@click.command("stack")
@shared.shown_job
@click.option(
    "--rank",
    "-r",
    default="all",
    show_default=True,
    metavar="RANK",
    help="Rank (0), pod (heter-1) or role.",
    shell_complete=shared.complete_ranks,
)
@click.option("--all-threads", is_flag=True, help="Show all threads, not only the main one.")
@target_flags
def command(target: Target, job: str, rank: str, all_threads: bool) -> None:
    """Show the current call stack of each rank of JOB, innermost call first.

    Ranks with the same stack are shown once. The job needs the recorder, and you need permission to exec into
    pods.
    """
    shared.run(_stack(target, job, rank, all_threads=all_threads))


async def _stack(target: Target, name: str, rank: str, *, all_threads: bool) -> int:
    async with target.open() as jobs:
        job = await jobs.get(name)
        say(format_stacks(await job.stacks(rank), all_threads=all_threads))
    return 0
