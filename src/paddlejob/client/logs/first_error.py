"""The first failure of a job: who failed, how, and its last words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddlejob.client import ranks
from paddlejob.client.job import FirstError
from paddlejob.client.logs.container_log import view_of
from paddlejob.client.logs.history import history
from paddlejob.client.logs.model import LogQuery
from paddlejob.kube import errors

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob

LOOK_AT_LINES = 5000
SHOWN_LINES = 100
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


async def first_error(job: ClusterJob) -> FirstError | None:
    """Return the failure that the operator recorded first, with the end of that rank's log if it is there."""
    failure = (await job.refresh()).status.last_failure
    if failure is None:
        return None
    rank = ranks.rank_of(job.name, failure.pod)
    lines = from_traceback(await _last_lines(job, failure.pod, failure.attempt))
    return FirstError(rank, failure.message, failure.exit_code, failure.attempt, tuple(lines))


async def _last_lines(job: ClusterJob, pod: str, attempt: int) -> list[str]:
    found = next((each for each in await job.pods() if each.metadata.name == pod), None)
    if found is None or ranks.attempt_of(found) != attempt:
        return []
    view = view_of(found, ranks.training_container(job.state, found))
    query = LogQuery(
        rank=ranks.rank_of(job.name, pod),
        tail=LOOK_AT_LINES,
        previous=view.is_running and view.restarts > 0,
    )
    try:
        return [line.text async for block in history(job, query) for line in block.lines()]
    except errors.NotFoundError:
        return []


def from_traceback(lines: Sequence[str]) -> list[str]:
    """Return the last traceback and all after it, with those that led to it; without one the last lines."""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return list(lines[-SHOWN_LINES:])
    first = starts.pop()
    while starts and any(line.strip() in _CHAINED for line in lines[starts[-1] : first]):
        first = starts.pop()
    return list(lines[first:])
