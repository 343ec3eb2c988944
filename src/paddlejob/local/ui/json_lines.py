"""Output as one JSON object per line, for programs."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import Event
from paddlejob.core.pod_set import pod_name
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import LogLines
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord
from paddlejob.local.ui.output import EXIT_CODES, Output, Stream
from paddlejob.training.log_lines import Progress

PROGRESS_SECONDS = 1.0
"""Minimum interval between two progress lines."""


class JsonOutput(Output):
    """Prints run, note, job, pod, event, log, progress and result objects, each with its type and time."""

    def __init__(self, logs: str, stream: BinaryIO | Stream | None = None, *, only: str = "") -> None:
        """`only`: print objects of this type only, as for a run in the background."""
        super().__init__(logs, may_skip=logs == "none")
        self._only = only
        self._stream = stream or Stream(sys.stdout.buffer)
        self._last_status: tuple[str, str, str] | None = None
        self._last_progress: dict[str, Progress] = {}
        self._next_progress = 0.0

    def on_start(self, run: RunDirectory, record: RunRecord, *, is_attached: bool = False) -> None:
        super().on_start(run, record, is_attached=is_attached)
        self._print("run", run=run.name, directory=str(run.path), job=record.job.name, python=record.python)
        for note in record.notes:
            self._print("note", message=note)

    def on_job(self, job: PaddleJob) -> None:
        self.view.on_job(job)
        status = (str(job.status.phase), job.status.reason, job.status.message)
        if status != self._last_status and job.status.phase:
            self._last_status = status
            phase, reason, message = status
            self._print("job", job=job.name, phase=phase, reason=reason, message=message)

    def on_pod(self, pod: Pod) -> None:
        state = self.view.on_pod(pod)
        if not state:
            return
        ended = next((each.state.terminated for each in pod.status.container_statuses), None)
        ending = {"exitCode": ended.exit_code, "reason": ended.reason} if ended else {}
        self._print(
            "pod",
            pod=pod.metadata.name,
            phase=pod.status.phase,
            state=state,
            address=pod.status.pod_ip,
            restarts=sum(each.restart_count for each in pod.status.container_statuses),
            **ending,
        )

    def on_pod_gone(self, name: str) -> None:
        self.view.on_pod_gone(name)
        self._print("pod", pod=name, state="Gone")

    def on_event(self, event: Event) -> None:
        self._print("event", level=str(event.type), reason=event.reason, message=event.message)

    def on_log(self, lines: LogLines) -> None:
        self.view.on_log(lines)
        if self.is_selected(lines):
            for line in lines.text.decode(errors="replace").split("\n")[:-1]:
                self._print("log", pod=lines.pod, container=lines.container, line=line)

    def tick(self) -> None:
        if time.monotonic() >= self._next_progress:
            self._next_progress = time.monotonic() + PROGRESS_SECONDS
            self._print_progress()

    def _print_progress(self) -> None:
        for row in self.view.rows():
            pod, current = pod_name(self.view.job.name, row.replica), row.progress
            if current is not None and current != self._last_progress.get(pod):
                self._last_progress[pod] = current
                eta = row.tracker.eta_seconds(time.monotonic()) if row.state == "Running" else None
                fields = {**msgspec.to_builtins(current), "etaSeconds": None if eta is None else round(eta)}
                self._print("progress", pod=pod, fraction=current.fraction, **fields)

    def on_interrupt(self, times: int) -> None:
        self._print("interrupted", times=times)

    def on_detach(self) -> None:
        self._print("detached")

    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        self._print_progress()
        job = self.view.job
        self._print(
            "result",
            job=job.name,
            result=str(ending),
            exitCode=EXIT_CODES[ending],
            reason=job.status.reason,
            message=job.status.message,
            summary=outcome.summary,
            metrics=outcome.metrics,
            files=outcome.files,
            seconds=round(self.view.seconds, 3),
            directory=str(self.view.run.path),
        )

    def _print(self, kind: str, **fields: object) -> None:
        if self._only in ("", kind):
            line = {"type": kind, "time": datetime.now(UTC), **fields}
            self._stream.write(msgspec.json.encode(line) + b"\n")
            self._stream.flush()
