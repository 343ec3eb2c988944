"""Keeps a run's record and events on disk while it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import Event
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord

RECORD_SECONDS = 0.2
"""How long changes are gathered before the record is written again."""


class Recorder:
    """Keeps the run's record and events on disk. A disk that cannot be written costs these only."""

    def __init__(self, run: RunDirectory, fixed: RunRecord) -> None:
        """`fixed` has the fields that do not change while the run lasts."""
        self._run = run
        self._record = fixed
        self._pods: dict[str, Pod] = {}
        self._gone: set[str] = set()
        self._pids: Callable[[], dict[str, int]] = dict
        self._pending: asyncio.TimerHandle | None = None
        self._warn: Callable[[str], None] | None = None

    def start(self, job: PaddleJob, pids: Callable[[], dict[str, int]], warn: Callable[[str], None]) -> None:
        """Begin to keep the record of a job; `pids` returns the process ids of its pods."""
        self._pids = pids
        self._warn = warn
        self.on_job(job)
        self._write()

    def finish(self, result: str, outcome: Outcome) -> None:
        """Write the last record."""
        self._record = msgspec.structs.replace(self._record, result=result, outcome=outcome)
        self._write()

    def on_job(self, job: PaddleJob) -> None:
        """Write soon."""
        self._record = msgspec.structs.replace(self._record, job=job)
        self._soon()

    def on_pod(self, pod: Pod) -> None:
        """Write soon; of a pod that is gone, the last of its states stays."""
        self._pods[pod.metadata.name] = pod
        self._gone.discard(pod.metadata.name)
        self._soon()

    def on_pod_gone(self, name: str) -> None:
        """Write soon."""
        self._gone.add(name)
        self._soon()

    def on_event(self, event: Event) -> None:
        """Append the event, and when it was."""
        stamped = {**msgspec.to_builtins(event), "time": datetime.now(UTC)}
        with self._warning_once():
            self._run.append_event(msgspec.json.encode(stamped))

    def _soon(self) -> None:
        if self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(RECORD_SECONDS, self._write)

    def _write(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        pods = tuple(self._pods[name] for name in sorted(self._pods))
        self._record = msgspec.structs.replace(
            self._record, pods=pods, gone=tuple(sorted(self._gone)), pids=self._pids()
        )
        with self._warning_once():
            self._run.write_record(self._record)

    @contextmanager
    def _warning_once(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The warning is an event, which comes back here.
            warn, self._warn = self._warn, None
            if warn is not None:
                problem = f"cannot write to {self._run.path}: {error.strerror}"
                warn(f"{problem}; training continues, but other commands may show an old state")
