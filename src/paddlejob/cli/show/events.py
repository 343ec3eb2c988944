"""`events`: the events of a job and its pods."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from paddlejob.cli import output, shared
from paddlejob.cli.show.describe import event_table
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say


@click.command("events")
@shared.shown_job
@output.output_option("json", "yaml")
@target_flags
def command(target: Target, job: str, form: str | None) -> None:
    """List the events of JOB and its pods, oldest first."""
    shared.run(_events(target, job, form))


async def _events(target: Target, name: str, form: str | None) -> int:
    async with target.open() as jobs:
        job = await jobs.get(name)
        found = await job.events()
    if form:
        output.print_object([msgspec.to_builtins(each) for each in found], form)
    elif found:
        say(event_table(found, datetime.now(UTC)))
    else:
        say(f"{job.name} has no events; they are kept for about an hour", err=True)
    return 0
