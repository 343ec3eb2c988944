"""`attach`: watch a live run on this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from paddlejob.cli import shared
from paddlejob.cli.change.run import logs_option, output_for, output_option, print_errors
from paddlejob.cli.target import run_dir_flag
from paddlejob.cli.terminal import say
from paddlejob.client.errors import ClientError
from paddlejob.client.local_runs import LocalRuns
from paddlejob.local.command import attach
from paddlejob.local.store.logs import check_selection
from paddlejob.local.ui.output import EXIT_CODES


@click.command("attach")
@shared.shown_job
@logs_option
@output_option("text", "json")
@run_dir_flag
def command(job: str, logs: str | None, form: str, run_dir: Path | None) -> None:
    """Watch the live run JOB as `run` shows it. Ctrl-C detaches, and the run continues.

    The exit code is the result of the job, as of `run`.
    """
    with print_errors(form):
        run = asyncio.run(LocalRuns.open(run_dir).get_live(job)).run
        record = run.read_record()
        if record is None or not run.is_alive:
            hint = f"paddlejob logs {run.name}{run.run_dir_flag}"
            raise ClientError(f"{run.name} is not running; `{hint}` shows its output")
        check_selection(record.job, logs or "all")
        ending = attach(run, record, output_for(form, logs))
        if ending is None:
            say(f"{run.name} was lost: its runner was killed", err=True)
        sys.exit(EXIT_CODES[ending] if ending else 1)
