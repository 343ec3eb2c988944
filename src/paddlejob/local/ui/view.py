"""What there is to see of a run at one moment, gathered from what happens and from what the pods say."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from paddlejob.api.pod import ContainerStatus, Pod
from paddlejob.api.v1 import PaddleJob, Phase, Role
from paddlejob.core.pod_set import Replica, replica_of
from paddlejob.local.runner import Ending
from paddlejob.local.store import logs, reports
from paddlejob.local.store.logs import LogLines
from paddlejob.local.ui.output import Shown
from paddlejob.progress import Progress, Tracker, visible

TAIL_BYTES = 4096
"""How much of what a program says at a time is looked at for its progress."""
REPORT_SECONDS = 1.0
"""How often the recorders' reports are read."""


class PodRow(msgspec.Struct):
    """A pod."""

    replica: Replica
    training: str
    """The container that trains."""
    state: str = ""
    ended: bool = False
    restarts: int = 0
    """How often its containers were started again."""
    log: Tracker = msgspec.field(default_factory=Tracker)
    """What its log tells."""
    reports: Tracker = msgspec.field(default_factory=Tracker)
    """What the recorder in it reports."""
    last_line: str = ""
    """What the pod said last, if that was not its progress."""
    last_output: float = 0.0
    """When the pod last said something, on the monotonic clock."""

    @property
    def tracker(self) -> Tracker:
        """Whatever tells how far its program is: the log if it does, because it knows of epochs."""
        return self.log if self.log.progress else self.reports

    @property
    def progress(self) -> Progress | None:
        """How far its program is."""
        return self.tracker.progress


class RunView:
    """The run as a person wants to see it."""

    def __init__(self, shown: Shown) -> None:
        self.job = shown.job
        self._run = shown.directory
        self._began = time.time()
        self._rows: dict[str, PodRow] = {}
        self._reports_read = -REPORT_SECONDS

    def rows(self) -> list[PodRow]:
        """Return the pods: servers, workers, heter pods, each in order of rank."""
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
            if reported := reports.newest(self._run.progress(pod)):
                row.reports.add(reported, now)

    def _is_scaled_away(self, row: PodRow) -> bool:
        return row.state == "Stopped" and row.replica.index >= self.job.spec.replicas(row.replica.role)

    @property
    def seconds(self) -> float:
        """How long the run has lasted."""
        created = self.job.metadata.creation_timestamp
        return time.time() - (created.timestamp() if created else self._began)

    def phase(self, ending: Ending | None = None) -> str:
        """Return how the run stands in a word; of one that was stopped, its end instead of its last phase."""
        if ending in (Ending.INTERRUPTED, Ending.STOPPED):
            return str(ending)
        return str(self.job.status.phase) or "Pending"

    @property
    def message(self) -> str:
        """How the run stands in a sentence."""
        if self.job.status.phase is Phase.SUSPENDED:
            return f"resume it with `paddlejob resume {self._run.name}`"
        if self.job.status.phase is Phase.TERMINATING:
            return "stopping, waiting for pods to save their work"
        return self.job.status.message

    def on_job(self, job: PaddleJob) -> None:
        """Take note of the job."""
        self.job = job

    def on_pod(self, pod: Pod) -> str:
        """Take note of a pod; return its new state, empty where a person would see no change."""
        replica = replica_of(self.job.name, pod)
        if replica is None:
            return ""
        row = self._rows.setdefault(pod.metadata.name, PodRow(replica, training_container(pod)))
        before = row.state, row.restarts
        if not (row.ended and pod.metadata.deletion_timestamp):
            # How a pod ended by itself says more than that it was then cleaned up.
            is_leaving = pod.metadata.deletion_timestamp is not None
            row.state = describe(pod)
            row.ended = not is_leaving and pod.status.phase in ("Failed", "Succeeded")
        row.restarts = sum(each.restart_count for each in pod.status.container_statuses)
        return row.state if (row.state, row.restarts) != before else ""

    def on_pod_gone(self, name: str) -> str:
        """Take note that a pod is no more; return its last state, empty where it had ended before."""
        row = self._rows.get(name)
        if row is None or row.ended:
            return ""
        row.state = "Stopped"
        return row.state

    def restarts(self, row: PodRow) -> int:
        """Return how often the program of a pod was started again, by its pod or with the whole job."""
        return row.restarts + self.job.status.restarts

    def speaker(self, lines: LogLines) -> str:
        """Return who says something: the rank, and the container where it is not the one that trains."""
        row = self._rows.get(lines.pod)
        is_training = row is None or row.training == lines.container
        return logs.speaker(self.job.name, lines, is_training=is_training)

    def on_log(self, lines: LogLines) -> None:
        """Take note of what a pod's training container said."""
        row = self._rows.get(lines.pod)
        if row is None or lines.container != row.training:
            return
        row.last_output = time.monotonic()
        tail = (lines.text + lines.unfinished)[-TAIL_BYTES:]
        for line in filter(None, map(visible, tail.decode(errors="replace").split("\n"))):
            row.last_line = "" if row.log.feed(line, row.last_output) else line


def training_container(pod: Pod) -> str:
    """Return the name of the container that trains: the first."""
    return next((each.name for each in pod.status.container_statuses), "")


def describe(pod: Pod) -> str:
    """Return a pod's state in a word or two, as `kubectl get pods` does."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if pod.status.reason:
        return pod.status.reason
    if pod.status.phase in ("Failed", "Succeeded"):
        return "Completed" if pod.status.phase == "Succeeded" else _failure(statuses)
    return next(filter(None, map(_trouble, statuses)), pod.status.phase)


def _trouble(status: ContainerStatus) -> str:
    waiting = status.state.waiting
    return waiting.reason if waiting is not None else ""


def _failure(statuses: Iterable[ContainerStatus]) -> str:
    for status in statuses:
        ended = status.state.terminated
        if ended is not None and ended.exit_code:
            return f"{ended.reason} {ended.exit_code}"
    return "Failed"
