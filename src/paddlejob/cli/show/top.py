"""`top`: show jobs, or the ranks of one, while they change."""

from __future__ import annotations

import asyncio
import math
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

import click

from paddlejob.cli import output, shared
from paddlejob.cli.show.describe import process_table, rank_table
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import clear, say
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, Usage, describe
from paddlejob.kube.errors import ApiError, ServerError, TransportError

REFRESH_SECONDS = 1.0
PROCESSES_SECONDS = 5.0


@click.command("top")
@click.argument("job", default="", metavar="[JOB]", shell_complete=shared.complete_jobs)
@shared.all_namespaces_option
@click.option("--once", is_flag=True, help="Print once and exit; the default without a terminal.")
@target_flags
def command(target: Target, job: str, all_namespaces: bool, once: bool) -> None:
    """Show all jobs, or the progress and the ranks of JOB, live. Ends with JOB, or with Ctrl-C.

    CPU and memory of the ranks are shown if the cluster has a metrics server.
    """
    once = once or not sys.stdout.isatty()
    shared.run(_top_of(target, job, once=once) if job else _top(target, once=once, everywhere=all_namespaces))


async def _top(target: Target, *, once: bool, everywhere: bool) -> int:
    async with target.open() as jobs:

        async def look() -> tuple[str, int | None]:
            found = await jobs.list(all_namespaces=everywhere)
            return _jobs_table(found, is_local=target.is_local, everywhere=everywhere), None

        return await _show(look, once=once)


def _jobs_table(found: Sequence[Job], *, is_local: bool, everywhere: bool) -> str:
    now = datetime.now(UTC)
    headings = (*(("NAMESPACE",) if everywhere else ()), *output.headings(is_local=is_local))
    rows = [((job.namespace,) if everywhere else ()) + output.row(job, now) for job in found]
    return output.table([headings, *rows])


async def _top_of(target: Target, name: str, *, once: bool) -> int:
    async with target.open() as jobs:
        job = await jobs.get(name)
        processes = _Processes(job)

        async def look() -> tuple[str, int | None]:
            state = await job.refresh()
            screen = await _job_screen(job, is_local=target.is_local)
            if table := await processes.table():
                screen += f"\n\n{table}"
            return screen, shared.exit_code(state) if state.status.phase.is_terminal else None

        return await _show(look, once=once)


async def _show(look: Callable[[], Awaitable[tuple[str, int | None]]], *, once: bool) -> int:
    """Show a screen, and refresh it until it comes with an exit code.

    While the server does not answer, a notice stands above the last screen.
    """
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


class _Processes:
    """The table of processes. It is read less often than the job, because it takes a command in each pod."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._table = ""
        self._due = -math.inf

    async def table(self) -> str:
        now = asyncio.get_running_loop().time()
        if now >= self._due:
            self._table = await process_table(self._job)
            self._due = asyncio.get_running_loop().time() + PROCESSES_SECONDS
        return self._table


async def _job_screen(job: Job, *, is_local: bool) -> str:
    now, status = datetime.now(UTC), job.state.status
    pods, (usage, missing) = await job.pods(), await _usage(job)
    lines = [
        output.table([output.headings(is_local=is_local), output.row(job, now)]),
        "",
        f"{job.name} is {describe(job.state)}",
    ]
    if training := output.training(status.progress, is_over=status.phase.is_terminal):
        lines.append(training)
    lines += ["", rank_table(job, pods, now, usage)]
    if missing and not is_local and not status.phase.is_terminal:
        lines += ["", f"CPU and memory are not shown: {missing}"]
    return "\n".join(lines)


async def _usage(job: Job) -> tuple[Mapping[str, Usage], str]:
    """Return the usage of the pods, and a reason if there is none."""
    try:
        usage = await job.usage()
    except (ClientError, ApiError) as error:
        return {}, sentence(error)
    return usage, "" if usage else "the metrics server has not measured these pods yet"


def _draw(text: str, *, once: bool, notice: str = "") -> None:
    """Print a text once, or over the last screen and cut to its size, below a notice that is wrapped."""
    if once:
        say(text)
        return
    size = shutil.get_terminal_size()
    above = [*textwrap.wrap(notice, size.columns), ""] if notice else []
    shown = above + [line[: size.columns] for line in text.splitlines()]
    clear()
    say("\n".join(shown[: size.lines - 1]))
