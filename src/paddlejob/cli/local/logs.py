"""`paddlejob logs`: the logs of a run."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from paddlejob.cli.cluster.following import print_first_error
from paddlejob.cli.cluster.shared import exit_code
from paddlejob.cli.local import shared
from paddlejob.client.local_runs import LocalJob, LocalRuns
from paddlejob.local.errors import InputError
from paddlejob.local.store.history import History
from paddlejob.local.store.logs import Follower, LogLines, Prefixes, chosen_pods, speaker, widest_label
from paddlejob.local.store.run_directory import RunDirectory, RunRecord
from paddlejob.local.ui.view import training_container

LOOK_SECONDS = 0.2


@click.command("logs")
@shared.run_argument
@click.option(
    "--rank",
    "-r",
    default="all",
    metavar="RANK",
    shell_complete=shared.complete_ranks,
    help="Only this rank (0), pod (ps-1) or role (ps).",
)
@click.option(
    "--container", "-c", default="", metavar="NAME", help="Only this container of each pod. Default: all."
)
@click.option("--follow", "-f", is_flag=True, help="Follow the logs until the run ends.")
@click.option("--previous", "-p", is_flag=True, help="Only what containers wrote before they were restarted.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, help="Only the last lines of each container."
)
@click.option("--since", default="", metavar="AGE", help="Only lines newer than this, e.g. 10m or 2h.")
@click.option("--timestamps", is_flag=True, help="Print a timestamp for each line.")
@click.option("--first-error", is_flag=True, help="The traceback of the rank that failed first.")
@shared.directory_option
def command(
    run: str,
    rank: str,
    container: str,
    follow: bool,
    previous: bool,
    tail: int | None,
    since: str,
    timestamps: bool,
    first_error: bool,
    runs: Path,
) -> None:
    """Show the logs of RUN in order of time, by default of the newest run.

    With -f the exit code is that of the run: 0 if it completed, 1 if it failed.
    """
    with shared.errors_shown():
        found = shared.find(runs, run)
        if first_error:
            _print_first_error(found)
            return
        record = found.read_record()
        if record is None:
            raise InputError(f"{found.name} has not started yet; try again in a moment")
        if follow and previous:
            raise InputError("--previous and --follow exclude each other; give one of them")
        begin = time.time() - shared.seconds_of("--since", since) if since else 0.0
        reader = Reader(found, record, rank, container, begin=begin, timestamps=timestamps)
        reader.print(follow=follow, previous=previous, tail=tail)
    if follow:
        sys.exit(exit_code(job_of(found).state))


def job_of(run: RunDirectory) -> LocalJob:
    """Return a run as the verbs about jobs see it."""
    return LocalJob(LocalRuns.open(run.path.parent), run)


def _print_first_error(run: RunDirectory) -> None:
    if first := asyncio.run(job_of(run).first_error()):
        print_first_error(first)
    else:
        click.echo(f"{run.name} has not failed", err=True)


class Reader:
    """Prints what the chosen pods of a run wrote."""

    def __init__(
        self,
        run: RunDirectory,
        record: RunRecord,
        rank: str,
        container: str,
        *,
        begin: float,
        timestamps: bool,
    ) -> None:
        self._run = run
        self._record = record
        self._rank = rank
        self._container = container
        self._begin = begin
        self._timestamps = timestamps
        self._has_shown = False
        self._job = record.job.name
        self._training = {pod.metadata.name: training_container(pod) for pod in record.pods}
        at_terminal = sys.stdout.isatty()
        self._is_plain = rank != "all" and not at_terminal
        colours = at_terminal and not os.environ.get("NO_COLOR")
        self._prefixes = Prefixes(widest_label(record.job, rank), colours=colours)

    def print(self, *, follow: bool, previous: bool, tail: int | None) -> None:
        """Print what is there and, while the run lasts, what comes.

        Raises: InputError for a rank or a container that there is not.
        """
        present = sorted(each.name for each in (self._run.path / "logs").iterdir())
        pods = chosen_pods(self._job, self._rank, present)
        if present and not pods:
            raise InputError(f"{self._run.name} has no rank {self._rank}; it has {', '.join(present)}")
        self._check_container(pods)
        history = History(self._run, pods, tail=tail, previous=previous)
        if previous and history.is_empty:
            raise InputError(f"{self._run.name} has no previous logs: nothing was restarted")
        for piece in history.read():
            self._show(piece.lines, piece.time)
        if not previous:
            self._show_rest(Follower(self._run, history.ends), follow=follow)
        sys.stdout.flush()
        if not self._has_shown:
            message = self._record.job.status.message
            why = f": {message}" if message else ""
            click.echo(f"{self._run.name} has no output to show{why}", err=True)

    def _check_container(self, pods: set[str]) -> None:
        logs = self._run.path / "logs"
        present = sorted({log.stem for pod in pods for log in (logs / pod).glob("*.log")})
        if self._container and present and self._container not in present:
            names = ", ".join(present)
            raise InputError(f"{self._run.name} has no container {self._container}; it has {names}")

    def _show_rest(self, follower: Follower, *, follow: bool) -> None:
        """Print what comes, and at the end a last line without its newline."""
        while follow and self._run.is_alive:
            for lines in follower.poll():
                self._show(lines, time.time())
            sys.stdout.flush()
            time.sleep(LOOK_SECONDS)
        for lines in follower.rest():
            self._show(lines, self._run.log(lines.pod, lines.container).stat().st_mtime)
        follower.close()

    def _show(self, lines: LogLines, at: float) -> None:
        if at < self._begin or not chosen_pods(self._job, self._rank, (lines.pod,)):
            return
        if self._container not in ("", lines.container):
            return
        self._has_shown = True
        text = lines.text
        if self._timestamps:
            stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6].encode() + b"Z "
            text = stamp + text[:-1].replace(b"\n", b"\n" + stamp) + b"\n"
        if self._is_plain:
            sys.stdout.buffer.write(text)
            return
        is_training = self._training.get(lines.pod, lines.container) == lines.container
        who = speaker(self._job, lines, is_training=is_training)
        sys.stdout.buffer.write(self._prefixes.apply(text, who))
