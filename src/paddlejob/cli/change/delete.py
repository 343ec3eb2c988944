"""`delete`: delete jobs with everything that belongs to them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.errors import ClientError
from paddlejob.client.job import Job, Jobs

MAX_NAMED = 5


@click.command("delete")
@click.argument("names", nargs=-1, metavar="[JOB]...", shell_complete=shared.complete_jobs)
@click.option("--all-finished", is_flag=True, help="Delete all jobs that have ended.")
@click.option(
    "--older-than",
    type=shared.Duration(),
    default=None,
    help="Delete jobs that ended longer ago than this, e.g. 7d.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", "waits", default=True, help="Wait until the job is deleted; the default.")
@click.option("--timeout", type=shared.Duration(), default=None, help="Longest time to wait, e.g. 1m.")
@target_flags
def command(
    target: Target,
    names: tuple[str, ...],
    all_finished: bool,
    older_than: float | None,
    yes: bool,
    waits: bool,
    timeout: float | None,
) -> None:
    """Delete each JOB with its pods, logs and files. At a terminal you are asked first.

    Without a terminal, --yes is needed for --all-finished and --older-than, and for a run on this machine
    with files.
    """
    if not names and not all_finished and older_than is None:
        raise click.UsageError("give the name of a JOB, --all-finished or --older-than")
    seconds = 0.0 if all_finished and older_than is None else older_than
    shared.run(_delete(target, names, seconds, yes=yes, waits=waits, timeout_seconds=timeout))


async def _delete(
    target: Target,
    names: tuple[str, ...],
    older_than: float | None,
    *,
    yes: bool,
    waits: bool,
    timeout_seconds: float | None,
) -> int:
    async with target.open() as jobs:
        # Nothing is deleted unless everything can be.
        named = [await jobs.get_only(name) for name in names]
        matched = [] if older_than is None else await _finished(jobs, older_than)
        found = [*{(job.namespace, job.name): job for job in (*named, *matched)}.values()]
        if busy := [job.name for job in found if await job.is_at_work()]:
            hint = target.command(f"stop {busy[0]}")
            raise ClientError(f"{busy[0]} is running; stop it first with `{hint}`")
        if found and not yes and not _may_delete(found, target, is_chosen_by_age=bool(matched)):
            say("nothing was deleted", err=True)
            return shared.FAILED
        for job in found:
            say(f"{job.kind_and_name} {await job.delete()}")
        if waits and not target.is_local:
            for job in found:
                await job.wait("deleted", timeout_seconds=timeout_seconds)
    return 0


async def _finished(jobs: Jobs, seconds: float) -> list[Job]:
    """Return the jobs that ended at least this long ago, by their creation if their end is not known."""
    found = [job for job in await jobs.list() if job.state.status.phase.is_terminal]
    if not seconds:
        return found
    try:
        before = datetime.now(UTC) - timedelta(seconds=seconds)
    except OverflowError:
        return []
    ends = [job.state.status.completion_time or job.state.metadata.creation_timestamp for job in found]
    return [job for job, end in zip(found, ends, strict=True) if end and end <= before]


def _may_delete(found: list[Job], target: Target, *, is_chosen_by_age: bool) -> bool:
    """Ask at a terminal. Raises ClientError without one for files, and for jobs that were not named."""
    files = {job.name: written for job in found if (written := job.written_file())}
    listed = ", ".join(job.name for job in found[:MAX_NAMED])
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    if not sys.stdin.isatty():
        if is_chosen_by_age:
            raise ClientError(f"this would delete {listed}{more}; pass --yes to delete without a question")
        for name, written in files.items():
            raise ClientError(f"{name} has files such as {written}; pass --yes to delete them")
        return True
    for name, written in [*files.items()][:MAX_NAMED]:
        say(f"{name} has files such as {written}", err=True)
    place = "this machine" if target.is_local else f"namespace {found[0].namespace}"
    parts = "logs and files" if target.is_local else "pods and logs"
    return shared.confirm(f"Delete {listed}{more} from {place}, with all {parts}?")
