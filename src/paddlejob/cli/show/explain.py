"""`explain`: why a job does not run or failed."""

from __future__ import annotations

import click

from paddlejob.cli import output, shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say


@click.command("explain")
@shared.shown_job
@output.output_option("json", "yaml")
@target_flags
def command(target: Target, job: str, form: str | None) -> None:
    """Explain why JOB does not run or why it failed, and what to do."""
    shared.run(_explain(target, job, form))


async def _explain(target: Target, name: str, form: str | None) -> int:
    async with target.open() as jobs:
        explanation = await (await jobs.get(name)).explain()
    if form:
        output.print_object(explanation.to_dict(), form)
    else:
        say(str(explanation))
    return 0
