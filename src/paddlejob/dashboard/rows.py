"""JSON of jobs, pods, records and log lines for the pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import ContainerTerminated, Pod
from paddlejob.api.v1 import PaddleJob, Recovery
from paddlejob.client import ranks
from paddlejob.client.job import Job, JobEvent, phase_of, run_time
from paddlejob.client.logs.model import LogLine
from paddlejob.core.pod_set import attempt_of
from paddlejob.history.record import Record, Summary, object_key
from paddlejob.training import recovery
from paddlejob.training.goodput import in_words

STATIC = Path(__file__).parent / "static"


def key_of(job: Job) -> str:
    """Return the key of a job, unique over all namespaces."""
    return f"{job.namespace}/{job.name}"


def row_of(job: Job) -> JsonObject:
    """Return a job as a row of the list."""
    return _row(job.namespace, job.name, job.state)


def _row(namespace: str, name: str, state: PaddleJob) -> JsonObject:
    status = state.status
    ran_before, active_since = run_time(state)
    return {
        "key": f"{namespace}/{name}",
        "namespace": namespace,
        "name": name,
        "phase": phase_of(state),
        "reason": "Undecodable" if state.undecodable else status.reason,
        "message": state.undecodable or status.message,
        "mode": status.mode or str(state.spec.mode),
        "ready": {
            str(role): found.ready
            for role, _ in state.spec.roles()
            if (found := getattr(status, str(role))) is not None
        },
        "workers": state.spec.worker.replicas if state.spec.worker else 0,
        "progress": msgspec.to_builtins(status.progress) if status.progress else None,
        "attempt": status.attempt,
        "restarts": status.restarts,
        "created": state.metadata.creation_timestamp,
        "started": status.start_time,
        "ranBefore": ran_before,
        "activeSince": active_since,
        "ended": status.completion_time,
        "isOver": status.phase.is_terminal,
        "isSuspended": state.spec.suspend,
    }


def detail_of(namespace: str, name: str, state: PaddleJob) -> JsonObject:
    """Return a job for its page."""
    status = state.status
    return {
        **_row(namespace, name, state),
        "backoffLimit": state.spec.backoff_limit,
        "attemptTime": status.attempt_time,
        "retryTime": status.retry_time,
        "elastic": state.spec.elastic is not None,
        "labels": state.metadata.labels,
        "failure": msgspec.to_builtins(status.last_failure) if status.last_failure else None,
        "recovery": _recovery(status.last_recovery),
    }


def rank_of(state: PaddleJob, pod: Pod) -> JsonObject:
    """Return a pod as a row of the table of ranks."""
    container = ranks.training_container(state, pod)
    statuses = pod.status.container_statuses
    found = next((each for each in statuses if each.name == container), None)
    running = found.state.running if found else None
    ended = found.state.terminated if found else None
    return {
        "rank": ranks.rank_of(state.name, pod.metadata.name),
        "ranks": ranks.ranks_in(state, pod),
        "state": pod.status.reason or (_ending(ended) if ended else ranks.state_of(state, pod)),
        "restarts": sum(each.restart_count for each in statuses),
        "attempt": attempt_of(pod),
        "node": pod.spec.node_name,
        "created": pod.metadata.creation_timestamp,
        "started": running.started_at if running else ended.started_at if ended else None,
        "ended": ended.finished_at if ended else None,
        "exitCode": ended.exit_code if ended else None,
    }


def _ending(ended: ContainerTerminated) -> str:
    """Return how a container ended."""
    return f"{ended.reason or 'Error'} {ended.exit_code}" if ended.exit_code else "Completed"


def summary_of(summary: Summary) -> JsonObject:
    """Return a finished job as a row of the history."""
    data: JsonObject = msgspec.json.decode(msgspec.json.encode(summary))
    # A local run is its own record.
    record = summary.name if summary.uid == summary.name else object_key(summary).name
    return {**data, "key": f"{summary.namespace}/{summary.name}", "record": record}


def record_of(record: Record) -> JsonObject:
    """Return a record, with its curve in the format of a live job."""
    data: JsonObject = msgspec.json.decode(msgspec.json.encode(record))
    curve = [
        {
            "time": datetime.fromtimestamp(each.time, UTC),
            "attempt": each.attempt,
            "epoch": each.epoch,
            "step": each.step,
            "loss": _finite(each.loss),
            "oddLoss": each.loss if _finite(each.loss) is None else "",
            "throughput": None,
        }
        for each in record.curve
    ]
    for each, shown in zip(record.attempts, data.get("attempts", ()), strict=True):
        shown["recovery"] = _recovery(each.recovery)
    goodput = in_words(record.summary.goodput) if record.summary.goodput else ""
    return {"attempts": [], "timeline": [], "environment": {}, **data, "curve": curve, "goodput": goodput}


def _recovery(found: Recovery | None) -> JsonObject | None:
    return {"attempt": found.attempt, "text": recovery.in_words(found)} if found else None


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def events_of(events: Sequence[JobEvent]) -> list[Any]:
    """Return events as JSON."""
    return [msgspec.to_builtins(each) for each in events]


def lines_of(lines: Iterable[LogLine]) -> list[tuple[Any, ...]]:
    """Return log lines as tuples, which are smaller than objects."""
    return [(line.rank, line.attempt, line.time, line.text) for line in lines]
