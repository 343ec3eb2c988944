"""`get`: list jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from paddlejob.api import names as api_names
from paddlejob.api.v1 import PaddleJob
from paddlejob.cli import output, shared
from paddlejob.cli.show.describe import process_table, rank_table
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.job import PHASES, Job, Jobs

_TIMES = ("DURATION", "AGE")
_NEVER = datetime.min.replace(tzinfo=UTC)


@click.command("get")
@click.argument("names", nargs=-1, metavar="[JOB]...", shell_complete=shared.complete_jobs)
@shared.all_namespaces_option
@click.option(
    "--selector", "-l", default="", metavar="LABELS", help="Only jobs with these labels, e.g. team=a."
)
@click.option(
    "--phase", default="", metavar="PHASES", help="Only jobs in these phases, e.g. Pending,Running."
)
@click.option("--queue", default="", metavar="QUEUE", help="Only jobs of this queue of Kueue or Volcano.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="List only the newest jobs.")
@click.option("--watch", "-w", is_flag=True, help="After listing, watch for changes.")
@click.option("--ranks", is_flag=True, help="List the ranks of one JOB: pod, card, step, loss, last line.")
@click.option("--no-headers", is_flag=True, help="Don't print headers.")
@output.output_option("text", *output.FORMS)
@target_flags
def command(
    target: Target,
    names: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    phase: str,
    queue: str,
    limit: int | None,
    watch: bool,
    ranks: bool,
    no_headers: bool,
    form: str | None,
) -> None:
    """List all jobs, or each JOB, with status, progress and result.

    -o wide adds attempts, loss, ETA and messages; -o yaml and -o json print everything.
    """
    if names and (selector or all_namespaces):
        raise click.UsageError("give names, or -l and -A, not both")
    if watch and form in ("json", "yaml"):
        raise click.UsageError(f"-w does not work with -o {form}")
    if ranks:
        if len(names) != 1 or watch or form in ("name", "wide"):
            raise click.UsageError(
                "--ranks needs one JOB, and works with -o json and -o yaml, but not with -w"
            )
        shared.run(_list_ranks(target, names[0], form))
    listing = _Listing(
        names=names,
        all_namespaces=all_namespaces,
        selector=selector,
        phases=_phases(phase),
        queue=queue,
        limit=limit,
        form="" if form in (None, "text") else form,
        headers=not no_headers,
    )
    shared.run(listing.run(target, watch=watch))


async def _list_ranks(target: Target, name: str, form: str | None) -> int:
    async with target.open() as jobs:
        job = await jobs.get(name)
        if form in ("json", "yaml"):
            output.print_object(msgspec.to_builtins(await job.processes()), form)
            return 0
        # A pod with one process is a rank itself.
        found = await process_table(job)
        say(found or rank_table(job, await job.pods(), datetime.now(UTC)))
    return 0


class _Listing:
    def __init__(
        self,
        *,
        names: tuple[str, ...],
        all_namespaces: bool,
        selector: str,
        phases: set[str],
        queue: str,
        limit: int | None,
        form: str,
        headers: bool,
    ) -> None:
        self._names = names
        self._all_namespaces = all_namespaces
        self._selector = selector
        self._phases = phases
        self._queue = queue
        self._limit = limit
        self._form = form
        self._headers = headers
        self._widths: list[int] = []

    async def run(self, target: Target, *, watch: bool) -> int:
        async with target.open() as jobs:
            self._is_local = target.is_local
            self._hint = f"; start one with `{target.command('run FILE')}`"
            found = [job for job in await self._find(jobs) if self._fits(job)]
            if self._limit:
                found = sorted(found, key=_created, reverse=True)[: self._limit]
            self._print(found, jobs)
            if watch:
                await self._watch(jobs, found)
        return 0

    async def _find(self, jobs: Jobs) -> list[Job]:
        if self._names:
            return await shared.find(jobs, self._names)
        return await jobs.list(selector=self._selector, all_namespaces=self._all_namespaces)

    def _fits(self, job: Job) -> bool:
        if self._phases and job.phase.lower() not in self._phases:
            return False
        return not self._queue or self._queue in _queues(job.state)

    def _print(self, found: list[Job], jobs: Jobs) -> None:
        if self._form in ("json", "yaml", "name"):
            output.print_jobs(found, self._form, as_list=len(self._names) != 1)
        elif found:
            say(self._table(found))
        else:
            where = "" if self._all_namespaces else f" in {jobs.place}"
            is_filtered = bool(self._phases or self._queue)
            hint = self._hint if self._is_local and not is_filtered else "."
            say(f"No PaddleJobs found{where}{hint}", err=True)

    def _table(self, found: list[Job]) -> str:
        is_wide = self._form == "wide"
        rows = [self._row(job) for job in found]
        if self._headers and not self._widths:
            headings = output.headings(is_local=self._is_local, wide=is_wide)
            rows.insert(0, (*(("NAMESPACE",) if self._all_namespaces else ()), *headings))
        text = output.table(rows, self._widths)
        return text if is_wide else output.cut_to_terminal(text)

    def _row(self, job: Job) -> tuple[str, ...]:
        cells = output.row(job, datetime.now(UTC), wide=self._form == "wide")
        return (job.namespace, *cells) if self._all_namespaces else cells

    async def _watch(self, jobs: Jobs, shown: list[Job]) -> None:
        """Print a line for each change, until interrupted."""
        before = {(job.namespace, job.name): self._lasting(job) for job in shown}
        async for job in jobs.watch(selector=self._selector, all_namespaces=self._all_namespaces):
            key, now = (job.namespace, job.name), self._lasting(job)
            if before.get(key) == now or not self._fits(job):
                continue
            if self._names and key not in before:
                continue
            before[key] = now
            say(job.kind_and_name if self._form == "name" else self._table([job]))

    def _lasting(self, job: Job) -> tuple[str, ...]:
        """Return the cells that do not change with time alone."""
        cells = output.row(job, _NEVER, wide=self._form == "wide")
        return tuple(
            cell for cell, name in zip(cells, output.WIDE_HEADINGS, strict=False) if name not in _TIMES
        )


def _created(job: Job) -> datetime:
    return job.state.metadata.creation_timestamp or _NEVER


def _phases(text: str) -> set[str]:
    known = {phase.lower() for phase in PHASES}
    wanted = {each.strip().lower() for each in text.split(",") if each.strip()}
    if unknown := sorted(wanted - known):
        raise click.UsageError(f"--phase: {unknown[0]} is not a phase; choose among {', '.join(PHASES)}")
    return wanted


def _queues(job: PaddleJob) -> set[str]:
    policy = job.spec.scheduling_policy
    labelled = job.metadata.labels.get(api_names.LABEL_KUEUE_QUEUE, "")
    return {labelled, policy.queue if policy else ""} - {""}
