"""`paddlejob cp`: copy what a pod wrote out of its run."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.store import files
from paddlejob.local.store.logs import chosen_pods


@click.command("cp")
@click.argument("run", shell_complete=shared.complete_runs)
@click.argument("source", metavar="POD:PATH")
@click.argument("target", type=click.Path(path_type=Path))
@shared.directory_option
def command(run: str, source: str, target: Path, runs: Path) -> None:
    """Copy a file or directory that POD (worker-0, ps-1 or a rank) of RUN wrote to TARGET.

    A relative PATH is one in the container's working directory: `paddlejob cp mnist worker-0:output .`
    """
    with shared.errors_shown():
        found = shared.find(runs, run)
        rank, separator, path = source.partition(":")
        if not separator or not path:
            raise InputError(f"{source}: write POD:PATH, such as worker-0:output")
        present = sorted(each.name for each in (found.path / "files").iterdir())
        pods = chosen_pods(found.job_name, rank, present)
        if len(pods) != 1:
            raise InputError(f"{rank} is not one pod of {found.name}; it has {', '.join(present) or 'none'}")
        click.echo(f"copied to {files.copy(files.locate(found, pods.pop(), path), target)}")
