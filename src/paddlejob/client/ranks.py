"""Ranks: the pods of a job and the processes in them, their order and their short names.

Paddle's launcher may start several processes in a pod, mostly one for each card. Then a number is the rank of
a process. Names such as worker-1 always mean pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from paddlejob.api.pod import ContainerState, Pod, kubectl_status
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.client.errors import ClientError
from paddlejob.core.accelerators import card_count
from paddlejob.core.pod_set import (
    FINAL_PHASES,
    has_run,
    is_spare,
    replica_of,
    training_container_name,
    worker_of,
)
from paddlejob.core.pod_set import rank_of as rank_in_role
from paddlejob.core.pod_set import training_container as container_of
from paddlejob.local.store.logs import chosen_pods, short_name

_ROLES = list(Role)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_LAUNCHER = re.compile(r"paddle\.distributed\.launch|\bfleetrun\b|\b(?:paddleformers-cli|erniekit) train\b")
"""The launcher, and the kits that start it with one process per card."""
_PROCESSES = re.compile(r"--nproc_per_node[= ](\d{1,4})\b")
_DEVICES = re.compile(r"--(?:devices|gpus|xpus|npus)[= ]([\d,]+)")


class Place(NamedTuple):
    """The pods that a rank means."""

    pods: str
    """A pod, a role or `all`."""
    process: int | None = None
    """The local rank if the rank means one of several processes."""


def in_order(job: PaddleJob, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of this job, not of a deleted job of the same name: servers first, by rank."""
    found = [
        (_ROLES.index(replica.role), replica.index, pod)
        for pod in pods
        if pod.metadata.controller_uid in (job.metadata.uid, "") and (replica := replica_of(job.name, pod))
    ]
    return [pod for *_, pod in sorted(found, key=lambda each: each[:2])]


def rank_of(job: str, pod: str) -> str:
    """Return the short name of a pod, such as worker-0."""
    return short_name(job, pod)


def processes_per_pod(job: PaddleJob) -> int:
    """Return the number of processes in each worker pod, as reported or as the spec has it."""
    reported = job.status.progress.processes if job.status.progress else 0
    return reported or _declared_processes(job)


def _declared_processes(job: PaddleJob) -> int:
    """Return the number of processes that the launcher starts according to its command."""
    if job.spec.worker is None or job.spec.ps is not None:
        return 1
    container = container_of(job.spec.worker)
    lists = (container.get(field) for field in ("command", "args"))
    command = " ".join(str(word) for each in lists if isinstance(each, list) for word in each)
    if not _LAUNCHER.search(command):
        return 1
    if found := _PROCESSES.search(command):
        return max(1, int(found[1]))
    if devices := _DEVICES.search(command):
        return len(devices[1].strip(",").split(","))
    return card_count(job.spec.worker)


def place_of(job: PaddleJob, rank: str) -> Place:
    """Return the pods of a rank (0), a pod name (ps-1), a role (ps) or `all`, and the process of a rank."""
    count = processes_per_pod(job)
    if not _NUMBER.fullmatch(rank) or (count == 1 and not job.status.moved_ranks):
        return Place(rank)
    pod, process = divmod(int(rank), count)
    return Place(str(worker_of(job.status, pod)), process if count > 1 else None)


def waits_as_spare(pod: Pod) -> bool:
    """Return whether a pod has an address and no rank: its container waits for a key of the ConfigMap."""
    waits = pod.status.phase == "Pending" and bool(pod.status.pod_ip) and not pod.metadata.deletion_timestamp
    return is_spare(pod) and waits and not any(map(has_run, pod.status.container_statuses))


def ranks_in(job: PaddleJob, pod: Pod) -> str:
    """Return the ranks of the processes in a pod, such as 4-7; empty if it has one process."""
    count, replica = processes_per_pod(job), replica_of(job.name, pod)
    if count == 1 or replica is None or replica.role is not Role.WORKER:
        return ""
    first = rank_in_role(job.status, replica) * count
    return f"{first}-{first + count - 1}"


