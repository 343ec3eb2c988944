"""`exec`: run a command in a rank."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty as tty_modes
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.streams.execution import ContainerCommand, Size


@click.command("exec", cls=shared.WithArguments, options_metavar="[OPTIONS]")
@shared.changed_job
@click.argument("words", nargs=-1, metavar="-- COMMAND...")
@shared.rank_option
@shared.container_option
@click.option("--stdin", "-i", is_flag=True, help="Pass standard input on to the command.")
@click.option("--tty", "-t", is_flag=True, help="Run the command on a terminal.")
@target_flags
@click.pass_context
def command(
    ctx: click.Context,
    target: Target,
    job: str,
    words: tuple[str, ...],
    rank: str,
    container: str,
    stdin: bool,
    tty: bool,
) -> None:
    """Run a command in a rank of JOB, and exit with its exit code: `exec JOB -it --rank 1 -- bash`."""
    all_words = (*words, *shared.arguments_after_dashes(ctx))
    if not all_words:
        raise click.UsageError("give a command after --")
    shared.run(_execute(target, job, all_words, rank, container, stdin=stdin, tty=tty))


async def _execute(
    target: Target, name: str, words: tuple[str, ...], rank: str, container: str, *, stdin: bool, tty: bool
) -> int:
    is_terminal = tty and sys.stdin.isatty()
    if tty and not is_terminal:
        say("standard input is not a terminal; running the command without one", err=True)
    async with target.open() as jobs:
        job = await jobs.get(name)
        with _raw_terminal() if is_terminal else contextlib.nullcontext():
            wanted = ContainerCommand(
                words=words,
                on_stdout=_writer(sys.stdout.buffer),
                on_stderr=_writer(sys.stderr.buffer),
                stdin=_input() if stdin else None,
                tty=is_terminal,
                sizes=_sizes() if is_terminal else None,
            )
            return await job.execute(wanted, rank=rank, container=container)


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass every key to the command, also Ctrl-C."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    # TCSADRAIN keeps input that the user has typed ahead.
    tty_modes.setraw(descriptor, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _input() -> AsyncIterator[bytes]:
    """Yield standard input. No thread reads it, since a thread would block the exit."""
    descriptor = sys.stdin.fileno()
    while True:
        await _readable(descriptor)
        if not (data := os.read(descriptor, 1 << 15)):
            return
        yield data


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        # Files cannot be watched, and can always be read.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def _sizes() -> AsyncIterator[Size]:
    """Yield the size of the terminal now and after each change."""
    changed = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, changed.set)
    while True:
        size = os.get_terminal_size(sys.stdin.fileno())
        yield size.columns, size.lines
        await changed.wait()
        changed.clear()
