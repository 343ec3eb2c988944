"""`exec`, `stack`, `cp` and `port-forward`: into the pods of a job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from paddlejob.cli.cluster import shared
from paddlejob.cli.cluster.flags import Target, target_flags
from paddlejob.cli.cluster.submit import WithArguments, arguments_after_dashes
from paddlejob.cli.terminal import say

if TYPE_CHECKING:
    from paddlejob.client.streams.execution import Size
    from paddlejob.client.streams.port_forward import Forward

_container_option = click.option(
    "--container", "-c", default="", metavar="NAME", help="Container to use. Default: the one that trains."
)


@click.command("exec", cls=WithArguments, options_metavar="[OPTIONS]")
@shared.job_argument
@click.argument("words", nargs=-1, metavar="-- COMMAND...")
@shared.rank_option
@_container_option
@click.option("--stdin", "-i", is_flag=True, help="Pass standard input on to the command.")
@click.option("--tty", "-t", is_flag=True, help="Run the command on a terminal.")
@target_flags
@click.pass_context
def execute(
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
    command = (*words, *arguments_after_dashes(ctx))
    if not command:
        raise click.UsageError("give a command after --")
    shared.run(_execute(target, job, command, rank, container, stdin=stdin, tty=tty))


async def _execute(
    target: Target, name: str, words: tuple[str, ...], rank: str, container: str, *, stdin: bool, tty: bool
) -> int:
    from paddlejob.client.streams.execution import ContainerCommand  # noqa: PLC0415

    is_terminal = tty and sys.stdin.isatty()
    if tty and not is_terminal:
        say("standard input is not a terminal; running the command without one", err=True)
    async with target.open() as jobs:
        job = await jobs.get(name)
        with _raw_terminal() if is_terminal else contextlib.nullcontext():
            command = ContainerCommand(
                words=words,
                on_stdout=_writer(sys.stdout.buffer),
                on_stderr=_writer(sys.stderr.buffer),
                stdin=_input() if stdin else None,
                tty=is_terminal,
                sizes=_sizes() if is_terminal else None,
            )
            return await job.execute(command, rank=rank, container=container)


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Let every key reach the command, Ctrl-C too."""
    import termios  # noqa: PLC0415 - only for terminals
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    # What was typed ahead is for the command, and not flushed.
    tty.setraw(descriptor, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _input() -> AsyncIterator[bytes]:
    """Yield what comes on standard input, without a thread that would wait for more at the end."""
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
        # A file can be read at any time.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def _sizes() -> AsyncIterator[Size]:
    """Yield the size of the terminal, now and whenever it changes."""
    import signal  # noqa: PLC0415 - only for terminals

    changed = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, changed.set)
    while True:
        size = os.get_terminal_size(sys.stdin.fileno())
        yield size.columns, size.lines
        await changed.wait()
        changed.clear()


@click.command("stack")
@shared.job_argument
@click.option(
    "--rank",
    "-r",
    default="all",
    show_default=True,
    metavar="RANK",
    help="Rank of a worker (0), a pod (heter-1) or a role.",
    shell_complete=shared.complete_ranks,
)
@click.option("--all-threads", is_flag=True, help="Show all threads, not only the main one.")
@target_flags
def stack(target: Target, job: str, rank: str, all_threads: bool) -> None:
    """Show what the ranks of JOB are doing: where in its code each process is, the innermost call first.

    Ranks at the same place are shown once. It needs the recorder, and permission to exec into pods.
    """
    shared.run(_stack(target, job, rank, all_threads=all_threads))


async def _stack(target: Target, name: str, rank: str, *, all_threads: bool) -> int:
    from paddlejob.client.streams.stacks import in_words  # noqa: PLC0415

    async with target.open() as jobs:
        job = await jobs.get(name)
        say(in_words(await job.stacks(rank), all_threads=all_threads))
    return 0


@click.command("cp")
@shared.job_argument
@click.argument("source")
@click.argument("destination")
@_container_option
@target_flags
def copy(target: Target, job: str, source: str, destination: str, container: str) -> None:
    """Copy a file or directory out of a rank of JOB or into it; RANK:PATH is one in a container.

    cp JOB worker-0:/output ./output        cp JOB ./data worker-0:/data
    """
    shared.run(_copy(target, job, source, destination, container))


async def _copy(target: Target, name: str, source: str, destination: str, container: str) -> int:
    from_rank, from_path = _remote(source)
    to_rank, to_path = _remote(destination)
    if bool(from_rank) == bool(to_rank):
        raise click.UsageError("one of SOURCE and DESTINATION must be RANK:PATH, such as worker-0:/output")
    async with target.open() as jobs:
        job = await jobs.get(name)
        if from_rank:
            place = await job.copy_from(from_rank, from_path, Path(destination), container=container)
            say(f"copied to {place}")
        else:
            inside = await job.copy_to(to_rank, Path(source), to_path, container=container)
            say(f"copied to {to_rank}:{inside}")
    return 0


def _remote(place: str) -> tuple[str, str]:
    """Return rank and path of a place in a container; no rank for one on this machine."""
    rank, colon, path = place.partition(":")
    return (rank, path) if colon and path and "/" not in rank and rank not in ("", ".", "..") else ("", "")


@click.command("port-forward")
@shared.job_argument
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]REMOTE...")
@shared.rank_option
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@target_flags
def port_forward(target: Target, job: str, ports: tuple[str, ...], rank: str, address: str) -> None:
    """Forward ports of this machine to a rank of JOB until interrupted: `port-forward JOB 8040`."""
    shared.run(_port_forward(target, job, ports, rank, address))


async def _port_forward(target: Target, name: str, ports: tuple[str, ...], rank: str, address: str) -> int:
    from paddlejob.client.streams import port_forward as forwarding  # noqa: PLC0415

    wanted: list[Forward] = [forwarding.parse(each) for each in ports]
    async with target.open() as jobs, contextlib.AsyncExitStack() as stack:
        job = await jobs.get(name)
        forwarder = await job.forwarder(rank, lambda text: say(text, err=True))
        for each in wanted:
            port = await stack.enter_async_context(forwarder.listening(each, address))
            say(f"Forwarding from {address}:{port} -> {each.remote}")
        await asyncio.get_running_loop().create_future()
    return 0
