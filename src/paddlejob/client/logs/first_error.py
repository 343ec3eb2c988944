"""Find the first failure of a job: the rank, the cause, and its last lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddlejob.api.v1 import Failure
from paddlejob.client import ranks
from paddlejob.client.job import FirstError
from paddlejob.client.logs.container_log import container_view
from paddlejob.client.logs.history import history
from paddlejob.client.logs.model import LogQuery
from paddlejob.client.records import RecordedLog, recorded_log
from paddlejob.core.pod_set import attempt_of
from paddlejob.kube import errors

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob

READ_LINES = 5000
SHOWN_LINES = 100
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


async def first_error(job: ClusterJob) -> FirstError | None:
    """Return the first failure in the status, with the last lines of that rank's log or record."""
    failure = (await job.refresh()).status.last_failure
    if failure is None:
        return None
    rank = ranks.rank_of(job.name, failure.pod)
    lines, note = await _last_lines(job, rank, failure)
    shown = tuple(from_traceback(lines))
    return FirstError(rank, failure.message, failure.exit_code, failure.attempt, shown, note)


async def _last_lines(job: ClusterJob, rank: str, failure: Failure) -> RecordedLog:
    found = next((each for each in await job.pods() if each.metadata.name == failure.pod), None)
    if found is None or attempt_of(found) != failure.attempt:
        return await recorded_log(job.client, job.state, failure)
    view = container_view(found, ranks.training_container(job.state, found))
    query = LogQuery(rank=rank, tail=READ_LINES, previous=view.is_running and view.restarts > 0)
    try:
        written = [line async for block in history(job, query) for line in block.lines()]
    except errors.NotFoundError:
        return await recorded_log(job.client, job.state, failure)
    lines = tuple(line.text for line in written if line.rank)
    return RecordedLog(lines, "" if lines else silent(rank))


def silent(rank: str) -> str:
    """Return the sentence for a rank without output."""
    return f"{rank} wrote nothing to its log"


def from_traceback(lines: Sequence[str]) -> list[str]:
    """Return the last traceback, with its chained ones, and all lines after it; else the last lines."""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return list(lines[-SHOWN_LINES:])
    first = starts.pop()
    while starts and any(line.strip() in _CHAINED for line in lines[starts[-1] : first]):
        first = starts.pop()
    return list(lines[first:])
