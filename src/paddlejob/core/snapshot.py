"""Everything that one reconcile may look at. What is not in here does not exist for a decision."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.pod import ConfigMap, Pod, Service
from paddlejob.api.pod_group import PodGroup, Queue, ResourceFlavor
from paddlejob.api.v1 import PaddleJob
from paddlejob.api.validation.errors import FieldError
from paddlejob.core.actions import Kind
from paddlejob.core.gang.model import GangApis, Scheduling
from paddlejob.core.pod_set import FINAL_PHASES, has_ended
from paddlejob.core.recording.hangs import Hang
from paddlejob.core.recording.recorder import Recorder
from paddlejob.core.recording.stragglers import Slowdown

MAX_PHASE_DELAY_SECONDS = 5.0
"""How long the phase of a pod is awaited after the end of its last container."""


class Settings(msgspec.Struct, frozen=True):
    """What the platform team chose for all jobs."""

    base_port: int = names.BASE_PORT
    """First of a pod's ports where pods have their own addresses; jobs on one machine need different ones."""

    host_port_range: tuple[int, int] = names.HOST_PORT_RANGE
    """First and last port that jobs with `intranet: Host` may use."""

    pods_have_ipv6: bool = False
    """Whether `status.podIP` is an IPv6 address on this cluster: then every job calls its pods by name."""

    server_exit_grace_seconds: float = 30.0
    """How long a parameter server may be gone with exit code 0 before the workers have ended too.

    Programs that tell their servers to stop do so a moment before the workers themselves exit.
    """

    etcd_server: str = ""
    """An etcd for elastic collective jobs; without it the operator re-forms them itself."""

    elastic_wait_seconds: float = 60.0
    """How long an elastic job waits for all of its workers before it goes on with those it has."""

    force_delete_seconds: float = 60.0
    """How long after its grace period a pod that does not go is removed by force: its node is gone."""

    scheduling: Scheduling = Scheduling.AS_WRITTEN
    """Who schedules the pods of a job together when the job itself does not say."""


class WriteFailure(msgspec.Struct, frozen=True):
    """A write of the last reconcile that the API server rejected."""

    verb: str
    kind: str
    name: str
    message: str
    rejected: bool = False
    """Whether the object itself is at fault, so that the same one will be refused again."""

    def __str__(self) -> str:
        return f"cannot {self.verb} {self.kind} {self.name}: {self.message}"


class StateTimer:
    """Measures for how long pods have been in the state that they are in, by the observer's own clock.

    Kubelets and the node controller write times of their own clocks into a pod's status. Compared with ours,
    a node whose clock is wrong would have its pods given up too soon, or never. A process that has just
    started has seen nothing yet: it waits once more for as long as the state has to last.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, float]] = {}
        """State and first sight by pod UID; pods that are gone are forgotten."""

    def measure(self, pods: Iterable[Pod], seconds: float) -> dict[str, float]:
        """Return for how long, by UID; `seconds` is the time of a monotonic clock."""
        seen = {}
        for pod in pods:
            if (state := _timed_state(pod)) is not None:
                before, since = self._seen.get(pod.metadata.uid, (None, seconds))
                seen[pod.metadata.uid] = (state, since if before == state else seconds)
        self._seen = seen
        return {uid: seconds - since for uid, (_, since) in seen.items()}


def _timed_state(pod: Pod) -> object:
    """Return the ends of containers, or the condition of a pod that is not ready; None for a healthy pod.

    The phase and the conditions that follow the end of the last container do not make it a later end.
    """
    status = pod.status
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    is_ready = ready is None or ready.status == "True"
    ends = tuple(each.state.terminated for each in status.container_statuses if each.state.terminated)
    if has_ended(pod):
        return ends
    return None if is_ready and not ends else (status.phase, ends, None if is_ready else ready)


class Snapshot(msgspec.Struct, frozen=True):
    """A job and its cluster at one moment."""

    job: PaddleJob
    now: datetime
    """The time by the clock that `creationTimestamp` and `deletionTimestamp` are of: the API server's."""
    pods: tuple[Pod, ...] = ()
    """Only pods whose controller is this very job, by UID."""
    predecessors: tuple[Pod, ...] = ()
    """Pods of earlier jobs of the same name: not ours, but in the way of ours until they are gone."""
    services: tuple[Service, ...] = ()
    config_map: ConfigMap | None = None
    pod_groups: dict[Kind, PodGroup] = {}
    """For each kind that the cluster serves, the one with the job's name, whoever created it."""
    flavors: dict[str, ResourceFlavor] = {}
    """Kueue's kinds of nodes, by name."""
    queues: dict[str, Queue] | None = None
    """Volcano's queues by name, None where they are not known."""
    gang_apis: GangApis | None = None
    """None where nothing is scheduled, as on a laptop: there no job is a gang."""
    settings: Settings = Settings()
    spec_errors: tuple[FieldError, ...] | None = None
    """What is wrong with the spec, None where nobody has validated it yet."""
    taken_host_ports: frozenset[int] = frozenset()
    """Base ports of the other live jobs with `intranet: Host`."""
    namespace_host_ports: int = 0
    """How many of these jobs are in the namespace of the job; 0 if the operator serves one namespace."""
    failures: tuple[WriteFailure, ...] = ()
    """What the last reconcile could not write; empty on the first try."""
    state_seconds: dict[str, float] = {}
    """For how long pods have been seen in their present state, by UID; see `StateTimer`."""

    recorder: Recorder | None = None
    """What pods may be given to report with, None where nobody takes reports."""
    has_recorder: bool = False
    """Whether its ConfigMap is in the job's namespace, with the content of this operator."""
    recorder_obstacle: str = ""
    """Why new pods must not mount it: another ConfigMap has its name, or it cannot be created."""
    hang: Hang | None = None
    """Set while the pods of this attempt report that they make no progress."""
    awaited: str = ""
    """Which rank of this attempt all others wait for, and how that is known; empty: none, or unknown."""
    slowdown: Slowdown | None = None
    """Set while a rank of this attempt slows the others down."""
    warning: str = ""
    """What the log of a running worker says that people should know; it decides nothing."""

    @property
    def has_scheduler(self) -> bool:
        """Whether pods are placed on nodes, rather than all on this machine."""
        return self.gang_apis is not None

    def seconds_in_state(self, pod: Pod) -> float:
        """Return for how long a pod has been seen ended, or not ready."""
        return self.state_seconds.get(pod.metadata.uid, 0.0)

    def seconds_to_settle(self, pod: Pod) -> float:
        """Return how long to wait for the phase of an ended pod before its containers are judged alone.

        A program may exit with any code when its kubelet evicts the pod. Only with the phase does the kubelet
        report that it was an eviction.
        """
        if pod.status.phase in FINAL_PHASES or not has_ended(pod):
            return 0.0
        return max(0.0, MAX_PHASE_DELAY_SECONDS - self.seconds_in_state(pod))
