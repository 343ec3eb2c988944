"""`paddlejob env`: what one pod of a run was told."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.store.logs import chosen_pods


@click.command("env")
@shared.run_argument
@click.option(
    "--rank", "-r", default="0", metavar="RANK", help="Of which worker, or of which pod such as ps-1."
)
@shared.directory_option
def command(run: str, rank: str, runs: Path) -> None:
    """Show the environment that one rank of RUN got; without RUN, of the newest."""
    with shared.errors_shown():
        found = shared.find(runs, run)
        record = found.read_record()
        present = sorted(each.stem for each in (found.path / "env").glob("*.env"))
        job = record.job.name if record else ""
        pod = min(chosen_pods(job, rank, present), default=None)
        if pod is None:
            raise InputError(f"{found.name} has no rank {rank}; it has {', '.join(present) or 'no pods yet'}")
        click.echo(found.env(pod).read_text(), nl=False)
