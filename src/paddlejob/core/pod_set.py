"""Sorts the pods of a job by replica and state."""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Self

import msgspec

from paddlejob.api import defaulting, index_set, names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import ContainerStatus, ContainerTerminated, Pod
from paddlejob.api.v1 import MAX_REPLICAS, PaddleJobStatus, Role, RoleSpec

_ROLES = {str(role): role for role in Role}

FINAL_PHASES = ("Succeeded", "Failed")
"""The last phases that a kubelet reports. Containers may have ended before; see `has_ended`."""


class PodState(enum.StrEnum):
    """How a pod counts in the job's status."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


_STATE_OF_PHASE = {
    "Succeeded": PodState.SUCCEEDED,
    "Failed": PodState.FAILED,
    "Unknown": PodState.UNKNOWN,
}


class Replica(msgspec.Struct, frozen=True):
    """A role and an index, held by one pod at a time."""

    role: Role
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


def attempt_of(pod: Pod) -> int:
    """Return the attempt that a pod was created for, 0 if its label is missing or invalid."""
    label = pod.metadata.labels.get(names.LABEL_ATTEMPT, "")
    return int(label) if label.isascii() and label.isdecimal() else 0


class ObservedPod(msgspec.Struct, frozen=True):
    """A pod with its replica and state."""

    replica: Replica
    pod: Pod
    state: PodState
    training: ContainerStatus | None
    """Status of the container that trains: the template's first, even if sidecars were injected."""

    @property
    def is_leaving(self) -> bool:
        """Whether the pod is being deleted: it holds its name but no longer counts."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def attempt(self) -> int:
        """The attempt that the pod was created for."""
        return attempt_of(self.pod)

    @property
    def has_started(self) -> bool:
        """Whether the training container has run, and so has read its environment."""
        if self.training is None:
            return self.state in (PodState.SUCCEEDED, PodState.FAILED)
        return has_run(self.training)


def has_run(container: ContainerStatus) -> bool:
    """Return whether a container has started, now or earlier."""
    state = container.state
    return state.running is not None or state.terminated is not None or container.restart_count > 0


class PodSet(msgspec.Struct, frozen=True):
    """The pods of a job, sorted by replica, attempt and state."""

    members: dict[Replica, ObservedPod]
    """Pods of wanted replicas, including those being deleted."""
    excess: tuple[ObservedPod, ...]
    """Pods without a wanted replica after scaling down."""
    outdated: tuple[ObservedPod, ...]
    """Pods of earlier attempts, and workers that are being replaced; they still hold their names."""
    standby: tuple[ObservedPod, ...]
    """Pods of the next attempt that wait for a node."""
    wanted: tuple[Replica, ...]
    """All wanted replicas in order of creation."""
    finished: frozenset[Replica]
    """Wanted workers that have succeeded, even if their pods are gone."""
    active: tuple[ObservedPod, ...]
    """The members that are not being deleted, in replica order."""
    replicas: dict[Role, int]
    """Number of replicas by role; roles without replicas are left out."""
    spares: tuple[ObservedPod, ...] = ()
    """Pods without a rank, including those being deleted."""
    idle: tuple[Replica, ...] = ()
    """The wanted replicas without a rank."""
    moves: dict[int, int] = {}
    """Indexes of the workers that hold moved ranks, by rank."""
    given_up: frozenset[Replica] = frozenset()
    """Workers of an elastic job that found no node in time; the others train without them."""
    omitted: frozenset[Replica] = frozenset()
    """Given-up workers that the job may complete without, because they lacked a node for long."""

    @property
    def to_create(self) -> tuple[Replica, ...]:
        """Replicas without a pod object of their name."""
        missing = [replica for replica in self.wanted if replica not in self.members]
        if not missing:
            return ()
        held = {member.replica for member in self.outdated} | self.finished
        return tuple(replica for replica in missing if replica not in held)

    @property
    def spares_to_create(self) -> tuple[Replica, ...]:
        """Replicas without a rank and without a pod object of their name."""
        held = {member.replica for member in (*self.outdated, *self.spares)}
        return tuple(replica for replica in self.idle if replica not in held)

    @property
    def missing(self) -> tuple[Replica, ...]:
        """Replicas that need a pod but have no active one."""
        held = {member.replica for member in self.active} | self.finished
        return tuple(replica for replica in self.wanted if replica not in held)

    @property
    def has_trained_workers(self) -> bool:
        """Whether a worker has started, or has succeeded."""
        return bool(self.finished) or any(worker.has_started for worker in self.active_in(Role.WORKER))

    def active_in(self, role: Role) -> tuple[ObservedPod, ...]:
        """Return the active members of a role in replica order."""
        return tuple([member for member in self.active if member.replica.role is role])

    def worker(self, rank: int) -> Replica:
        """Return the worker that holds a rank."""
        return Replica(Role.WORKER, self.moves.get(rank, rank))

    def rank(self, replica: Replica) -> int:
        """Return the rank of a replica among those of its role."""
        if not self.moves or replica.role is not Role.WORKER:
            return replica.index
        return next((rank for rank, index in self.moves.items() if index == replica.index), replica.index)

    def desired(self, role: Role) -> int:
        return self.replicas.get(role, 0)

    def count(self, role: Role, state: PodState) -> int:
        return sum(member.state is state for member in self.active_in(role))


def pod_name(job_name: str, replica: Replica) -> str:
    """Return the name of the pod of a replica."""
    return f"{job_name}-{replica}"


class Attempts(msgspec.Struct, frozen=True):
    """The attempts that the current pods of a job belong to."""

    base: int = 0
    current: int = 0
    succeeded_workers: str = ""
    """Indexes of workers that have succeeded in these attempts."""
    replaced_workers: str = ""
    """Indexes of workers that the current attempt replaces."""
    moved_ranks: str = ""
    """Ranks that former spares hold."""

    @classmethod
    def of(cls, status: PaddleJobStatus) -> Self:
        return cls(
            status.base_attempt,
            status.attempt,
            status.succeeded_workers,
            status.replaced_workers,
            status.moved_ranks,
        )


FIRST_ATTEMPT = Attempts()


def pod_set_of(
    job_name: str,
    roles: tuple[tuple[Role, RoleSpec], ...],
    pods: tuple[Pod, ...],
    attempts: Attempts = FIRST_ATTEMPT,
    unsettled: AbstractSet[str] = frozenset(),
    *,
    lost: AbstractSet[str] = frozenset(),
    spares: int = 0,
) -> PodSet:
    """Sort pods into replicas.

    `unsettled` are the UIDs of ended pods that cannot be judged yet. `lost` are those of pods that did not
    take part in a restart in place and have to be replaced. `spares` is the wanted number of spare workers.
    """
    # The spec of a finished job is not validated: its number of replicas can be anything.
    sizes = {role: min(spec.replicas, MAX_REPLICAS) for role, spec in roles}
    moves = _moves(attempts.moved_ranks, sizes.get(Role.WORKER, 0))
    wanted = tuple(
        Replica(role, moves.get(rank, rank) if role is Role.WORKER else rank)
        for role, size in sizes.items()
        for rank in range(size)
    )
    idle = _idle(sizes.get(Role.WORKER, 0), spares, moves)
    training_names = {role: training_container_name(spec) for role, spec in roles}
    members: dict[Replica, ObservedPod] = {}
    excess: list[ObservedPod] = []
    outdated: list[ObservedPod] = []
    standby: list[ObservedPod] = []
    waiting: list[ObservedPod] = []
    replicas = frozenset(wanted)
    replaced = _workers(attempts.replaced_workers, replicas | set(idle))
    for pod in pods:
        replica = replica_of(job_name, pod)
        if replica is None:
            continue
        is_settled = pod.metadata.uid not in unsettled
        member = observe_pod(replica, pod, training_names.get(replica.role, ""), is_settled=is_settled)
        if member.attempt < attempts.base:
            outdated.append(member)
        elif member.attempt > attempts.current:
            standby.append(member)
        elif replica not in replicas and replica not in idle:
            excess.append(member)
        elif pod.metadata.uid in lost or (replica in replaced and member.attempt < attempts.current):
            outdated.append(member)
        elif replica in idle:
            (waiting if is_spare(pod) and not _had_rank(member) else outdated).append(member)
        else:
            members[replica] = member
    held = (members[replica] for replica in wanted if replica in members)
    active = tuple(member for member in held if not member.is_leaving)
    finished = _workers(attempts.succeeded_workers, replicas) | _succeeded(active)
    counts = {role: spec.replicas for role, spec in roles}
    return PodSet(
        members,
        tuple(excess),
        tuple(outdated),
        tuple(standby),
        wanted,
        finished,
        active,
        counts,
        tuple(waiting),
        idle,
        moves,
    )


def rank_of(status: PaddleJobStatus, replica: Replica) -> int:
    """Return the rank of a replica that has one, among those of its role."""
    moves = index_set.parse_moves(status.moved_ranks) if replica.role is Role.WORKER else {}
    return next((rank for rank, index in moves.items() if index == replica.index), replica.index)


def worker_of(status: PaddleJobStatus, rank: int) -> Replica:
    """Return the worker that holds a rank."""
    return Replica(Role.WORKER, index_set.parse_moves(status.moved_ranks).get(rank, rank))


def is_spare(pod: Pod) -> bool:
    """Return whether a pod was created without a rank; it may have got one since."""
    return names.ANNOTATION_SPARE in pod.metadata.annotations


def _had_rank(member: ObservedPod) -> bool:
    """Return whether a former spare has started, so that another pod may hold its rank now."""
    return member.training is not None and member.has_started


def _moves(text: str, workers: int) -> dict[int, int]:
    """Return the moved ranks in a status, none if a worker would hold two."""
    moves = index_set.parse_moves(text) if text else {}
    holders = [moves.get(rank, rank) for rank in range(workers)]
    is_valid = len(set(holders)) == workers and all(rank < workers for rank in moves)
    return moves if is_valid else {}


def _idle(workers: int, spares: int, moves: dict[int, int]) -> tuple[Replica, ...]:
    """Return the workers without a rank, as many as there are spares."""
    if spares <= 0:
        return ()
    holders = {moves.get(rank, rank) for rank in range(workers)}
    idle = [index for index in range(workers + spares) if index not in holders]
    return tuple(Replica(Role.WORKER, index) for index in idle[:spares])


def _workers(indexes: str, replicas: frozenset[Replica]) -> frozenset[Replica]:
    """Return the replicas of the workers in an index set of the status."""
    below = 1 + max((replica.index for replica in replicas), default=0)
    found = index_set.parse(indexes, below) if indexes else ()
    return replicas & {Replica(Role.WORKER, index) for index in found}


def _succeeded(active: tuple[ObservedPod, ...]) -> frozenset[Replica]:
    """Return the active workers that have succeeded.

    Pods being deleted are ignored: many programs exit with code 0 after SIGTERM.
    """
    return frozenset(
        member.replica
        for member in active
        if member.replica.role is Role.WORKER and member.state is PodState.SUCCEEDED
    )


def replica_of(job_name: str, pod: Pod) -> Replica | None:
    """Return the replica by a pod's label and name, None if it is not a name of this job."""
    role = _ROLES.get(pod.metadata.labels.get(names.LABEL_RESOURCE_TYPE, ""))
    if role is None:
        return None
    index = pod.metadata.name.removeprefix(f"{job_name}-{role}-")
    return Replica(role, int(index)) if index.isascii() and index.isdecimal() else None


