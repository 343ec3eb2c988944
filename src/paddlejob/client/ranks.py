"""Ranks: which pods belong to a job, in which order, and what people call them."""

from __future__ import annotations

from collections.abc import Iterable

from paddlejob.api import names
from paddlejob.api.pod import ContainerState, Pod
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.client.errors import ClientError
from paddlejob.core.pod_set import FINAL_PHASES, replica_of, training_container_name
from paddlejob.local.store.logs import chosen_pods, short_name

_ROLES = list(Role)


def in_order(job: PaddleJob, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of this very job, not of a deleted one of its name: servers first, by rank."""
    found = [
        (_ROLES.index(replica.role), replica.index, pod)
        for pod in pods
        if pod.metadata.controller_uid in (job.metadata.uid, "") and (replica := replica_of(job.name, pod))
    ]
    return [pod for *_, pod in sorted(found, key=lambda each: each[:2])]


def rank_of(job: str, pod: str) -> str:
    """Return what people call a pod: worker-0."""
    return short_name(job, pod)


def attempt_of(pod: Pod) -> int:
    """Return the attempt that a pod was created for."""
    label = pod.metadata.labels.get(names.LABEL_ATTEMPT, "")
    return int(label) if label.isascii() and label.isdecimal() else 0


def select(job: PaddleJob, pods: Iterable[Pod], rank: str) -> list[Pod]:
    """Return the pods that a rank (0), a pod (ps-1), a role (ps) or `all` means."""
    by_name = {pod.metadata.name: pod for pod in pods}
    chosen = chosen_pods(job.name, rank, by_name)
    return [pod for name, pod in by_name.items() if name in chosen]


def select_one(job: PaddleJob, pods: Iterable[Pod], rank: str) -> Pod:
    """Return the one pod that a rank means. Raises ClientError."""
    present = list(pods)
    chosen = select(job, present, rank)
    if len(chosen) == 1:
        return chosen[0]
    shown = ", ".join(rank_of(job.name, pod.metadata.name) for pod in (chosen or present)) or "no pods now"
    if chosen:
        raise ClientError(f"{rank} means {len(chosen)} pods of {job.name}; choose one of {shown}")
    raise ClientError(f"{job.name} has no rank {rank}; it has {shown}")


def wanted(job: PaddleJob) -> list[str]:
    """Return the names of the pods that the job's spec asks for."""
    return [f"{job.name}-{role}-{index}" for role, spec in job.spec.roles() for index in range(spec.replicas)]


def check(job: PaddleJob, rank: str) -> None:
    """Raise ClientError for a rank that the job's spec has no place for, whether its pods exist or not."""
    if rank != "all" and not chosen_pods(job.name, rank, wanted(job)):
        shown = [rank_of(job.name, pod) for pod in wanted(job)]
        several = f"{shown[0]} to {shown[-1]}" if len(shown) > 5 else ", ".join(shown)
        raise ClientError(f"{job.name} has no rank {rank}; choose all or one of {several}")


def state_of(job: PaddleJob, pod: Pod) -> str:
    """Return the state of a pod in a word or two, as `kubectl get pods` does."""
    from paddlejob.core.explain import waits_for_addresses  # noqa: PLC0415 - not needed for most verbs
    from paddlejob.local.ui.view import describe  # noqa: PLC0415

    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waits = (each.state.waiting.message for each in statuses if each.state.waiting)
    if pod.metadata.deletion_timestamp is None and any(waits_for_addresses(each, job.name) for each in waits):
        return "Waiting"
    return describe(pod) or "Pending"


def check_running(job: PaddleJob, pod: Pod, container: str) -> None:
    """Raise ClientError for a container that does not run; a kubelet reports an internal error, or hangs.

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
    """Raise ClientError for a pod without a running container; its containers share their ports."""
    if not any(state.running for state in _container_states(pod).values()):
        check_running(job, pod, training_container(job, pod))


def _container_states(pod: Pod) -> dict[str, ContainerState]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {each.name: each.state for each in statuses}


def training_container(job: PaddleJob, pod: Pod) -> str:
    """Return the name of the container that trains."""
    replica = replica_of(job.name, pod)
    role = next((spec for role, spec in job.spec.roles() if replica and role is replica.role), None)
    named = training_container_name(role) if role else ""
    statuses = pod.status.container_statuses
    if named or not statuses:
        return named
    return statuses[0].name
