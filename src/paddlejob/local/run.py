"""Runs a job for a person: shows it, serves commands, handles Ctrl-C, returns the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Iterator

from paddlejob.local import control
from paddlejob.local.local_run import LocalRun, prepared
from paddlejob.local.options import Options
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import Follower
from paddlejob.local.ui.output import EXIT_CODES, Output, Shown
from paddlejob.local.ui.show import LOOK_SECONDS, show_new_lines, show_rest

MAX_OPEN_FILES = 65536
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run(options: Options, output: Output) -> int:
    """Run a job and return the exit code that its result is. Raises InputError before anything is started."""
    _raise_file_limit()
    async with prepared(options) as local_run:
        job, run = local_run.runner.job, local_run.run_directory
        output.on_start(Shown(job, run, notes=local_run.notes, python=str(local_run.python)))
        local_run.runner.observe(output)
        with _stopped_by_signals(local_run, output):
            async with control.serving(local_run.runner, run):
                ending = await _shown(local_run, output)
        output.on_end(ending, local_run.outcome)
    return EXIT_CODES[ending]


def _raise_file_limit() -> None:
    """Allow more open files if the system permits it: each pod takes about three, and 1,024 are usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        # macOS refuses limits above one of the kernel.
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised_file_limit(soft, hard), hard))


def raised_file_limit(soft: int, hard: int) -> int:
    """Return the soft limit of open files for a run: not lower than before, not raised above MAX_OPEN_FILES.

    Programs that close every possible descriptor take minutes under a limit of a billion.
    """
    if soft == resource.RLIM_INFINITY:
        return soft
    return max(soft, MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES))


async def _shown(local_run: LocalRun, output: Output) -> Ending:
    """Run the session while its logs are shown; at the end nothing of them is missing."""
    follower = Follower(local_run.run_directory, bars=True)
    running = asyncio.create_task(local_run.run())
    try:
        while not running.done():
            await asyncio.to_thread(show_new_lines, follower, output)
            await asyncio.wait((running,), timeout=LOOK_SECONDS)
        await asyncio.to_thread(show_rest, follower, output)
        return await running
    finally:
        follower.close()
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))


@contextlib.contextmanager
def _stopped_by_signals(local_run: LocalRun, output: Output) -> Iterator[None]:
    """End the run at a signal: gracefully at the first, at once at the next.

    A hang-up is never the next: a shell that loses its terminal sends its own after the kernel's.
    """
    loop = asyncio.get_running_loop()
    times = 0

    def stop(number: signal.Signals) -> None:
        nonlocal times
        if number == signal.SIGHUP and times:
            return
        times += 1
        if times > 2:
            # Somebody is in a hurry, perhaps because nobody reads our output; the supervisors do the rest.
            os._exit(EXIT_CODES[Ending.INTERRUPTED])
        output.on_interrupt(times)
        local_run.runner.interrupt()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
