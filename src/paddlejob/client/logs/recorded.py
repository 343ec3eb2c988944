"""Read the logs of deleted pods from the operator's record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from paddlejob.api.v1 import PaddleJob
from paddlejob.client import ranks
from paddlejob.client.logs.model import LogBlock, LogItem, LogQuery, Marker
from paddlejob.client.records import recorded_attempt
from paddlejob.history.record import RankEnd
from paddlejob.local.store.logs import chosen_pods

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob


async def recorded_logs(
    job: ClusterJob, state: PaddleJob, query: LogQuery, present: Collection[str]
) -> AsyncGenerator[LogItem, None]:
    """Yield a marker and the recorded last lines of a finished job's pods that are not `present`.

    If there is neither a record nor a pod, the marker reports that the logs were deleted.
    """
    wanted = chosen_pods(state.name, query.rank, ranks.wanted(state))
    missing = [pod for pod in wanted if pod not in present]
    is_recorded = query.recorded and not (query.previous or query.container)
    attempt = (
        await recorded_attempt(job.client, state, state.status.attempt) if missing and is_recorded else None
    )
    ends = [each for each in (attempt.ranks if attempt else ()) if f"{state.name}-{each.rank}" in missing]
    blocks = [block for end in ends if (block := _block(end, state, query, job.client.server_now()))]
    if blocks:
        pods = "pod was" if len(missing) == 1 else "pods were"
        source = f"{len(missing)} {pods} deleted; the last lines are from the operator's record"
        yield Marker(source, state.status.attempt)
    elif not present:
        gone = f"the logs of {state.name} were deleted with its pods; spec.cleanPodPolicy: Never keeps them"
        yield Marker(gone, state.status.attempt)
    for block in blocks:
        yield block


def _block(end: RankEnd, state: PaddleJob, query: LogQuery, now: datetime | None) -> LogBlock | None:
    """Return the lines that the query selects, all with the time when the rank ended."""
    time = end.time or state.status.completion_time
    lines = end.text.splitlines()
    lines = lines[max(0, len(lines) - query.tail) :] if query.tail is not None else lines
    if not lines or time is None:
        return None
    if now and query.since_seconds and now - time > timedelta(seconds=query.since_seconds):
        return None
    stamp = time.isoformat()
    stamped = "".join(f"{stamp} {line}\n" for line in lines)
    return LogBlock(end.rank, state.status.attempt, stamped.encode())
