"""The current state of a run, collected from status changes, logs and progress reports."""

from __future__ import annotations

import time

import msgspec

from paddlejob.api.pod import Pod, kubectl_status
from paddlejob.api.v1 import PaddleJob, Phase, Role
from paddlejob.core.pod_set import Replica, replica_of
from paddlejob.local.runner import Ending
from paddlejob.local.store import logs, outcome
from paddlejob.local.store.logs import LogLines
from paddlejob.local.store.run_directory import RunDirectory, RunRecord
from paddlejob.training.log_lines import Progress, Tracker, visible
from paddlejob.training.steps import declared_total

TAIL_BYTES = 4096
"""Bytes at the end of each piece of a log that are searched for progress."""
REPORT_SECONDS = 1.0
"""Interval for reading progress reports."""


class PodRow(msgspec.Struct):
    """The state of one pod."""

    replica: Replica
    training: str
    """Name of the training container."""
    uid: str = ""
    state: str = ""
    ended: bool = False
    restarts: int = 0
    """Container restarts."""
    log: Tracker = msgspec.field(default_factory=Tracker)
    """Progress found in its log."""
    reports: Tracker = msgspec.field(default_factory=Tracker)
    """Progress reported by the recorder inside it."""
    last_line: str = ""
    """Its last output line, empty if that was progress."""
    last_output: float = 0.0
    """Time of its last output, on the monotonic clock."""

    @property
    def tracker(self) -> Tracker:
        """The source of its progress: the log if it shows any, because reports have no epoch count."""
        return self.log if self.log.progress else self.reports

    @property
    def progress(self) -> Progress | None:
        return self.tracker.progress


class RunView:
    """The job and its pods, as shown to the user."""

    def __init__(self, run: RunDirectory, record: RunRecord) -> None:
        self.run = run
        self.job = record.job
        self.python = record.python
        self._began = time.time()
        self._rows: dict[str, PodRow] = {}
        self._reports_read = -REPORT_SECONDS

    def rows(self) -> list[PodRow]:
        """Return the pods ordered by role (servers, workers, heter) and rank."""
        self._read_reports()
        roles = list(Role)
        shown = (row for row in self._rows.values() if not self._is_scaled_away(row))
        return sorted(shown, key=lambda row: (roles.index(row.replica.role), row.replica.index))

    def _read_reports(self) -> None:
        now = time.monotonic()
        if now < self._reports_read + REPORT_SECONDS:
            return
        self._reports_read = now
        for pod, row in self._rows.items():
            if reported := outcome.reported_progress(self.run.progress(pod)):
                row.reports.add(reported, now)

    def _is_scaled_away(self, row: PodRow) -> bool:
        return row.state == "Stopped" and row.replica.index >= self.job.spec.replicas(row.replica.role)

    @property
    def seconds(self) -> float:
        """Duration of the run so far."""
        created = self.job.metadata.creation_timestamp
        return time.time() - (created.timestamp() if created else self._began)

    def phase(self, ending: Ending | None = None) -> str:
        """Return the job's phase, or Interrupted or Stopped if the run ended that way."""
        if ending in (Ending.INTERRUPTED, Ending.STOPPED):
            return str(ending)
        return str(self.job.status.phase) or "Pending"

    @property
    def message(self) -> str:
        """The job's status message, or a hint if it is suspended or stopping."""
        if self.job.status.phase is Phase.SUSPENDED:
            return f"resume it with `paddlejob resume {self.run.name}`"
        if self.job.status.phase is Phase.TERMINATING:
            return "stopping, waiting for pods to save their work"
        return self.job.status.message

    def on_job(self, job: PaddleJob) -> None:
        """Update the job."""
        self.job = job

    def on_pod(self, pod: Pod) -> str:
        """Update a pod and return its state, empty if nothing visible changed."""
        replica = replica_of(self.job.name, pod)
        if replica is None:
            return ""
        row = self._rows.setdefault(pod.metadata.name, PodRow(replica, training_container(pod)))
        row.log.total = declared_total(self.job)
        before = row.state, row.restarts
        restarts = sum(each.restart_count for each in pod.status.container_statuses)
        if (row.uid, row.restarts) != (pod.metadata.uid, restarts):
            row.uid, row.restarts = pod.metadata.uid, restarts
            row.log.restart()
        if not (row.ended and pod.metadata.deletion_timestamp):
            # Keep the state in which a pod ended by itself when it is cleaned up later.
            is_leaving = pod.metadata.deletion_timestamp is not None
            row.state = kubectl_status(pod)
            row.ended = not is_leaving and pod.status.phase in ("Failed", "Succeeded")
        return row.state if (row.state, row.restarts) != before else ""

    def on_pod_gone(self, name: str) -> str:
        """Mark a pod as stopped and return that state, empty if it had ended before."""
        row = self._rows.get(name)
        if row is None or row.ended:
            return ""
        row.state = "Stopped"
        return row.state

    def restarts(self, row: PodRow) -> int:
        """Return the restarts of a pod's program, including restarts of the whole job."""
        return row.restarts + self.job.status.restarts

    def label(self, lines: LogLines) -> str:
        """Return the label of a log line, see `log_label`."""
        row = self._rows.get(lines.pod)
        is_training = row is None or row.training == lines.container
        return logs.log_label(self.job.name, lines, is_training=is_training)

    def on_log(self, lines: LogLines) -> None:
        """Update a pod from the output of its training container."""
        row = self._rows.get(lines.pod)
        if row is None or lines.container != row.training:
            return
        row.last_output = time.monotonic()
        tail = (lines.text + lines.unfinished)[-TAIL_BYTES:]
        for line in filter(None, map(visible, tail.decode(errors="replace").split("\n"))):
            row.last_line = "" if row.log.feed(line, row.last_output) else line


def training_container(pod: Pod) -> str:
    """Return the name of the training container, which is the first."""
    return next((each.name for each in pod.status.container_statuses), "")
