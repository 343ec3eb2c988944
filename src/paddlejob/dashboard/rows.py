"""Jobs, pods and log lines as the pages get them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import ContainerTerminated, Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.client import ranks
from paddlejob.client.job import Job, JobEvent, run_time
from paddlejob.client.logs.model import LogLine
from paddlejob.history.record import Record, Summary, object_key


def key_of(job: Job) -> str:
    """Return what a job is called among all."""
    return f"{job.namespace}/{job.name}"


def row_of(job: Job) -> JsonObject:
    """Return a job as a line of the list."""
    state, status = job.state, job.state.status
    ran_before, active_since = run_time(state)
    return {
        "key": key_of(job),
        "namespace": job.namespace,
        "name": job.name,
        "phase": str(status.phase) or "Pending",
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


def detail_of(job: Job) -> JsonObject:
    """Return a job as its own page shows it."""
    state, status = job.state, job.state.status
    return {
        **row_of(job),
        "backoffLimit": state.spec.backoff_limit,
        "attemptTime": status.attempt_time,
        "retryTime": status.retry_time,
        "elastic": state.spec.elastic is not None,
        "labels": state.metadata.labels,
        "failure": msgspec.to_builtins(status.last_failure) if status.last_failure else None,
    }


def rank_of(state: PaddleJob, pod: Pod) -> JsonObject:
    """Return a pod as a line of the table of ranks."""
    container = ranks.training_container(state, pod)
    statuses = pod.status.container_statuses
    found = next((each for each in statuses if each.name == container), None)
    running = found.state.running if found else None
    ended = found.state.terminated if found else None
    return {
        "rank": ranks.rank_of(state.name, pod.metadata.name),
        "state": pod.status.reason or (_ending(ended) if ended else ranks.state_of(state, pod)),
        "restarts": sum(each.restart_count for each in statuses),
        "attempt": ranks.attempt_of(pod),
        "node": pod.spec.node_name,
        "created": pod.metadata.creation_timestamp,
        "started": running.started_at if running else ended.started_at if ended else None,
        "ended": ended.finished_at if ended else None,
        "exitCode": ended.exit_code if ended else None,
    }


def _ending(ended: ContainerTerminated) -> str:
    """Return how a program ended, whatever its pod is waiting for."""
    return f"{ended.reason or 'Error'} {ended.exit_code}" if ended.exit_code else "Completed"


def summary_of(summary: Summary) -> JsonObject:
    """Return a job that may be gone as a line of the history."""
    data: JsonObject = msgspec.json.decode(msgspec.json.encode(summary))
    # A run on this machine is its own record.
    record = summary.name if summary.uid == summary.name else object_key(summary).name
    return {**data, "key": f"{summary.namespace}/{summary.name}", "record": record}


def record_of(record: Record) -> JsonObject:
    """Return what is kept of a job, with its curve as a live one has it."""
    data: JsonObject = msgspec.json.decode(msgspec.json.encode(record))
    curve = [
        {
            "time": datetime.fromtimestamp(each.time, UTC),
            "attempt": each.attempt,
            "epoch": each.epoch,
            "step": each.step,
            "loss": _number(each.loss),
            "throughput": None,
        }
        for each in record.curve
    ]
    return {"attempts": [], "timeline": [], **data, "curve": curve}


def _number(text: str) -> float | None:
    """Return a loss, None for one that JSON cannot write."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def events_of(events: Sequence[JobEvent]) -> list[Any]:
    """Return events, newest last."""
    return [msgspec.to_builtins(each) for each in events]


def lines_of(lines: Iterable[LogLine]) -> list[tuple[Any, ...]]:
    """Return lines of a log as small as they can be."""
    return [(line.rank, line.attempt, line.time, line.text) for line in lines]