def training_container_name(spec: RoleSpec) -> str:
    """Return the name of the template's first container, empty if it has none."""
    name = training_container(spec).get("name")
    return name if isinstance(name, str) else ""


def training_container(spec: RoleSpec) -> JsonObject:
    return defaulting.training_container(spec.template)


def observe_pod(replica: Replica, pod: Pod, training_name: str, *, is_settled: bool = True) -> ObservedPod:
    """Find the training container and the state of a pod."""
    statuses = pod.status.container_statuses
    training = next((status for status in statuses if status.name == training_name), None)
    if training is None and len(statuses) == 1:
        training = statuses[0]
    return ObservedPod(replica, pod, _state(pod, training, is_settled=is_settled), training)


def _state(pod: Pod, training: ContainerStatus | None, *, is_settled: bool) -> PodState:
    is_running = pod.status.phase == "Running"
    if not is_settled and pod.status.phase != "Unknown":
        return PodState.RUNNING if is_running or pod.status.phase == "Failed" else PodState.STARTING
    if decided := _STATE_OF_PHASE.get(pod.status.phase):
        return decided
    ended = training.state.terminated if training else None
    if ended is not None and _stays_ended(ended, pod):
        return PodState.FAILED if ended.exit_code else PodState.SUCCEEDED
    if not is_running:
        return PodState.STARTING if pod.status.pod_ip else PodState.PENDING
    statuses = pod.status.container_statuses
    all_up = bool(statuses) and all(status.ready and status.state.running for status in statuses)
    return PodState.RUNNING if all_up else PodState.STARTING


