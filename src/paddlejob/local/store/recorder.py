"""Keeps a run's record and events on disk while it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import Event
from paddlejob.local.store.run_directory import RunDirectory, RunRecord

RECORD_SECONDS = 0.2
"""How long changes are gathered before the record is written again."""


class Recorder:
    """Keeps the run's record and events on disk."""

    def __init__(self, run: RunDirectory, base_port: int) -> None:
        self._run = run
        self._base_port = base_port
        self._job: PaddleJob | None = None
        self._pods: dict[str, Pod] = {}
        self._pids: Callable[[], dict[str, int]] = dict
        self._pending: asyncio.TimerHandle | None = None

    def start(self, job: PaddleJob, pids: Callable[[], dict[str, int]]) -> None:
        """Begin to keep the record of a job; `pids` tells the process ids of its pods."""
        self._pids = pids
        self.on_job(job)
        self._write("")

    def finish(self, result: str) -> None:
        """Write the last record."""
        self._write(result)

    def on_job(self, job: PaddleJob) -> None:
        """Write soon."""
        self._job = job
        self._soon()

    def on_pod(self, pod: Pod) -> None:
        """Write soon; of a pod that is gone, the last of its states stays."""
        self._pods[pod.metadata.name] = pod
        self._soon()

    def on_pod_gone(self, name: str) -> None:
        """Nothing to write: the last of its states stays."""

    def on_event(self, event: Event) -> None:
        """Append the event."""
        self._run.append_event(msgspec.json.encode(event))

    def _soon(self) -> None:
        if self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(RECORD_SECONDS, self._write, "")

    def _write(self, result: str) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        assert self._job is not None
        pods = tuple(self._pods[name] for name in sorted(self._pods))
        self._run.write_record(
            RunRecord(job=self._job, pods=pods, pids=self._pids(), base_port=self._base_port, result=result)
        )
