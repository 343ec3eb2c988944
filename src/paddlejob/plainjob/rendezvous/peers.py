"""Derive the pods that train together and their trainer ids from a list of pods, the same in every pod.

The original start_paddle.py waited until the pods *listed so far* were running, sorted their addresses as
text, and waited forever if one had finished. Here all pods of the Job's parallelism must run, and addresses
are sorted as numbers. Pods of an Indexed Job are sorted by their index, which a replacement pod keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.plainjob import errors

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


class Peer(msgspec.Struct, frozen=True):
    """A pod that trains. Its trainer id is its position in the list."""

    name: str
    address: str


class Peers(msgspec.Struct, frozen=True):
    """All pods that train together, in the order of their trainer ids."""

    peers: tuple[Peer, ...]
    me: int
    job_uid: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in the order of trainer ids, the same list in every pod."""
        return tuple(peer.address for peer in self.peers)


class Waiting(msgspec.Struct, frozen=True):
    """Not all pods are running yet."""

    running: int
    missing: tuple[str, ...]


class Finished(msgspec.Struct, frozen=True):
    """A pod of the Job has succeeded and will not join again."""

    name: str
    job_uid: str


class PodIdentity(msgspec.Struct, frozen=True):
    """How a pod finds itself in the list: by name, by completion index, or by address."""

    name: str = ""
    address: str = ""
    index: int | None = None


class JobShape(msgspec.Struct, frozen=True):
    """The number of pods that a Job runs together, and how many of them must succeed."""

    parallelism: int | None = None
    completions: int | None = None


Resolution = Peers | Waiting | Finished


def expected_trainers(shape: JobShape | None, gradient_num: int | None) -> int:
    """Return the number of pods in the Job, or CONF_PADDLE_GRADIENT_NUM if the Job cannot be read.

    Raises SettingsError when they contradict each other, or when neither is known.
    """
    if shape is None:
        if gradient_num is None:
            raise errors.SettingsError(
                "CONF_PADDLE_GRADIENT_NUM is not set, and the Job cannot be read: "
                "set it to the Job's parallelism, or let the service account get jobs"
            )
        return gradient_num
    pods = 1 if shape.parallelism is None else shape.parallelism
    trainers = pods if shape.completions is None else min(pods, shape.completions)
    if gradient_num is not None and gradient_num != trainers:
        raise errors.SettingsError(
            f"CONF_PADDLE_GRADIENT_NUM is {gradient_num}, but the Job runs {trainers} pods: make them equal"
        )
    return trainers


def resolve_peers(pods: Sequence[Pod], expected: int, me: PodIdentity) -> Resolution:
    """Decide whether training can start, and with which pods.

    Pods of an earlier Job of the same name, pods being deleted and pods that failed do not count. Raises
    SettingsError when waiting cannot help.
    """
    own = _find(pods, me)
    if own is None:
        return Waiting(0, (f"{me.name or me.address} (this pod, not in the list yet)",))
    uid = own.metadata.controller_uid
    siblings = [pod for pod in pods if pod.metadata.controller_uid == uid and not _is_leaving(pod)]
    done = [pod.metadata.name for pod in siblings if pod.status.phase == "Succeeded"]
    if done:
        return Finished(min(done), uid)
    running = [pod for pod in siblings if _is_running(pod)]
    if len(siblings) != expected or len(running) != expected:
        return Waiting(len(running), describe_missing(siblings, expected))
    return _number_peers(running, own, uid)


def _find(pods: Sequence[Pod], me: PodIdentity) -> Pod | None:
    for pod in pods:
        if pod.metadata.name == me.name:
            return pod
    alive = [pod for pod in pods if not _is_leaving(pod)]
    for pod in alive:
        if me.index is not None and completion_index(pod) == me.index:
            return pod
    for pod in alive:
        if me.address and me.address in _addresses(pod):
            return pod
    return None


def _is_leaving(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed"


def _is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running" and bool(pod.status.pod_ip)


def _number_peers(running: Sequence[Pod], own: Pod, uid: str) -> Resolution:
    indexes = sorted(index for pod in running if (index := completion_index(pod)) is not None)
    if indexes and indexes != list(range(len(running))):
        return Waiting(len(running), (f"indexes 0 to {len(running) - 1} (there are {indexes})",))
    at = {pod.metadata.name: ipv4_address(pod) for pod in running}
    for pod in running:
        if not at[pod.metadata.name]:
            raise errors.SettingsError(
                f"pod {pod.metadata.name} has only the IPv6 address {pod.status.pod_ip}, and PaddlePaddle "
                "connects its processes over IPv4: run the Job where pods have IPv4 addresses too"
            )
    shared = [address for address, count in Counter(at.values()).items() if count > 1]
    if shared:
        raise errors.SettingsError(
            f"two pods have the address {shared[0]}: with hostNetwork each pod needs a node of its own"
        )
    ordered = sorted(running, key=_order)
    peers = tuple(Peer(pod.metadata.name, at[pod.metadata.name]) for pod in ordered)
    return Peers(peers, ordered.index(own), uid)


def ipv4_address(pod: Pod) -> str:
    """Return the address that Paddle can use, which may be a pod's second one; empty when there is none."""
    return next((address for address in _addresses(pod) if ":" not in address), "")


def _addresses(pod: Pod) -> tuple[str, ...]:
    return (pod.status.pod_ip, *(address.ip for address in pod.status.pod_ips))


def completion_index(pod: Pod) -> int | None:
    """Return a pod's index in an Indexed Job, None in another."""
    text = pod.metadata.annotations.get(INDEX_ANNOTATION, "")
    return int(text) if text.isdecimal() else None


def _order(pod: Pod) -> tuple[int, str]:
    """Return a sort key: the index in an Indexed Job, otherwise the address as text."""
    return completion_index(pod) or 0, ipv4_address(pod)


def describe_missing(siblings: Sequence[Pod], expected: int) -> tuple[str, ...]:
    """Return which pods are missing and why, as text for the log."""
    late = [f"{pod.metadata.name} ({_why_not(pod)})" for pod in siblings if not _is_running(pod)]
    absent = expected - len(siblings)
    if absent > 0:
        late.append(_describe_absent(siblings, expected, absent))
    if absent < 0:
        late.append(f"the exit of {-absent} surplus pod{'s' if absent < -1 else ''} ({len(siblings)} exist)")
    return tuple(late)


def _describe_absent(siblings: Sequence[Pod], expected: int, absent: int) -> str:
    indexes = [completion_index(pod) for pod in siblings]
    if siblings and None not in indexes:
        missing = sorted(set(range(expected)) - {index for index in indexes if index is not None})
        return f"index {', '.join(map(str, missing))} (no such pod yet)"
    return f"{absent} pod{'s' if absent > 1 else ''} not created yet"


def _why_not(pod: Pod) -> str:
    phase = pod.status.phase or "Pending"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.state.waiting is not None and status.state.waiting.reason:
            return f"{phase}: {status.state.waiting.reason}"
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{phase}: {condition.message or condition.reason}"
    return f"{phase}: no address yet" if phase == "Running" else phase
