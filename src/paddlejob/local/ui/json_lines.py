"""One JSON object a line, for machines."""

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
from paddlejob.local.store.logs import LogLines, chosen_pods
from paddlejob.local.store.run_directory import Outcome
from paddlejob.local.ui.output import EXIT_CODES, Shown
from paddlejob.local.ui.stream import Stream
from paddlejob.local.ui.view import RunView
from paddlejob.progress import Progress

PROGRESS_SECONDS = 1.0
"""Minimum interval between two lines of progress."""


class JsonOutput:
    """Prints run, note, job, pod, event, log, progress and result objects, each with its type and time."""

    def __init__(self, logs: str, stream: BinaryIO | Stream | None = None, *, only: str = "") -> None:
        """`only`: the one type of objects to print, as for a run that nobody watches."""
        self._logs = logs
        self._only = only
        self.may_skip = logs == "none"
        self._stream = stream or Stream(sys.stdout.buffer)
        self._view: RunView | None = None
        self._shown: Shown | None = None
        self._job_said: tuple[str, str, str] | None = None
        self._progress_said: dict[str, Progress] = {}
        self._next_progress = 0.0

    def on_start(self, shown: Shown) -> None:
        """Tell the run's name and directory."""
        self._shown = shown
        self._view = RunView(shown)
        run = shown.directory
        self._print("run", run=run.name, directory=str(run.path), job=shown.job.name, python=shown.python)
        for note in shown.notes:
            self._print("note", message=note)

    def on_job(self, job: PaddleJob) -> None:
        """Tell a new phase, reason or message."""
        assert self._view is not None
        self._view.on_job(job)
        said = (str(job.status.phase), job.status.reason, job.status.message)
        if said != self._job_said and job.status.phase:
            self._job_said = said
            phase, reason, message = said
            self._print("job", job=job.name, phase=phase, reason=reason, message=message)

    def on_pod(self, pod: Pod) -> None:
        """Tell a new state of a pod."""
        assert self._view is not None
        state = self._view.on_pod(pod)
        if not state:
            return
        ended = next((each.state.terminated for each in pod.status.container_statuses), None)
        ending = {"exitCode": ended.exit_code, "reason": ended.reason} if ended else {}
        restarts = sum(each.restart_count for each in pod.status.container_statuses)
        self._print(
            "pod",
            pod=pod.metadata.name,
            phase=pod.status.phase,
            state=state,
            address=pod.status.pod_ip,
            restarts=restarts,
            **ending,
        )

    def on_pod_gone(self, name: str) -> None:
        """Tell that a pod is no more."""
        assert self._view is not None
        self._view.on_pod_gone(name)
        self._print("pod", pod=name, state="Gone")

    def on_event(self, event: Event) -> None:
        """Tell an event."""
        self._print("event", level=str(event.type), reason=event.reason, message=event.message)

    def on_log(self, lines: LogLines) -> None:
        """Tell a pod's lines, where they are asked for."""
        assert self._view is not None
        self._view.on_log(lines)
        if not chosen_pods(self._view.job.name, self._logs, (lines.pod,)):
            return
        for line in lines.text.decode(errors="replace").split("\n")[:-1]:
            self._print("log", pod=lines.pod, container=lines.container, line=line)

    def tick(self) -> None:
        """Tell how far the pods are, now and then."""
        if time.monotonic() >= self._next_progress:
            self._next_progress = time.monotonic() + PROGRESS_SECONDS
            self._print_progress()

    def _print_progress(self) -> None:
        assert self._view is not None
        for row in self._view.rows():
            pod, current = pod_name(self._view.job.name, row.replica), row.progress
            if current is not None and current != self._progress_said.get(pod):
                self._progress_said[pod] = current
                eta = row.tracker.eta_seconds(time.monotonic())
                fields = {**msgspec.to_builtins(current), "etaSeconds": None if eta is None else round(eta)}
                self._print("progress", pod=pod, fraction=current.fraction, **fields)

    def on_interrupt(self, times: int) -> None:
        """Tell that the run is to end."""
        self._print("interrupted", times=times)

    def on_detach(self) -> None:
        """Tell that this is not the end."""
        self._print("detached")

    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        """Tell the result."""
        assert self._view is not None
        assert self._shown is not None
        self._print_progress()
        job = self._view.job
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
            seconds=round(self._view.seconds, 3),
            directory=str(self._shown.directory.path),
        )

    def _print(self, kind: str, **fields: object) -> None:
        if self._only not in ("", kind):
            return
        line = {"type": kind, "time": datetime.now(UTC), **fields}
        self._stream.write(msgspec.json.encode(line) + b"\n")
        self._stream.flush()
