"""The input of a decision: a job and its cluster at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.pod import ConfigMap, Pod, Service
from paddlejob.api.pod_group import PodGroup, Queue, ResourceFlavor
from paddlejob.api.v1 import MAX_REPLICAS, PaddleJob
from paddlejob.api.validation.errors import FieldError
from paddlejob.core.actions import Kind
from paddlejob.core.attempts.known_errors import has_lost_peer
from paddlejob.core.attempts.processes import (
    Process,
    Processes,
    is_lost,
    is_outdated,
    may_run_outdated,
    published_attempt,
)
from paddlejob.core.attempts.spares import waits_for_rank
from paddlejob.core.gang.model import GangApis, Scheduling
from paddlejob.core.pod_set import FINAL_PHASES, has_ended
from paddlejob.core.recorder import Recorder, recorder_of
from paddlejob.training.findings import F, Finding, find

MAX_CAUSE_DELAY_SECONDS = 3.0
"""How long the end of a lost peer may stay unknown; Paddle's launcher looks once a second."""
MAX_PHASE_DELAY_SECONDS = 5.0
"""How long to wait for the phase of a pod after its last container has ended."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of the operator that apply to all jobs."""

    base_port: int = names.BASE_PORT
    """First port of a pod that has its own address. Jobs on one machine need different ports."""

    host_port_range: tuple[int, int] = names.HOST_PORT_RANGE
    """First and last port that jobs with `intranet: Host` may use."""

    pods_have_ipv6: bool = False
    """Whether `status.podIP` is an IPv6 address in this cluster. If so, pods reach each other by name."""

    server_exit_grace_seconds: float = 30.0
    """How long a parameter server may have exited with code 0 before the workers end.

    Programs stop their servers shortly before the workers exit.
    """

    etcd_server: str = ""
    """An etcd for elastic collective jobs. Without one, the operator restarts the job to resize it."""

    elastic_wait_seconds: float = 60.0
    """How long an elastic job waits for all of its workers before it starts with fewer."""

    force_delete_seconds: float = 60.0
    """Seconds past its grace period after which a stuck pod is force-deleted (its node is presumed dead)."""

    scheduling: Scheduling = Scheduling.AS_WRITTEN
    """The gang scheduler of jobs that do not choose one."""


class WriteFailure(msgspec.Struct, frozen=True):
    """A write of the last reconcile that the API server rejected."""

    verb: str
    kind: str
    name: str
    message: str
    rejected: bool = False
    """Whether the object itself is invalid, so that a retry fails too."""

    def __str__(self) -> str:
        return f"cannot {self.verb} {self.kind} {self.name}: {self.message}"


