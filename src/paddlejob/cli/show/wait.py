"""`wait`: wait for the end or another state of jobs."""

from __future__ import annotations

import asyncio

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.errors import GoalMissedError
from paddlejob.client.job import DELETED, ENDED, describe


@click.command("wait")
@shared.shown_jobs
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
    """Wait until each JOB has ended, or reached another goal.

    Exit codes: 0 completed, or the goal was reached; 1 a job failed; 124 timed out.
    """
    shared.run(_wait(target, names, goal, timeout))


def _say_note(text: str) -> None:
    say(text, err=True)


async def _wait(target: Target, names: tuple[str, ...], goal: str, seconds: float | None) -> int:
    goal = DELETED if goal == "delete" else goal  # kubectl's word
    async with target.open() as jobs:
        found = await shared.find(jobs, names)
        try:
            waits = (job.wait(goal, timeout_seconds=seconds, on_note=_say_note) for job in found)
            states = await asyncio.gather(*waits)
        except GoalMissedError as error:
            shared.say_error(str(error))
            return shared.FAILED
    for job, state in zip(found, states, strict=True):
        say(f"{job.kind_and_name} {'deleted' if goal == DELETED else describe(state)}")
    if goal != ENDED:
        return 0
    return max(shared.exit_code(state) for state in states)
