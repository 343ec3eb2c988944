"""`retry`: run a finished job again."""

from __future__ import annotations

import click

from paddlejob.cli import output, shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say


@click.command("retry")
@shared.changed_job
@output.output_option("json", "yaml", "name")
@target_flags
def command(target: Target, job: str, form: str | None) -> None:
    """Run a finished JOB again, as a new job with a generated name."""
    shared.run(_retry(target, job, form))


async def _retry(target: Target, name: str, form: str | None) -> int:
    async with target.open() as jobs:
        new = await (await jobs.get(name)).retry()
        if form:
            output.print_jobs([new], form, as_list=False)
        else:
            say(f"{new.kind_and_name} created; follow it with `{target.command(f'logs -f {new.name}')}`")
    return 0
