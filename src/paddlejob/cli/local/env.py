"""`paddlejob env`: the environment of one pod of a run."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.api import names
from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.store.logs import chosen_pods


@click.command("env")
@shared.run_argument
@click.option(
    "--rank",
    "-r",
    default="0",
    metavar="RANK",
    shell_complete=shared.complete_ranks,
    help="Rank of a worker (0), or a pod (ps-1).",
)
@shared.directory_option
def command(run: str, rank: str, runs: Path) -> None:
    """Show the environment of one rank of RUN, by default the newest run."""
    with shared.errors_shown():
        found = shared.find(runs, run)
        record = found.read_record()
        present = sorted(each.stem for each in (found.path / "env").glob("*.env"))
        job = record.job.name if record else ""
        pods = chosen_pods(job, rank, present)
        if len(pods) > 1:
            raise InputError(f"{rank} means {len(pods)} pods; give one of {', '.join(sorted(pods))}")
        if not pods:
            raise InputError(f"{found.name} has no rank {rank}; it has {', '.join(present) or 'no pods yet'}")
        variables = found.env(pods.pop()).read_text().splitlines(keepends=True)
        click.echo("".join(each for each in variables if not each.startswith(names.ATTEMPT_GUARD)), nl=False)
