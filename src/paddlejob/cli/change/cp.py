"""`cp`: copy files out of a rank or into it."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say


@click.command("cp")
@shared.changed_job
@click.argument("source")
@click.argument("destination")
@shared.container_option
@target_flags
def command(target: Target, job: str, source: str, destination: str, container: str) -> None:
    """Copy a file or directory out of a rank of JOB or into it. RANK:PATH is a path in a container.

    cp JOB worker-0:/output ./output        cp JOB ./data worker-0:/data

    Relative paths in a rank start at its working directory.
    """
    shared.run(_copy(target, job, source, destination, container))


async def _copy(target: Target, name: str, source: str, destination: str, container: str) -> int:
    from_rank, from_path = _remote(source)
    to_rank, to_path = _remote(destination)
    if bool(from_rank) == bool(to_rank):
        raise click.UsageError("one of SOURCE and DESTINATION must be RANK:PATH, such as worker-0:/output")
    async with target.open() as jobs:
        job = await jobs.get(name)
        if from_rank:
            place = await job.copy_from(from_rank, from_path, Path(destination), container=container)
            say(f"copied to {place}")
        else:
            inside = await job.copy_to(to_rank, Path(source), to_path, container=container)
            say(f"copied to {to_rank}:{inside}")
    return 0


def _remote(place: str) -> tuple[str, str]:
    """Return the rank and the path of RANK:PATH; empty for a path on this machine."""
    rank, colon, path = place.partition(":")
    return (rank, path) if colon and path and "/" not in rank and rank not in ("", ".", "..") else ("", "")
