"""How a job's pods reach each other: one class a mode of `spec.intranet`, and what all modes have in common.

A new mode is a value of `Intranet`, a class here, and a line in the documents.

Paddle speaks IPv4 only: it splits endpoints at each colon, asks for IPv4 addresses of names, and listens on
IPv4 sockets. docs/ipv6.md tells what was tried. Where it is known beforehand that pods have IPv6 addresses,
they are called by name, which leads to the IPv4 address that they may have as well. The rest is here.
"""

from __future__ import annotations

import zlib
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, ClassVar, assert_never

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Intranet
from paddlejob.api.validation.ports import declared_ports
from paddlejob.core.messages import PhaseReason
from paddlejob.core.pod_set import ObservedPod, PodSet
from paddlejob.core.snapshot import Snapshot
from paddlejob.fair_share import may_take

if TYPE_CHECKING:
    from paddlejob.core.paddle_env import JobContext


class Network(msgspec.Struct, frozen=True):
    """What a mode means to pods."""

    by_name: bool
    """Whether pods are called by the names of services of their own instead of their addresses.

    Paddle splits every endpoint at each colon, so it cannot read an IPv6 address in any spelling. A name
    leads it to the pod's IPv4 address, if there is one as well.
    """
    has_host_ports: ClassVar[bool] = False
    """Whether all pods of a job need one block of ports that is free on every node."""

    def settings(self, pod: str) -> JsonObject:
        """Return what a pod's spec gets unless its author wrote it."""
        return {"hostname": pod, "subdomain": pod} if self.by_name else {}

    def forced(self) -> JsonObject:
        """Return what a pod's spec gets in any case."""
        return {}

    def ports(self, first: int) -> list[JsonObject]:
        """Return the ports that the training container declares, unless its author did."""
        return [{"containerPort": first, "protocol": "TCP"}] if self.by_name else []


class PodIP(Network, frozen=True):
    """Pods are called by their addresses; by name where these are of IPv6."""


class ServiceNames(Network, frozen=True):
    """Every pod is called by the name of its own headless service."""

    by_name: bool = True


class HostNetwork(Network, frozen=True):
    """Pods share the network of their node, on ports of the job's own."""

    has_host_ports: ClassVar[bool] = True

    def settings(self, pod: str) -> JsonObject:  # noqa: ARG002  (a pod on its node's network has its name)
        """Names of the cluster are to be found from a node's network too."""
        return {"dnsPolicy": "ClusterFirstWithHostNet"}

    def forced(self) -> JsonObject:
        """The pod is on its node's network."""
        return {"hostNetwork": True}

    def ports(self, first: int) -> list[JsonObject]:
        """All are host ports, so that the scheduler keeps two pods with the same ports off one node."""
        block = range(first, first + names.PORTS_PER_POD)
        return [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in block]


@cache
def network_of(intranet: Intranet, *, pods_have_ipv6: bool = False) -> Network:
    """Return the network of a job."""
    match intranet:
        case Intranet.POD_IP:
            return PodIP(pods_have_ipv6)
        case Intranet.SERVICE:
            return ServiceNames()
        case Intranet.HOST:
            return HostNetwork(pods_have_ipv6)
        case _:
            assert_never(intranet)


def host_port(snapshot: Snapshot, spec: EffectiveSpec) -> int | None:
    """Return the first of a job's block of host ports, 0 where it needs none, None where none is left."""
    if not network_of(spec.intranet).has_host_ports:
        return 0
    if snapshot.job.status.host_port:
        return snapshot.job.status.host_port
    if not _may_take_block(snapshot):
        return None
    declared = frozenset[int]().union(*(declared_ports(role.template) for _, role in spec.roles))
    return choose_base_port(
        snapshot.job.metadata.uid, snapshot.settings.host_port_range, snapshot.taken_host_ports, declared
    )


def _may_take_block(snapshot: Snapshot) -> bool:
    """Return whether the job's namespace has less than its share of the blocks."""
    return may_take(_free_blocks(snapshot), snapshot.namespace_host_ports)


def _free_blocks(snapshot: Snapshot) -> int:
    first, last = snapshot.settings.host_port_range
    taken = sum(first <= port <= last for port in snapshot.taken_host_ports)
    return max(0, port_blocks(snapshot.settings.host_port_range) - taken)


def port_blocks(port_range: tuple[int, int]) -> int:
    """Return the number of blocks in a range of ports."""
    first, last = port_range
    return (last - first + 1) // names.PORTS_PER_POD


