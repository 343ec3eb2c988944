"""Prints the logs or the states of a job while it runs, and its result."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from paddlejob.cli import output, shared
from paddlejob.cli.terminal import say
from paddlejob.client.errors import ClientError, NoSuchJobError
from paddlejob.client.job import FirstError, Job, describe
from paddlejob.client.logs.model import LogBlock, LogItem, LogQuery, Marker
from paddlejob.kube.errors import KubeError
from paddlejob.text import Prefixes, tame

PROGRESS_SECONDS = 10.0
"""Shortest time between two lines about the progress of training."""


class LogPrinter:
    """Writes lines to standard output, with the rank in front, and notices to standard error.

    The lines of one rank get no prefix in a file or a pipe.
    """

    def __init__(self, rank: str, *, timestamps: bool, prefix: bool | None = None) -> None:
        self._at_terminal = sys.stdout.isatty()
        self._is_plain = not prefix if prefix is not None else rank != "all" and not self._at_terminal
        self._timestamps = timestamps
        self._colours = self._at_terminal and not os.environ.get("NO_COLOR")
        self._prefixes = Prefixes(colours=self._colours)
        self.has_printed = False

    def print(self, item: LogItem) -> None:
        """Print a block of lines, or a marker."""
        self.has_printed = True
        if not isinstance(item, LogBlock):
            self._print_marker(item)
            return
        text = item.stamped if self._timestamps else item.text
        if self._at_terminal:
            text = tame(text)
        sys.stdout.buffer.write(text if self._is_plain else self._prefixes.apply(text, item.rank))
        sys.stdout.buffer.flush()

    def _print_marker(self, marker: Marker) -> None:
        if not marker.is_part_of_log:
            say(marker.text, err=True)
            return
        say(f"--- {marker.text} ---", err=self._is_plain, dim=self._colours)


async def print_logs(job: Job, query: LogQuery, printer: LogPrinter) -> None:
    """Print the result of a query."""
    async with contextlib.aclosing(job.logs(query)) as items:
        async for item in items:
            printer.print(item)


async def print_states(job: Job) -> None:
    """Print each new state and the progress of training, until the job has ended or is deleted."""
    warning = asyncio.create_task(_warn_without_operator(job))
    try:
        await _print_changes(job)
    finally:
        warning.cancel()
        await asyncio.wait({warning})


async def _print_changes(job: Job) -> None:
    clock = asyncio.get_running_loop().time
    last_state = last_progress = ""
    due = clock()
    async for state in job.watch():
        if state.status.phase.is_terminal:
            return
        if (described := describe(state)) != last_state:
            last_state = described
            say(f"{job.name} {described}", err=True)
        progress = output.training(state.status.progress)
        if progress and progress != last_progress and clock() >= due:
            last_progress, due = progress, clock() + PROGRESS_SECONDS
            say(f"{job.name} {progress}", err=True)


async def _warn_without_operator(job: Job) -> None:
    """Report a job without a status after the time in which an operator writes one."""
    from paddlejob.client.explain.causes.states import OPERATOR_SECONDS  # noqa: PLC0415 - slows `logs --help`

    await asyncio.sleep(OPERATOR_SECONDS + 1)
    if job.state.status.phase:
        return
    with contextlib.suppress(ClientError, KubeError):
        found = await job.explain()
        say("; ".join((f"{job.name}: {found.summary}", *(each.text for each in found.advice))), err=True)


async def verdict(job: Job, *, with_lines: bool) -> int:
    """Print how a job ended and, if it failed, the first failure; return the exit code."""
    try:
        state = await job.refresh()
    except NoSuchJobError as error:
        shared.say_error(str(error))
        return shared.FAILED
    if shared.exit_code(state) == 0:
        say(f"{job.name} Completed in {output.running(state)}", err=True)
        return 0
    say(f"{job.name} {describe(state)}", err=True)
    if with_lines and (first := await job.first_error()):
        print_first_error(first, err=True)
    return shared.FAILED


def print_first_error(first: FirstError, *, err: bool = False) -> None:
    """Print the rank that failed first and its last lines, after a note about their source."""
    say(f"{first.rank} failed first, in attempt {first.attempt}: {first.sentence}", err=True)
    if first.note:
        say(first.note, err=True)
    for line in first.lines:
        say(line, err=err)
