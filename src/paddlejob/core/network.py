"""How the pods of a job reach each other: one class for each mode of `spec.intranet`.

Paddle uses IPv4 only: it splits endpoints at each colon, resolves names to IPv4 addresses, and listens on
IPv4 sockets (docs/ipv6.md). In a cluster where pods have IPv6 addresses, they are called by name, which
resolves to their IPv4 address if they have one too.
"""

from __future__ import annotations

import zlib
from collections.abc import Set as AbstractSet
from functools import cache
from typing import ClassVar, assert_never

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Intranet
from paddlejob.api.validation.ports import declared_ports
from paddlejob.core.messages import PhaseReason
from paddlejob.core.pod_set import PodSet
from paddlejob.core.snapshot import Snapshot
from paddlejob.fair_share import may_take


class Network(msgspec.Struct, frozen=True):
    """The fields that a mode of `spec.intranet` adds to pods."""

    by_name: bool
    """Whether pods are called by the names of their services instead of their addresses."""
    has_host_ports: ClassVar[bool] = False
    """Whether the pods of a job need a block of ports that is free on every node."""

    def settings(self, pod: str) -> JsonObject:
        """Return the fields that a pod spec gets unless the template has them."""
        return {"hostname": pod, "subdomain": pod} if self.by_name else {}

    def required_settings(self) -> JsonObject:
        """Return the fields that a pod spec gets in any case."""
        return {}

    def ports(self, first: int) -> list[JsonObject]:
        """Return the ports that the training container declares, unless the template does."""
        return [{"containerPort": first, "protocol": "TCP"}] if self.by_name else []


class PodIP(Network, frozen=True):
    """Pods are called by their addresses, or by name if these are IPv6 addresses."""


class ServiceNames(Network, frozen=True):
    """Pods are called by the names of their headless services."""

    by_name: bool = True


class HostNetwork(Network, frozen=True):
    """Pods use the network of their node, on ports of the job's own."""

    has_host_ports: ClassVar[bool] = True

    def settings(self, pod: str) -> JsonObject:  # noqa: ARG002  (a pod on the host network has the node's name)
        """Return the DNS policy: cluster DNS must also resolve from the host network."""
        return {"dnsPolicy": "ClusterFirstWithHostNet"}

    def required_settings(self) -> JsonObject:
        return {"hostNetwork": True}

    def ports(self, first: int) -> list[JsonObject]:
        """Return host ports, so that the scheduler keeps pods with the same ports on different nodes."""
        block = range(first, first + names.PORTS_PER_POD)
        return [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in block]


@cache
def network_of(intranet: Intranet, *, pods_have_ipv6: bool = False) -> Network:
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
    """Return the first port of the job's block of host ports, 0 if it needs none, None if none is free."""
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
    """Return whether the job's namespace has less than its fair share of the blocks."""
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
    """Return why a job has no block of ports, and how to get one."""
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
    """Return a free base port, None if the range is used up.

    `taken` are the base ports of other jobs. `declared` are the ports of this job's own containers: the API
    server would reject pods with a sidecar inside the block. The search starts at a port that depends on the
    job's UID, so that two operators that do not see each other's choice yet are unlikely to choose the same.
    """
    first, blocks = port_range[0], port_blocks(port_range)
    start = zlib.crc32(job_uid.encode()) % max(blocks, 1)
    ends = {port + names.PORTS_PER_POD - 1 for port in taken}
    used = {(port - first) // names.PORTS_PER_POD for port in (*taken, *ends, *declared)}
    in_turn = ((start + step) % blocks for step in range(blocks))
    free = next((block for block in in_turn if block not in used), None)
    return None if free is None else first + free * names.PORTS_PER_POD


def with_ipv6_warning(phase_reason: PhaseReason, pod_set: PodSet) -> PhaseReason:
    """Add a warning to the message if pods cannot reach each other through Paddle.

    The job is not rejected: its program may not need peers, or may have a Paddle that supports IPv6.
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
