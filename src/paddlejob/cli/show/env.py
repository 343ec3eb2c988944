"""`env`: the environment of a rank."""

from __future__ import annotations

import click

from paddlejob.api import names
from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say


@click.command("env")
@shared.shown_job
@shared.rank_option
@target_flags
def command(target: Target, job: str, rank: str) -> None:
    """Show the environment of one rank of JOB; on a cluster without the variables of its image."""
    shared.run(_env(target, job, rank))


async def _env(target: Target, name: str, rank: str) -> int:
    async with target.open() as jobs:
        variables = await (await jobs.get(name)).environment(rank)
    for key in sorted(variables):
        if not key.startswith(names.ATTEMPT_GUARD):
            say(f"{key}={variables[key]}")
    return 0
