"""`top`: jobs, or the ranks of one, while they change."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from paddlejob.cli.cluster import output, shared
from paddlejob.cli.cluster.flags import Target, target_flags
from paddlejob.cli.terminal import clear, say

if TYPE_CHECKING:
    from paddlejob.client.job import Job, Usage

REFRESH_SECONDS = 1.0


@click.command("top")
@click.argument("job", default="", metavar="[JOB]", shell_complete=shared.complete_jobs)
@click.option("--all-namespaces", "-A", is_flag=True, help="Show the jobs of all namespaces.")
@click.option("--once", is_flag=True, help="Print once and exit; the default without a terminal.")
@target_flags
def command(target: Target, job: str, all_namespaces: bool, once: bool) -> None:
    """Show all jobs, or the training and the ranks of JOB, live; ends with JOB or when interrupted.

    CPU and memory of the ranks are shown if the cluster has a metrics server.
    """
    once = once or not sys.stdout.isatty()
    shared.run(_top_of(target, job, once=once) if job else _top(target, once=once, everywhere=all_namespaces))


async def _top(target: Target, *, once: bool, everywhere: bool) -> int:
    async with target.open() as jobs:

        async def look() -> tuple[str, int | None]:
            return _jobs_table(await jobs.list(all_namespaces=everywhere), everywhere=everywhere), None

        return await _show(look, once=once)


def _jobs_table(found: Sequence[Job], *, everywhere: bool) -> str:
    now = datetime.now(UTC)
    headings = (*(("NAMESPACE",) if everywhere else ()), *output.HEADINGS)
    rows = [((job.namespace,) if everywhere else ()) + output.row(job, now) for job in found]
    return output.table([headings, *rows])


async def _top_of(target: Target, name: str, *, once: bool) -> int:
    async with target.open() as jobs:
        job = await jobs.get(name)

        async def look() -> tuple[str, int | None]:
            state = await job.refresh()
            return await _job_screen(job), shared.exit_code(state) if state.status.phase.is_terminal else None

        return await _show(look, once=once)


async def _show(look: Callable[[], Awaitable[tuple[str, int | None]]], *, once: bool) -> int:
    """Show a screen that is looked up again and again, until it comes with an exit code.

    A server that does not answer for a while is told of above what was seen last.
    """
    from paddlejob.kube.errors import ServerError, TransportError  # noqa: PLC0415

    screen = ""
    while True:
        try:
            screen, code = await look()
            _draw(screen, once=once)
            if once or code is not None:
                return 0 if once else code or 0
        except (ServerError, TransportError) as error:
            if once or not screen:
                raise
            _draw(screen, once=False, notice=f"cannot follow right now, trying again: {error}")
        await asyncio.sleep(REFRESH_SECONDS)


async def _job_screen(job: Job) -> str:
    from paddlejob.cli.cluster.inspect import rank_table  # noqa: PLC0415
    from paddlejob.client.job import describe  # noqa: PLC0415

    now, status = datetime.now(UTC), job.state.status
    pods, (usage, missing) = await job.pods(), await _usage(job)
    lines = [
        output.table([output.HEADINGS, output.row(job, now)]),
        "",
        f"{job.name} is {describe(job.state)}",
    ]
    if training := output.training(status.progress, is_over=status.phase.is_terminal):
        lines.append(training)
    lines += ["", rank_table(job, pods, now, usage)]
    if missing and not status.phase.is_terminal:
        lines += ["", f"CPU and memory are not shown: {missing}"]
    return "\n".join(lines)


async def _usage(job: Job) -> tuple[Mapping[str, Usage], str]:
    """Return the usage of the pods, and why there is none."""
    from paddlejob.client.errors import ClientError, sentence  # noqa: PLC0415
    from paddlejob.kube.errors import ApiError  # noqa: PLC0415

    try:
        usage = await job.usage()
    except (ClientError, ApiError) as error:
        return {}, sentence(error)
    return usage, "" if usage else "the metrics server has not measured these pods yet"


def _draw(text: str, *, once: bool, notice: str = "") -> None:
    """Print, on a live screen over what was there and no more than fits; a notice above it is wrapped."""
    if once:
        say(text)
        return
    import shutil  # noqa: PLC0415 - only for terminals
    import textwrap  # noqa: PLC0415

    size = shutil.get_terminal_size()
    above = [*textwrap.wrap(notice, size.columns), ""] if notice else []
    shown = above + [line[: size.columns] for line in text.splitlines()]
    clear()
    say("\n".join(shown[: size.lines - 1]))
