"""`scale`: change the number of workers of a job."""

from __future__ import annotations

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags


@click.command("scale")
@shared.changed_job
@click.argument("workers", type=click.IntRange(min=0), required=False, metavar="[WORKERS]")
@click.option("--replicas", type=click.IntRange(min=0), default=None, help="Number of workers.")
@target_flags
def command(target: Target, job: str, workers: int | None, replicas: int | None) -> None:
    """Change the number of workers of JOB: `scale JOB 4` or `scale JOB --replicas=4`."""
    numbers = [each for each in (workers, replicas) if each is not None]
    if len(numbers) != 1:
        raise click.UsageError("give the number of workers once, as WORKERS or --replicas")
    shared.run(shared.change_each(target, (job,), lambda found: found.scale(numbers[0])))