class StateTimer:
    """Measures how long pods have been in their current state, by the operator's own monotonic clock.

    Kubelets and the node controller write times of their own clocks into a pod's status. With a wrong clock,
    the operator would give up on a pod too early or never. After a restart, the operator measures from 0.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, float]] = {}
        """State and the time when it was first seen, by pod UID."""

    def measure(self, pods: Iterable[Pod], seconds: float) -> dict[str, float]:
        """Return the seconds in the current state by pod UID; `seconds` is the monotonic time."""
        seen = {}
        for pod in pods:
            if (state := _timed_state(pod)) is not None:
                before, since = self._seen.get(pod.metadata.uid, (None, seconds))
                seen[pod.metadata.uid] = (state, since if before == state else seconds)
        self._seen = seen
        return {uid: seconds - since for uid, (_, since) in seen.items()}


def _timed_state(pod: Pod) -> object:
    """Return the terminated containers, or the condition of an unready pod; None for a healthy pod.

    The phase and conditions that follow the end of the last container must not restart the timer.
    """
    status = pod.status
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    is_ready = ready is None or ready.status == "True"
    ends = tuple(each.state.terminated for each in status.container_statuses if each.state.terminated)
    if has_ended(pod):
        return ends
    return None if is_ready and not ends else (status.phase, ends, None if is_ready else ready)


class Snapshot(msgspec.Struct, frozen=True):
    """A job and its cluster at one moment. Decisions depend on nothing else."""

    job: PaddleJob
    now: datetime
    """Current time on the API server's clock, which also sets creationTimestamp and deletionTimestamp."""
    pods: tuple[Pod, ...] = ()
    """Pods controlled by this job, by UID."""
    predecessors: tuple[Pod, ...] = ()
    """Leftover pods of a deleted job with the same name; ours cannot be created until they are gone."""
    services: tuple[Service, ...] = ()
    config_map: ConfigMap | None = None
    pod_groups: dict[Kind, PodGroup] = {}
    """The group with the job's name for each kind that the cluster serves, whoever created it."""
    flavors: dict[str, ResourceFlavor] = {}
    """Kueue's ResourceFlavors by name."""
    queues: dict[str, Queue] | None = None
    """Volcano's queues by name, None if unknown."""
    gang_apis: GangApis | None = None
    """None in a local run, which has no scheduler and no gangs."""
    settings: Settings = Settings()
    spec_errors: tuple[FieldError, ...] | None = None
    """Errors in the spec, None if it has not been validated yet."""
    taken_host_ports: frozenset[int] = frozenset()
    """Base ports of the other live jobs with `intranet: Host`."""
    namespace_host_ports: int = 0
    """How many of these jobs are in the job's namespace; 0 if the operator serves one namespace."""
    failures: tuple[WriteFailure, ...] = ()
    """Failed writes of the last reconcile."""
    state_seconds: dict[str, float] = {}
    """How long pods have been in their current state, by UID; see `StateTimer`."""

    processes: Processes = {}
    """Programs whose supervisors report, by the UID of their pod."""
    attempt_seconds: float = 0.0
    """How long this operator has known the current attempt."""

    recorder: Recorder | None = None
    """The recorder of this operator, None if the operator accepts no reports."""
    has_recorder: bool = False
    """Whether the recorder's ConfigMap is in the job's namespace, with the content of this operator."""
    recorder_obstacle: str = ""
    """Why new pods must not mount it: another ConfigMap has its name, or it cannot be created."""
    findings: tuple[Finding, ...] = ()
    """Findings about the current attempt, from reports and logs."""

    @property
    def has_scheduler(self) -> bool:
        """Whether a scheduler places pods on nodes, unlike in a local run."""
        return self.gang_apis is not None

    @property
    def recorder_note(self) -> str:
        """Why new pods of the job get no recorder; empty if they do or the job wants none."""
        if not self.recorder_obstacle or recorder_of(self.job, self.recorder) is None:
            return ""
        return f"new pods get no recorder: {self.recorder_obstacle}"

    def process(self, pod: Pod) -> Process | None:
        """Return the program in a pod, None if its supervisor has not reported."""
        return self.processes.get(pod.metadata.uid)

    @property
    def published_attempt(self) -> int:
        """The attempt of the last restart in place whose addresses the ConfigMap has, 0 if there is none."""
        return published_attempt(self.config_map.data) if self.config_map else 0

    @property
    def spares(self) -> int:
        """The wanted number of spare workers; local runs and clusters with IPv6 have none."""
        has_spares = self.has_scheduler and not self.settings.pods_have_ipv6
        return min(self.job.spec.spares, MAX_REPLICAS) if has_spares else 0

    def waits_for_rank(self, pod: Pod) -> bool:
        """Return whether a pod is a spare that cannot have started: the ConfigMap lacks its keys."""
        return waits_for_rank(self.job, pod, self.config_map.data if self.config_map else {})

    def is_outdated(self, pod: Pod) -> bool:
        """Return whether the pod's program belongs to an attempt before the required one."""
        if self.waits_for_rank(pod):
            return False
        return is_outdated(pod, self.process(pod), self.job.status, self.published_attempt)

    def may_run_outdated(self, pod: Pod) -> bool:
        """Return whether a program of an earlier attempt may still run in a pod of the job."""
        if self.waits_for_rank(pod):
            return False
        return may_run_outdated(pod, self.process(pod), self.job.status, self.published_attempt)

    def is_lost(self, pod: Pod) -> bool:
        """Return whether a pod did not take part in a restart in place and has to be replaced."""
        if self.waits_for_rank(pod):
            return False
        process, status = self.process(pod), self.job.status
        return is_lost(pod, process, status, self.attempt_seconds, self.published_attempt)

    def finding(self, kind: type[F]) -> F | None:
        """Return the finding of a kind, None if there is none."""
        return find(self.findings, kind)

    def seconds_in_state(self, pod: Pod) -> float:
        """Return how long a pod has been ended or unready."""
        return self.state_seconds.get(pod.metadata.uid, 0.0)

    def seconds_to_cause(self) -> dict[str, float]:
        """Return how long to wait for the cause of failures, by UID, if all failed pods have lost a peer."""
        failed = [pod for pod in self.pods if pod.status.phase == "Failed"]
        if not failed or len(failed) == len(self.pods) or not all(map(has_lost_peer, failed)):
            return {}
        left = MAX_CAUSE_DELAY_SECONDS - max(map(self._seconds_since_end, failed))
        return {pod.metadata.uid: left for pod in failed} if left > 0 else {}

    def _seconds_since_end(self, pod: Pod) -> float:
        process = self.process(pod)
        if process is not None and process.ended is not None:
            return (self.now - process.ended).total_seconds()
        return self.seconds_in_state(pod)

    def seconds_to_settle(self, pod: Pod) -> float:
        """Return how long to wait for the phase of an ended pod before judging its containers.

        A program may exit with any code when the kubelet evicts its pod. Only the phase shows the eviction.
        """
        if pod.status.phase in FINAL_PHASES or not has_ended(pod):
            return 0.0
        return max(0.0, MAX_PHASE_DELAY_SECONDS - self.seconds_in_state(pod))
