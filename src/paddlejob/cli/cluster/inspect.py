"""`describe`, `explain`, `events`, `env` and `wait`: what there is to know of a job."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paddlejob.api import names
from paddlejob.cli.cluster import output, shared
from paddlejob.cli.cluster.flags import Target, target_flags
from paddlejob.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from paddlejob.api.pod import Pod
    from paddlejob.api.v1 import PaddleJob, PaddleJobStatus
    from paddlejob.client.job import Job, JobEvent, Usage

T = TypeVar("T")

SHOWN_EVENTS = 10
COMMAND_LENGTH = 200


@click.command("describe")
@shared.jobs_argument
@target_flags
def describe(target: Target, names: tuple[str, ...]) -> None:
    """Show each JOB: its state and why, its training, ranks, last failure and events."""
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
    ranks = await _as_far_as_allowed(job.pods(), lambda pods: rank_table(job, pods, now))
    lines = [output.fields(_facts(job, state, now)), "", "Ranks:", _indented(ranks)]
    if state.status.conditions:
        lines += ["Conditions:", _indented(_conditions(state, now))]
    events = await _as_far_as_allowed(
        job.events(), lambda events: event_table(events[-SHOWN_EVENTS:], now) if events else "<none>"
    )
    lines += ["Events:", _indented(events)]
    return lines


async def _as_far_as_allowed(reading: Coroutine[Any, Any, T], table: Callable[[T], str]) -> str:
    """Return a table of what is read, or which right that needs: the rest of a job is shown all the same."""
    from paddlejob.client.errors import sentence  # noqa: PLC0415
    from paddlejob.kube.errors import ForbiddenError  # noqa: PLC0415

    try:
        return table(await reading)
    except ForbiddenError as error:
        return f"<{sentence(error)}>"


def _facts(job: Job, state: PaddleJob, now: datetime) -> Iterator[tuple[str, str]]:
    status = state.status
    yield "Name", job.name
    yield "Namespace", job.namespace
    yield "Labels", ", ".join(f"{key}={value}" for key, value in sorted(state.metadata.labels.items()))
    yield "Status", str(status.phase) or "Pending"
    yield "Reason", status.reason
    yield "Message", state.undecodable or status.message
    yield "Mode", status.mode
    yield "Age", output.duration(state.metadata.creation_timestamp, None, now)
    yield "Duration", output.running(state, now)
    yield "Attempt", f"{status.attempt} ({status.restarts} of {state.spec.backoff_limit} restarts used)"
    if status.goodput:
        yield "Time", _time_spent(state, now)
    yield from _training_facts(status)
    yield from _programs(state)
    if failure := status.last_failure:
        ago = output.duration(failure.time, None, now)
        yield "Last failure", f"attempt {failure.attempt}, {ago} ago: {failure.message}"


def _training_facts(status: PaddleJobStatus) -> Iterator[tuple[str, str]]:
    """Yield the progress of training, and the steps that checkpoints saved and restarts lost."""
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
    from paddlejob.core.messages import one_line  # noqa: PLC0415
    from paddlejob.core.pod_set import training_container  # noqa: PLC0415
    from paddlejob.history.redaction import redact  # noqa: PLC0415

    for role, spec in state.spec.roles():
        container = training_container(spec)
        lists = (container.get(field) for field in ("command", "args"))
        words = [word for each in lists if isinstance(each, list) for word in each]
        yield f"{role} image".capitalize(), str(container.get("image") or "")
        # People paste the output of describe into chats and tickets.
        text = redact(shlex.join(map(str, words)))
        yield f"{role} command".capitalize(), one_line(text, COMMAND_LENGTH)


def _time_spent(state: PaddleJob, now: datetime) -> str:
    """Return where the time went, up to now or to the end, with the part that was training."""
    from paddlejob.core.policy import goodput  # noqa: PLC0415

    is_over = state.status.phase.is_terminal
    spent = state.status.goodput if is_over else goodput.goodput_at(state, now)
    return goodput.in_words(spent) if spent else ""


def rank_table(job: Job, pods: list[Pod], now: datetime, usage: Mapping[str, Usage] | None = None) -> str:
    """Return a line for each rank, with what it uses where that is known."""
    from paddlejob.client import ranks  # noqa: PLC0415

    rows = [("RANK", "STATUS", "RESTARTS", "ATTEMPT", "AGE", "NODE", *(("CPU", "MEMORY") if usage else ()))]
    for pod in pods:
        used = usage.get(pod.metadata.name) if usage else None
        rows.append(
            (
                ranks.rank_of(job.state.name, pod.metadata.name),
                ranks.state_of(job.state, pod),
                str(sum(each.restart_count for each in pod.status.container_statuses)),
                str(ranks.attempt_of(pod)),
                output.duration(pod.metadata.creation_timestamp, None, now),
                pod.spec.node_name or "-",
                *((used or ("-", "-")) if usage else ()),
            )
        )
    return output.table(rows) if pods else f"<{job.name} has no pods now>"


def _conditions(state: PaddleJob, now: datetime) -> str:
    rows = [("TYPE", "STATUS", "SINCE", "REASON")]
    rows += [
        (each.type, each.status, output.duration(each.last_transition_time, None, now), each.reason)
        for each in state.status.conditions
    ]
    return output.table(rows)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


@click.command("explain")
@shared.job_argument
@output.output_option("json", "yaml")
@target_flags
def explain(target: Target, job: str, form: str | None) -> None:
    """Say in one sentence why JOB does not run or why it failed, then the details and what to do."""
    shared.run(_explain(target, job, form))


async def _explain(target: Target, name: str, form: str | None) -> int:
    async with target.open() as jobs:
        explanation = await (await jobs.get(name)).explain()
    if form:
        output.print_object(explanation.to_dict(), form)
    else:
        say(str(explanation))
    return 0


@click.command("events")
@shared.job_argument
@output.output_option("json", "yaml")
@target_flags
def events(target: Target, job: str, form: str | None) -> None:
    """List what happened to JOB and its pods, oldest first."""
    shared.run(_events(target, job, form))


async def _events(target: Target, name: str, form: str | None) -> int:
    import msgspec  # noqa: PLC0415

    async with target.open() as jobs:
        job = await jobs.get(name)
        found = await job.events()
    if form:
        output.print_object([msgspec.to_builtins(each) for each in found], form)
    elif found:
        say(event_table(found, datetime.now(UTC)))
    else:
        say(f"{job.name} has no events; they are kept for about an hour", err=True)
    return 0


def event_table(found: Iterable[JobEvent], now: datetime) -> str:
    """Return events as kubectl shows them."""
    rows = [("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")]
    for each in found:
        times = f" (x{each.count})" if each.count > 1 else ""
        seen = output.duration(each.time, None, now) + times
        rows.append((seen, each.type, each.reason, each.object, each.message))
    return output.table(rows)


@click.command("env")
@shared.job_argument
@shared.rank_option
@target_flags
def env(target: Target, job: str, rank: str) -> None:
    """Show the environment of one rank of JOB, as its manifest and the operator give it."""
    shared.run(_env(target, job, rank))


async def _env(target: Target, name: str, rank: str) -> int:
    async with target.open() as jobs:
        variables = await (await jobs.get(name)).environment(rank)
    for key in sorted(variables):
        if not key.startswith(names.ATTEMPT_GUARD):
            say(f"{key}={variables[key]}")
    return 0


@click.command("wait")
@shared.jobs_argument
@click.option(
    "--for",
    "goal",
    default="ended",
    metavar="GOAL",
    help="ended (default), completed, running, suspended, deleted, or condition=TYPE[=STATUS].",
)
@click.option("--timeout", type=shared.Duration(), default=None, help="Longest time to wait, e.g. 30m.")
@target_flags
def wait(target: Target, names: tuple[str, ...], goal: str, timeout: float | None) -> None:
    """Wait until each JOB has ended, or for another goal.

    Exit codes: 0 completed, or the goal was reached; 1 a job failed; 124 timed out.
    """
    shared.run(_wait(target, names, goal, timeout))


def _say_note(text: str) -> None:
    say(text, err=True)


async def _wait(target: Target, names: tuple[str, ...], goal: str, seconds: float | None) -> int:
    import asyncio  # noqa: PLC0415

    from paddlejob.client import goals  # noqa: PLC0415
    from paddlejob.client.errors import GoalMissedError  # noqa: PLC0415
    from paddlejob.client.job import describe  # noqa: PLC0415

    goal = goals.DELETED if goal == "delete" else goal  # kubectl's word
    async with target.open() as jobs:
        found = await shared.find(jobs, names)
        try:
            waits = (job.wait(goal, timeout_seconds=seconds, on_note=_say_note) for job in found)
            states = await asyncio.gather(*waits)
        except GoalMissedError as error:
            shared.say_error(str(error))
            return shared.FAILED
    for job, state in zip(found, states, strict=True):
        say(f"{job.kind_and_name} {'deleted' if goal == goals.DELETED else describe(state)}")
    if goal != goals.ENDED:
        return 0
    return max(shared.exit_code(state) for state in states)
