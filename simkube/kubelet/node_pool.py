"""The nodes of a simulated cluster, and the pods and addresses on them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

import msgspec

from paddlejob.api.meta import JsonObject

_POD_NETWORK = {"IPv4": int(IPv4Address("10.244.0.1")), "IPv6": int(IPv6Address("fd00:244::1"))}
_NODE_NETWORK = {"IPv4": int(IPv4Address("172.18.0.2")), "IPv6": int(IPv6Address("fd00:18::2"))}


class Placement(msgspec.Struct, frozen=True):
    """The node and the addresses of a pod."""

    node: str
    node_address: str
    pod_address: str


class NodePool:
    """Places pods: in turn from a random start, no two with one host port on a node, within capacity."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        rng: random.Random,
        ip_family: str = "IPv4",
        pods_per_node: int | None = None,
    ) -> None:
        self.names = tuple(names)
        self._ip_family = ip_family
        self._pods_per_node = pods_per_node
        self._next = rng.randrange(len(self.names)) if self.names else 0
        self._addresses_given = 0
        self._used: set[str] = set()
        self._ports: dict[str, frozenset[tuple[str, int]]] = {}
        """By pod UID."""
        self._nodes: dict[str, str] = {}
        """By pod UID."""

    def place(self, pod: JsonObject) -> Placement | None:
        """Find a node for a pod, or the one that it is bound to; None when none can take it."""
        uid = pod["metadata"]["uid"]
        ports = host_ports(pod)
        node = pod["spec"].get("nodeName") or self._free_node(ports)
        if node is None:
            return None
        self._nodes[uid], self._ports[uid] = node, ports
        return Placement(node, self._node_address(node), self._pod_address(pod, node))

    def notice(self, pod: JsonObject) -> None:
        """Reserve the address that a pod already has."""
        if address := pod.get("status", {}).get("podIP"):
            self._used.add(address)

    def release(self, uid: str) -> None:
        """Release the node and ports of a pod; its address is not reused."""
        self._nodes.pop(uid, None)
        self._ports.pop(uid, None)

    def _free_node(self, ports: frozenset[tuple[str, int]]) -> str | None:
        for step in range(len(self.names)):
            node = self.names[(self._next + step) % len(self.names)]
            here = [uid for uid, name in self._nodes.items() if name == node] if self._is_picky(ports) else []
            full = self._pods_per_node is not None and len(here) >= self._pods_per_node
            if not full and not any(ports & self._ports[uid] for uid in here):
                self._next = (self._next + step + 1) % len(self.names)
                return node
        return None

    def _is_picky(self, ports: frozenset[tuple[str, int]]) -> bool:
        return bool(ports) or self._pods_per_node is not None

    def _pod_address(self, pod: JsonObject, node: str) -> str:
        if pod["spec"].get("hostNetwork"):
            return self._node_address(node)
        # A pod keeps the address that it had before this kubelet came.
        return pod.get("status", {}).get("podIP") or self._new_address()

    def _new_address(self) -> str:
        while True:
            address = self._shown(_POD_NETWORK[self._ip_family] + self._addresses_given)
            self._addresses_given += 1
            if address not in self._used:
                return address

    def _node_address(self, node: str) -> str:
        index = self.names.index(node) if node in self.names else len(self.names)
        return self._shown(_NODE_NETWORK[self._ip_family] + index)

    def _shown(self, number: int) -> str:
        return str(IPv6Address(number) if self._ip_family == "IPv6" else IPv4Address(number))


def host_ports(pod: JsonObject) -> frozenset[tuple[str, int]]:
    """Return the ports of its node that a pod takes, by protocol."""
    return frozenset(
        (port.get("protocol", "TCP"), port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