def chosen(job: PaddleJob, rank: str, pods: Iterable[str]) -> set[str]:
    """Return the names of the pods that a rank, a pod name, a role or `all` means."""
    return chosen_pods(job.name, place_of(job, rank).pods, pods)


def select(job: PaddleJob, pods: Iterable[Pod], rank: str) -> list[Pod]:
    """Return the pods that a rank, a pod name, a role or `all` means."""
    by_name = {pod.metadata.name: pod for pod in pods}
    names = chosen(job, rank, by_name)
    return [pod for name, pod in by_name.items() if name in names]


def select_one(job: PaddleJob, pods: Iterable[Pod], rank: str) -> Pod:
    """Return the pod of a rank. Raises ClientError for none or several."""
    present = list(pods)
    found = select(job, present, rank)
    if len(found) == 1:
        return found[0]
    shown = ", ".join(rank_of(job.name, pod.metadata.name) for pod in (found or present)) or "no pods now"
    if found:
        raise ClientError(f"{rank} means {len(found)} pods of {job.name}; choose one of {shown}")
    raise ClientError(f"{job.name} has no rank {rank}; it has {shown}")


def wanted(job: PaddleJob) -> list[str]:
    """Return the names of the pods that the job's spec asks for."""
    return [f"{job.name}-{role}-{index}" for role, spec in job.spec.roles() for index in range(spec.replicas)]


def check(job: PaddleJob, rank: str) -> None:
    """Raise ClientError for a rank that is not in the spec of the job."""
    if rank != "all" and not chosen(job, rank, wanted(job)):
        shown = [rank_of(job.name, pod) for pod in wanted(job)]
        several = f"{shown[0]} to {shown[-1]}" if len(shown) > 5 else ", ".join(shown)
        count = processes_per_pod(job)
        numbers = f", a rank from 0 to {count * job.spec.replicas(Role.WORKER) - 1}" if count > 1 else ""
        raise ClientError(f"{job.name} has no rank {rank}; choose all{numbers} or one of {several}")


def state_of(job: PaddleJob, pod: Pod) -> str:
    """Return the state of a pod, mostly as `kubectl get pods` shows it."""
    from paddlejob.core.explain import waits_for_addresses  # noqa: PLC0415 - not needed for most verbs

    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waits = (each.state.waiting.message for each in statuses if each.state.waiting)
    if pod.metadata.deletion_timestamp is None and any(waits_for_addresses(each, job.name) for each in waits):
        return "Waiting"
    return kubectl_status(pod) or "Pending"


def check_running(job: PaddleJob, pod: Pod, container: str) -> None:
    """Raise ClientError for a container that does not run; kubelets hang or report an internal error.

    A container without a status may be an ephemeral one: `Pod` does not show them.
    """
    states, is_final = _container_states(pod), pod.status.phase in FINAL_PHASES
    state = states.get(container)
    may_be_ephemeral = state is None and states and not is_final
    if may_be_ephemeral or (state and state.running):
        return
    stage = "has ended" if is_final or (state and state.terminated) else "has not started"
    raise ClientError(
        f"container {container} of {rank_of(job.name, pod.metadata.name)} {stage} ({state_of(job, pod)}); "
        "exec, cp and port-forward need a running container"
    )


def check_any_running(job: PaddleJob, pod: Pod) -> None:
    """Raise ClientError for a pod without a running container."""
    if not any(state.running for state in _container_states(pod).values()):
        check_running(job, pod, training_container(job, pod))


def _container_states(pod: Pod) -> dict[str, ContainerState]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {each.name: each.state for each in statuses}


def training_container(job: PaddleJob, pod: Pod) -> str:
    """Return the name of the training container."""
    replica = replica_of(job.name, pod)
    role = next((spec for role, spec in job.spec.roles() if replica and role is replica.role), None)
    named = training_container_name(role) if role else ""
    statuses = pod.status.container_statuses
    if named or not statuses:
        return named
    return statuses[0].name
