"""`paddlejob logs`: what the pods of a run said."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.store.logs import Follower, LogLines, Prefixes, chosen_pods, speaker
from paddlejob.local.store.run_directory import RunDirectory, RunRecord
from paddlejob.local.ui.view import training_container

LOOK_SECONDS = 0.2


@click.command("logs")
@shared.run_argument
@click.option(
    "--rank", "-r", default="all", metavar="RANK", help="Of one worker, or of one pod such as ps-1."
)
@click.option("--follow", "-f", is_flag=True, help="Go on while the run lasts.")
@shared.directory_option
def command(run: str, rank: str, follow: bool, runs: Path) -> None:
    """Show the logs of RUN, of all its pods or of one; without RUN, of the newest."""
    with shared.errors_shown():
        found = shared.find(runs, run)
        record = found.read_record()
        if record is None:
            raise InputError(f"{found.name} has not begun; try again in a moment")
        reader = Reader(found, record, rank)
        reader.check()
        reader.print(follow=follow)


class Reader:
    """Prints what the chosen pods of a run said."""

    def __init__(self, run: RunDirectory, record: RunRecord, rank: str) -> None:
        self._run = run
        self._rank = rank
        self._job = record.job.name
        self._training = {pod.metadata.name: training_container(pod) for pod in record.pods}
        at_terminal = sys.stdout.isatty()
        self._is_plain = rank != "all" and not at_terminal
        self._prefixes = Prefixes(colours=at_terminal)

    def check(self) -> None:
        """Raise InputError when nobody is meant."""
        present = sorted(each.name for each in (self._run.path / "logs").iterdir())
        if present and not chosen_pods(self._job, self._rank, present):
            raise InputError(f"{self._run.name} has no rank {self._rank}; it has {', '.join(present)}")

    def print(self, *, follow: bool) -> None:
        """Print what is there and, while the run lasts, what comes."""
        follower = Follower(self._run)
        while follow and self._run.is_alive:
            for lines in follower.poll():
                self._show(lines)
            sys.stdout.flush()
            time.sleep(LOOK_SECONDS)
        for lines in follower.rest():
            self._show(lines)
        follower.close()
        sys.stdout.flush()

    def _show(self, lines: LogLines) -> None:
        if not chosen_pods(self._job, self._rank, (lines.pod,)):
            return
        if self._is_plain:
            sys.stdout.buffer.write(lines.text)
            return
        is_training = self._training.get(lines.pod, lines.container) == lines.container
        who = speaker(self._job, lines, is_training=is_training)
        sys.stdout.buffer.write(self._prefixes.apply(lines.text, who))
