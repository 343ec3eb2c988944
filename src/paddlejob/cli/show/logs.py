"""`logs`: the logs of the ranks of a job."""

from __future__ import annotations

import click

from paddlejob.cli import shared
from paddlejob.cli.follow import LogPrinter, print_first_error, print_logs, verdict
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.logs.model import LogQuery


@click.command("logs")
@shared.shown_job
@click.option(
    "--rank",
    "-r",
    default="all",
    metavar="RANK",
    help="Only this rank (0), pod (ps-1) or role (ps).",
    shell_complete=shared.complete_ranks,
)
@click.option("--follow", "-f", is_flag=True, help="Follow the logs until the job ends, across restarts.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, help="Only the last lines of each container."
)
@click.option(
    "--since",
    type=shared.Duration(),
    default=None,
    help="Only lines newer than this, e.g. 10m, 2h; 10 means seconds.",
)
@click.option("--timestamps", is_flag=True, help="Print a timestamp for each line.")
@click.option(
    "--previous", "-p", is_flag=True, help="Show the lines before the last restart of a container or program."
)
@click.option("--first-error", is_flag=True, help="Show the traceback of the rank that failed first.")
@shared.container_option
@click.option("--all-containers", is_flag=True, help="Show all containers of each pod, init containers too.")
@click.option("--prefix/--no-prefix", default=None, help="Print the rank in front of each line.")
@click.option(
    "--max-log-requests",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Maximum number of logs to read at a time.",
)
@target_flags
def command(
    target: Target,
    job: str,
    rank: str,
    follow: bool,
    tail: int | None,
    since: float | None,
    timestamps: bool,
    previous: bool,
    first_error: bool,
    container: str,
    all_containers: bool,
    prefix: bool | None,
    max_log_requests: int,
) -> None:
    """Show or follow the logs of all ranks of JOB, in order of time.

    -f can start before the first pod exists, continues across restarts, and ends with the job. The exit code
    is then 0 if the job completed, 1 if it failed.
    """
    if follow and (previous or first_error):
        raise click.UsageError("-f does not work with --previous or --first-error")

    query = LogQuery(
        rank=rank,
        follow=follow,
        since_seconds=since,
        tail=tail,
        previous=previous,
        container=container,
        all_containers=all_containers,
        max_requests=max_log_requests,
    )
    if first_error:
        shared.run(_first_error(target, job))
    shared.run(_logs(target, job, query, timestamps=timestamps, prefix=prefix))


async def _logs(target: Target, name: str, query: LogQuery, *, timestamps: bool, prefix: bool | None) -> int:
    async with target.open() as jobs:
        job = await jobs.get(name)
        printer = LogPrinter(query.rank, timestamps=timestamps, prefix=prefix)
        await print_logs(job, query, printer)
        if query.follow:
            return await verdict(job, with_lines=False)
        if not printer.has_printed:
            reason = f": {job.state.status.message}" if job.state.status.phase.is_terminal else ""
            say(f"{job.name} has no output to show{reason}", err=True)
    return 0


async def _first_error(target: Target, name: str) -> int:
    async with target.open() as jobs:
        job = await jobs.get(name)
        if (first := await job.first_error()) is None:
            say(f"{job.name} has not failed", err=True)
        else:
            print_first_error(first)
    return 0
