"""`describe`: show everything about a job."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from paddlejob.api.index_set import parse_moves
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Role
from paddlejob.cli import output, shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, JobEvent, Usage
from paddlejob.client.streams.processes import MAX_PODS
from paddlejob.core.pod_set import Replica, attempt_of, training_container
from paddlejob.history.environment import redact
from paddlejob.kube.errors import ForbiddenError, KubeError
from paddlejob.text import one_line
from paddlejob.training import goodput, recovery

T = TypeVar("T")

SHOWN_EVENTS = 10
COMMAND_LENGTH = 200
LINE_LENGTH = 80


@click.command("describe")
@shared.shown_jobs
@target_flags
def command(target: Target, names: tuple[str, ...]) -> None:
    """Show the state, progress, ranks, last failure and events of each JOB."""
    shared.run(_describe(target, names))


async def _describe(target: Target, names: tuple[str, ...]) -> int:
    async with target.open() as jobs:
        for position, job in enumerate(await shared.find(jobs, names)):
            if position:
                say()
            for line in await _description(job):
                say(line)
    return 0


async def _description(job: Job) -> list[str]:
    state, now = job.state, datetime.now(UTC)
    shown_ranks = await _if_allowed(job.pods(), lambda pods: rank_table(job, pods, now))
    lines = [output.fields(_facts(job, state, now)), "", "Ranks:", _indented(shown_ranks)]
    if shown := await process_table(job):
        lines += ["Processes:", _indented(shown)]
    if state.status.conditions:
        lines += ["Conditions:", _indented(_conditions(state, now))]
    events = await _if_allowed(
        job.events(), lambda events: event_table(events[-SHOWN_EVENTS:], now) if events else "<none>"
    )
    lines += ["Events:", _indented(events)]
    return lines


async def _if_allowed(reading: Coroutine[Any, Any, T], table: Callable[[T], str]) -> str:
    """Return a table, or the missing permission, since the rest of the job can still be shown."""
    try:
        return table(await reading)
    except ForbiddenError as error:
        return f"<{sentence(error)}>"


def _facts(job: Job, state: PaddleJob, now: datetime) -> Iterator[tuple[str, str]]:
    status = state.status
    yield "Name", job.name
    yield "Namespace", job.namespace
    yield "Labels", ", ".join(f"{key}={value}" for key, value in sorted(state.metadata.labels.items()))
    yield "Status", job.phase
    yield "Reason", status.reason if status.reason != job.phase else ""
    yield "Message", state.undecodable or status.message
    yield "Mode", status.mode
    yield "Age", output.duration(state.metadata.creation_timestamp, None, now)
    yield "Duration", output.running(state, now)
    yield "Attempt", f"{status.attempt} ({status.restarts} of {state.spec.backoff_limit} restarts used)"
    yield "Spares", f"{status.spares} ready" if status.spares else ""
    yield (
        "Moved ranks",
        ", ".join(
            f"{rank} in {Replica(Role.WORKER, pod)}" for rank, pod in parse_moves(status.moved_ranks).items()
        ),
    )
    if status.goodput:
        yield "Time", _time_spent(state, now)
    yield from _training_facts(status)
    yield from _programs(state)
    if failure := status.last_failure:
        ago = output.duration(failure.time, None, now)
        yield "Last failure", f"attempt {failure.attempt}, {ago} ago: {failure.message}"
    if last := status.last_recovery:
        yield "Last recovery", f"attempt {last.attempt}, {recovery.in_words(last)}"


def _training_facts(status: PaddleJobStatus) -> Iterator[tuple[str, str]]:
    """Yield the progress of training, and the steps that were saved, resumed from and lost."""
    progress = status.progress
    if progress is None:
        return
    yield "Progress", output.training(progress, is_over=status.phase.is_terminal)
    steps = {
        "Repeated step": progress.attempt_step,
        "Saved step": progress.saved_step,
        "Resumed step": progress.resumed_step,
        "Lost steps": progress.lost_steps,
    }
    yield from ((name, str(number)) for name, number in steps.items() if number)


def _programs(state: PaddleJob) -> Iterator[tuple[str, str]]:
    """Yield image and command of the training container of each role."""
    for role, spec in state.spec.roles():
        container = training_container(spec)
        lists = (container.get(field) for field in ("command", "args"))
        words = [word for each in lists if isinstance(each, list) for word in each]
        yield f"{role} image".capitalize(), str(container.get("image") or "")
        # People paste the output of describe into chats and tickets.
        text = redact(shlex.join(map(str, words)))
        yield f"{role} command".capitalize(), one_line(text, COMMAND_LENGTH)


def _time_spent(state: PaddleJob, now: datetime) -> str:
    """Return how the time until now, or until the end, was spent."""
    is_over = state.status.phase.is_terminal
    spent = state.status.goodput if is_over else goodput.goodput_at(state, now)
    return goodput.in_words(spent) if spent else ""


def rank_table(job: Job, pods: list[Pod], now: datetime, usage: Mapping[str, Usage] | None = None) -> str:
    """Return a table of the pods, with their CPU and memory if `usage` is given."""
    numbers = {pod.metadata.name: ranks.ranks_in(job.state, pod) for pod in pods}
    has_numbers = any(numbers.values())
    names = ("POD", "RANKS") if has_numbers else ("RANK",)
    rows = [(*names, "STATUS", "RESTARTS", "ATTEMPT", "AGE", "NODE", *(("CPU", "MEMORY") if usage else ()))]
    for pod in pods:
        used = usage.get(pod.metadata.name) if usage else None
        rows.append(
            (
                ranks.rank_of(job.state.name, pod.metadata.name),
                *((numbers[pod.metadata.name] or "-",) if has_numbers else ()),
                "Spare" if ranks.waits_as_spare(pod) else ranks.state_of(job.state, pod),
                str(sum(each.restart_count for each in pod.status.container_statuses)),
                str(attempt_of(pod)),
                output.duration(pod.metadata.creation_timestamp, None, now),
                pod.spec.node_name or "-",
                *((used or ("-", "-")) if usage else ()),
            )
        )
    return output.table(rows) if pods else f"<{job.name} has no pods now>"


async def process_table(job: Job) -> str:
    """Return a table of the processes, if pods have several; empty if no process can be read."""
    if ranks.processes_per_pod(job.state) == 1:
        return ""
    try:
        found = await job.processes()
    except (ClientError, KubeError) as error:
        return f"<{sentence(error)}>"
    rows = [("RANK", "POD", "CARD", "STEP", "LOSS", "LAST LINE")]
    for each in found:
        step = f"{each.step}/{each.total}" if each.total >= each.step > 0 else str(each.step or "-")
        last = f"<{each.trouble}>" if each.trouble else one_line(each.last_line, LINE_LENGTH)
        rank = "-" if each.rank is None else str(each.rank)
        rows.append((rank, each.pod, each.device or "-", step, each.loss or "-", last))
    workers = job.state.spec.replicas(Role.WORKER)
    note = f"\n<only {MAX_PODS} of {workers} pods were read>" if workers > MAX_PODS else ""
    return output.table(rows) + note if found else ""


def _conditions(state: PaddleJob, now: datetime) -> str:
    rows = [("TYPE", "STATUS", "SINCE", "REASON")]
    rows += [
        (each.type, each.status, output.duration(each.last_transition_time, None, now), each.reason)
        for each in state.status.conditions
    ]
    return output.table(rows)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def event_table(found: Iterable[JobEvent], now: datetime) -> str:
    """Return events in a table, as kubectl shows them."""
    rows = [("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")]
    for each in found:
        times = f" (x{each.count})" if each.count > 1 else ""
        seen = output.duration(each.time, None, now) + times
        rows.append((seen, each.type, each.reason, each.object, each.message))
    return output.table(rows)
