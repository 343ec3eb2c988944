"""`scale`, `suspend`, `resume`, `stop`, `retry` and `delete`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from paddlejob.cli.cluster import output, shared
from paddlejob.cli.cluster.flags import Target, target_flags
from paddlejob.cli.terminal import say

if TYPE_CHECKING:
    from paddlejob.client.job import Job


@click.command("scale")
@shared.job_argument
@click.argument("workers", type=click.IntRange(min=0), required=False, metavar="[WORKERS]")
@click.option("--replicas", type=click.IntRange(min=0), default=None, help="Number of workers.")
@target_flags
def scale(target: Target, job: str, workers: int | None, replicas: int | None) -> None:
    """Change the number of workers of JOB: `scale JOB 4` or `scale JOB --replicas=4`."""
    if (workers is None) == (replicas is None):
        raise click.UsageError("give the number of workers once, as WORKERS or --replicas")
    number = workers if workers is not None else replicas
    assert number is not None
    shared.run(shared.each(target, (job,), lambda found: found.scale(number)))


@click.command("suspend")
@shared.jobs_argument
@target_flags
def suspend(target: Target, names: tuple[str, ...]) -> None:
    """Stop the pods of each JOB until `resume`; the job stays."""
    shared.run(shared.each(target, names, lambda job: job.suspend()))


@click.command("resume")
@shared.jobs_argument
@target_flags
def resume(target: Target, names: tuple[str, ...]) -> None:
    """Start the pods of each suspended JOB again."""
    shared.run(shared.each(target, names, lambda job: job.resume()))


@click.command("stop")
@shared.jobs_argument
@target_flags
def stop(target: Target, names: tuple[str, ...]) -> None:
    """Stop the pods of each JOB and keep the job; on a cluster this is `suspend`."""
    shared.run(shared.each(target, names, lambda job: job.stop()))


@click.command("retry")
@shared.job_argument
@output.output_option("json", "yaml", "name")
@target_flags
def retry(target: Target, job: str, form: str | None) -> None:
    """Run a finished JOB again, as a new job with a generated name."""
    shared.run(_retry(target, job, form))


async def _retry(target: Target, name: str, form: str | None) -> int:
    async with target.open() as jobs:
        new = await (await jobs.get(name)).retry()
        if form:
            output.print_jobs([new], form, as_list=False)
        else:
            say(f"{new.kind_and_name} created; follow it with `{target.command} logs -f {new.name}`")
    return 0


@click.command("delete")
@shared.jobs_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", "waits", default=True, help="Wait until the job is deleted; the default.")
@click.option("--timeout", type=shared.Duration(), default=None, help="Longest time to wait, e.g. 1m.")
@target_flags
def delete(target: Target, names: tuple[str, ...], yes: bool, waits: bool, timeout: float | None) -> None:
    """Delete each JOB, its pods and their logs. The names must be exact; on a terminal you are asked."""
    shared.run(_delete(target, names, yes=yes, waits=waits, seconds=timeout))


async def _delete(
    target: Target, names: tuple[str, ...], *, yes: bool, waits: bool, seconds: float | None
) -> int:
    async with target.open() as jobs:
        found = await shared.find(jobs, names)
        _check_exact(names, found)
        await _check_ended(found)
        if not yes and sys.stdin.isatty():
            listed = ", ".join(job.name for job in found)
            place = "this machine" if target.is_local else f"namespace {found[0].namespace}"
            parts = "logs and files" if target.is_local else "pods and logs"
            if not shared.agrees(f"Delete {listed} from {place}, with all {parts}?"):
                return shared.FAILED
        elif not yes and target.is_local:
            _keep_files(found)
        for job in found:
            say(f"{job.kind_and_name} {await job.delete()}")
        if waits and not target.is_local:
            for job in found:
                await job.wait("deleted", timeout_seconds=seconds)
    return 0


def _check_exact(names: tuple[str, ...], found: list[Job]) -> None:
    """Raise ClientError where a run was found by the name of its job, which a later one may have too."""
    from paddlejob.client.errors import ClientError  # noqa: PLC0415
    from paddlejob.client.job import LATEST  # noqa: PLC0415

    for name, job in zip(names, found, strict=True):
        if name != LATEST and name.rpartition("/")[2] != job.name:
            raise ClientError(f"there is no run {name}; did you mean {job.name}?")


async def _check_ended(found: list[Job]) -> None:
    """Raise ClientError for a live local run, before a question is asked."""
    from paddlejob.client.errors import ClientError  # noqa: PLC0415
    from paddlejob.client.local_runs import LocalJob  # noqa: PLC0415

    for job in found:
        if isinstance(job, LocalJob) and await job.is_at_work():
            raise ClientError(f"{job.name} is running; stop it first with `paddlejob stop {job.name}`")


def _keep_files(found: list[Job]) -> None:
    """Raise ClientError when local runs have files of their programs, such as models, which would be lost."""
    from paddlejob.client.errors import ClientError  # noqa: PLC0415
    from paddlejob.client.local_runs import LocalJob  # noqa: PLC0415
    from paddlejob.local.store import files  # noqa: PLC0415

    for job in found:
        if isinstance(job, LocalJob) and (written := files.written(job.run, 1)):
            raise ClientError(f"{job.name} has files such as {written[0].path}; pass --yes to delete them")
