"""`get`: a list of jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from paddlejob.cli.cluster import output, shared
from paddlejob.cli.cluster.flags import Target, target_flags
from paddlejob.cli.terminal import say

if TYPE_CHECKING:
    from paddlejob.api.v1 import PaddleJob
    from paddlejob.client.job import Job, Jobs

_TIMES = ("DURATION", "AGE")
_NEVER = datetime.min.replace(tzinfo=UTC)


@click.command("get")
@click.argument("names", nargs=-1, metavar="[JOB]...", shell_complete=shared.complete_jobs)
@click.option("--all-namespaces", "-A", is_flag=True, help="List the jobs of all namespaces.")
@click.option(
    "--selector", "-l", default="", metavar="LABELS", help="Only jobs with these labels, e.g. team=a."
)
@click.option(
    "--phase", default="", metavar="PHASES", help="Only jobs in these phases, e.g. Pending,Running."
)
@click.option("--queue", default="", metavar="QUEUE", help="Only jobs of this queue of Kueue or Volcano.")
@click.option("--watch", "-w", is_flag=True, help="After listing, watch for changes.")
@click.option("--no-headers", is_flag=True, help="Print no headings.")
@output.output_option()
@target_flags
def command(
    target: Target,
    names: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    phase: str,
    queue: str,
    watch: bool,
    no_headers: bool,
    form: str | None,
) -> None:
    """List jobs, or show those named: status, duration, reason.

    Also: get -o wide for attempts and messages, -o yaml or json for everything.
    """
    if names and (selector or all_namespaces):
        raise click.UsageError("give names, or -l and -A, not both")
    if watch and form in ("json", "yaml"):
        raise click.UsageError(f"-w does not work with -o {form}")
    listing = _Listing(
        names=names,
        all_namespaces=all_namespaces,
        selector=selector,
        phases=_phases(phase),
        queue=queue,
        form=form or "",
        headers=not no_headers,
    )
    shared.run(listing.run(target, watch=watch))


class _Listing:
    def __init__(
        self,
        *,
        names: tuple[str, ...],
        all_namespaces: bool,
        selector: str,
        phases: set[str],
        queue: str,
        form: str,
        headers: bool,
    ) -> None:
        self._names = names
        self._all_namespaces = all_namespaces
        self._selector = selector
        self._phases = phases
        self._queue = queue
        self._form = form
        self._headers = headers
        self._widths: list[int] = []

    async def run(self, target: Target, *, watch: bool) -> int:
        async with target.open() as jobs:
            found = [job for job in await self._find(jobs) if self._fits(job.state)]
            self._print(found, jobs)
            if watch:
                await self._watch(jobs, found)
        return 0

    async def _find(self, jobs: Jobs) -> list[Job]:
        if self._names:
            return await shared.find(jobs, self._names)
        return await jobs.list(selector=self._selector, all_namespaces=self._all_namespaces)

    def _fits(self, job: PaddleJob) -> bool:
        if self._phases and (str(job.status.phase) or "Pending").lower() not in self._phases:
            return False
        return not self._queue or self._queue in _queues(job)

    def _print(self, found: list[Job], jobs: Jobs) -> None:
        if self._form in ("json", "yaml", "name"):
            output.print_jobs(found, self._form, as_list=len(self._names) != 1)
        elif found:
            say(self._table(found))
        else:
            where = "" if self._all_namespaces else _where(jobs)
            say(f"No PaddleJobs found{where}.", err=True)

    def _table(self, found: list[Job]) -> str:
        headings = output.WIDE_HEADINGS if self._form == "wide" else output.HEADINGS
        rows = [self._row(job) for job in found]
        if self._headers and not self._widths:
            rows.insert(0, (*(("NAMESPACE",) if self._all_namespaces else ()), *headings))
        return output.table(rows, self._widths)

    def _row(self, job: Job) -> tuple[str, ...]:
        cells = output.row(job, datetime.now(UTC), wide=self._form == "wide")
        return (job.namespace, *cells) if self._all_namespaces else cells

    async def _watch(self, jobs: Jobs, shown: list[Job]) -> None:
        """Print a line for each change, until interrupted."""
        before = {(job.namespace, job.name): self._lasting(job) for job in shown}
        async for job in jobs.watch(selector=self._selector, all_namespaces=self._all_namespaces):
            key, now = (job.namespace, job.name), self._lasting(job)
            if before.get(key) == now or not self._fits(job.state):
                continue
            if self._names and key not in before:
                continue
            before[key] = now
            say(job.kind_and_name if self._form == "name" else self._table([job]))

    def _lasting(self, job: Job) -> tuple[str, ...]:
        """Return the cells that do not change just because time passes."""
        cells = output.row(job, _NEVER, wide=self._form == "wide")
        return tuple(
            cell for cell, name in zip(cells, output.WIDE_HEADINGS, strict=False) if name not in _TIMES
        )


def _phases(text: str) -> set[str]:
    from paddlejob.api.v1 import Phase  # noqa: PLC0415 - not needed for help

    known = {str(phase).lower(): str(phase) for phase in Phase if phase}
    wanted = {each.strip().lower() for each in text.split(",") if each.strip()}
    if unknown := sorted(wanted - {*known}):
        choices = ", ".join(known.values())
        raise click.UsageError(f"--phase: {unknown[0]} is not a phase; choose among {choices}")
    return wanted


def _queues(job: PaddleJob) -> set[str]:
    from paddlejob.api import names  # noqa: PLC0415

    policy = job.spec.scheduling_policy
    labelled = job.metadata.labels.get(names.LABEL_KUEUE_QUEUE, "")
    return {labelled, policy.queue if policy else ""} - {""}


def _where(jobs: Jobs) -> str:
    namespace = getattr(jobs, "namespace", "")
    return f" in namespace {namespace}" if namespace else ""
