"""`port-forward`: forward ports of this machine to a rank."""

from __future__ import annotations

import asyncio
import contextlib

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.streams.port_forward import parse


@click.command("port-forward")
@shared.changed_job
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]REMOTE...")
@shared.rank_option
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@target_flags
def command(target: Target, job: str, ports: tuple[str, ...], rank: str, address: str) -> None:
    """Forward ports of this machine to a rank of JOB until interrupted: `port-forward JOB 8040`."""
    shared.run(_port_forward(target, job, ports, rank, address))


async def _port_forward(target: Target, name: str, ports: tuple[str, ...], rank: str, address: str) -> int:
    wanted = [parse(each) for each in ports]
    async with target.open() as jobs, contextlib.AsyncExitStack() as stack:
        job = await jobs.get(name)
        forwarder = await job.forwarder(rank, lambda text: say(text, err=True))
        for each in wanted:
            port = await stack.enter_async_context(forwarder.listening(each, address))
            say(f"Forwarding from {address}:{port} -> {each.remote}")
        await asyncio.get_running_loop().create_future()
    return 0