def no_port_sentence(snapshot: Snapshot) -> str:
    """Return why a job has no block of ports, and the way out."""
    free, port_range = _free_blocks(snapshot), snapshot.settings.host_port_range
    if free and not _may_take_block(snapshot):
        namespace, held = snapshot.job.metadata.namespace, snapshot.namespace_host_ports
        return (
            f"intranet Host: namespace {namespace} already holds {held} of {port_blocks(port_range)} port "
            f"blocks, its share while {free} are free; wait for a job of the namespace to end, suspend one "
            "or widen --port-range"
        )
    first, last = port_range
    return (
        f"all host ports from {first} to {last} are in use, by other jobs or by the job's own containers; "
        "widen --port-range or wait for a job to end"
    )


def choose_base_port(
    job_uid: str,
    port_range: tuple[int, int],
    taken: AbstractSet[int],
    declared: AbstractSet[int] = frozenset(),
) -> int | None:
    """Return a free base port, or None when the range is used up.

    `taken` are the base ports of other jobs, `declared` the ports that this job's own containers listen on:
    a sidecar inside the block would have its pods refused, and the job keeps the block until it is suspended.
    The search starts at a place that depends on the job's UID, so that two operators that do not see each
    other's choice yet are unlikely to make the same one.
    """
    first, blocks = port_range[0], port_blocks(port_range)
    start = zlib.crc32(job_uid.encode()) % max(blocks, 1)
    ends = {port + names.PORTS_PER_POD - 1 for port in taken}
    used = {(port - first) // names.PORTS_PER_POD for port in (*taken, *ends, *declared)}
    in_turn = ((start + step) % blocks for step in range(blocks))
    free = next((block for block in in_turn if block not in used), None)
    return None if free is None else first + free * names.PORTS_PER_POD


def unreadable_address(context: JobContext, pod_set: PodSet) -> str:
    """Return why a job must not start with the addresses it has, empty when it may.

    Started nevertheless, the workers of a job under `paddle.distributed.launch` would take themselves for one
    node each: all train alone, and the job completes as if nothing were wrong.
    """
    if context.network.by_name or context.spec.rendezvous is not None or len(pod_set.wanted) == 1:
        return ""
    for member in pod_set.active:
        address = member.pod.status.pod_ip
        if ":" in address and not member.has_started:
            return (
                f"spec.intranet is {context.spec.intranet}, but pod {member.pod.metadata.name} has the IPv6 "
                f"address {address}, which PaddlePaddle cannot read; "
                "recreate the job with intranet: Service"
            )
    return ""


def shared_address(context: JobContext, pod_set: PodSet) -> str:
    """Return why a job must not start with the addresses that it has, empty if all of them differ.

    All pods of a job listen on the same port. Pods that have started keep the addresses that they know.
    """
    if context.knows_hosts_beforehand:
        return ""
    first: dict[str, ObservedPod] = {}
    for member in pod_set.active:
        address = member.pod.status.pod_ip
        if not address or member.replica in pod_set.finished:
            continue
        other = first.setdefault(address, member)
        if other is not member and not (other.has_started and member.has_started):
            return (
                f"pods {other.pod.metadata.name} and {member.pod.metadata.name} have the same address "
                f"{address} and would listen on the same port {context.port}; "
                "recreate the job with intranet: Host, which keeps them on different nodes"
            )
    return ""


def with_ipv6_warning(phase_reason: PhaseReason, pod_set: PodSet) -> PhaseReason:
    """Add what a person has to know about a job whose pods cannot reach each other through Paddle.

    The job is not refused: its program may do without peers, or bring a Paddle that can.
    """
    alone = next((pod for member in pod_set.active if _lacks_ipv4(pod := member.pod)), None)
    if alone is None or len(pod_set.wanted) == 1:
        return phase_reason
    note = (
        f"pod {alone.metadata.name} has only the IPv6 address {alone.status.pod_ip}, and PaddlePaddle (up to "
        "3.3) connects its processes over IPv4 alone; run the job where pods have IPv4 addresses too"
    )
    return msgspec.structs.replace(phase_reason, message=f"{phase_reason.message}; {note}")


def _lacks_ipv4(pod: Pod) -> bool:
    addresses = [address.ip for address in pod.status.pod_ips] or [pod.status.pod_ip]
    return bool(addresses[0]) and all(":" in address for address in addresses)