def has_ended(pod: Pod) -> bool:
    """Return whether all containers of a pod have terminated for good.

    A kubelet reports the end of the containers a second or two before the final phase. The reason, message
    and condition of an eviction come with the phase. Init containers are ignored: they end before the others,
    and sidecars among them end with the pod.
    """
    if pod.status.phase in FINAL_PHASES:
        return True
    ends = [each.state.terminated for each in pod.status.container_statuses]
    return bool(ends) and all(end is not None and _stays_ended(end, pod) for end in ends)


def _stays_ended(ended: ContainerTerminated, pod: Pod) -> bool:
    """Return whether the kubelet will not restart a terminated container."""
    policy, is_leaving = pod.spec.restart_policy, pod.metadata.deletion_timestamp is not None
    return is_leaving or policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0)


def ending_of(member: ObservedPod) -> ContainerTerminated | None:
    """Return how the decisive container ended: the first that failed, else the first that ended."""
    status = member.pod.status
    ordered = sorted(status.container_statuses, key=lambda each: each is not member.training)
    endings = [each.state.terminated for each in (*ordered, *status.init_container_statuses)]
    present = [ending for ending in endings if ending is not None]
    return next((ending for ending in present if ending.exit_code != 0), present[0] if present else None)


def ended_at(member: ObservedPod) -> datetime | None:
    """Return when a pod ended, by its kubelet's clock."""
    ending = ending_of(member)
    return ending.finished_at if ending else None
