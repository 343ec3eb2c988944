"""`paddlejob attach`: watch a live run as if it had been started here."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.store.logs import check_selection
from paddlejob.local.ui.output import EXIT_CODES


@click.command("attach")
@shared.run_argument
@shared.logs_option
@shared.output_option("text", "json")
@shared.directory_option
def command(run: str, logs: str | None, form: str, runs: Path) -> None:
    """Watch a live RUN, by default the only one. Ctrl-C detaches; the run goes on.

    The exit code is the result of the job, as of `run`.
    """
    from paddlejob.local.attach import attach  # noqa: PLC0415 - help needs no event loop

    with shared.errors_shown(form):
        found = shared.find_live(runs, run)
        record = found.read_record()
        if record is None or not found.is_alive:
            raise InputError(
                f"{found.name} is not running; `paddlejob logs {found.name}` shows what it printed"
            )
        check_selection(record.job, logs or "all")
        ending = attach(found, record, shared.output_for(form, logs))
        if ending is None:
            click.echo(f"{found.name} was lost: its runner was killed", err=True)
        sys.exit(EXIT_CODES[ending] if ending else 1)
