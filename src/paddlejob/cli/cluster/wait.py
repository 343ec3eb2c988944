"""`wait`: until jobs have ended, or for something else."""

from __future__ import annotations

import asyncio

import click

from paddlejob.cli.cluster import shared
from paddlejob.cli.cluster.flags import Target, target_flags


@click.command("wait")
@shared.jobs_argument
@click.option(
    "--for",
    "goal",
    default="ended",
    metavar="GOAL",
    help="ended (default), completed, running, suspended, deleted, or condition=TYPE[=STATUS].",
)
@click.option("--timeout", type=shared.Duration(), default=None, help="Longest time to wait, e.g. 30m.")
@target_flags
def command(target: Target, names: tuple[str, ...], goal: str, timeout: float | None) -> None:
    """Wait until each JOB has ended, or for another goal.

    Exit codes: 0 completed, or the goal was reached; 1 a job failed; 124 timed out.
    """
    shared.run(_wait(target, names, goal, timeout))


async def _wait(target: Target, names: tuple[str, ...], goal: str, seconds: float | None) -> int:
    from paddlejob.client import goals  # noqa: PLC0415
    from paddlejob.client.errors import GoalMissedError  # noqa: PLC0415
    from paddlejob.client.job import describe  # noqa: PLC0415

    async with target.open() as jobs:
        found = await shared.find(jobs, names)
        try:
            waits = (job.wait(goal, timeout_seconds=seconds) for job in found)
            states = await asyncio.gather(*waits)
        except GoalMissedError as error:
            shared.say_error(str(error))
            return shared.FAILED
    for job, state in zip(found, states, strict=True):
        click.echo(f"{job.kind_and_name} {'deleted' if goal == goals.DELETED else describe(state)}")
    if goal != goals.ENDED:
        return 0
    return max(shared.exit_code(state) for state in states)
