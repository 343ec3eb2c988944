"""The private network between this machine and a node: one pair of interfaces, one block of addresses."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from dataclasses import dataclass

from devcluster.errors import DevclusterError

NUMBERS = range(250)
SERVICE_RANGE = "10.96.0.0/16"


class LinkTakenError(DevclusterError):
    """Another cluster took the addresses between our choosing and using them."""


@dataclass(frozen=True)
class Link:
    """Addresses for the host, the node and its pods, all in one block."""

    number: int

    @property
    def block(self) -> ipaddress.IPv4Network:
        """All addresses of the link."""
        return ipaddress.IPv4Network(f"10.250.{self.number}.0/24")

    @property
    def interface(self) -> str:
        """The host's end; the node's is eth0."""
        return f"devcluster{self.number}"

    @property
    def host_address(self) -> str:
        """Address of the API server for the node and its pods."""
        return str(self.block[1])

    @property
    def node_address(self) -> str:
        """Address of the node for the API server."""
        return str(self.block[2])

    @property
    def pod_range(self) -> str:
        """The upper half of the block."""
        return str(list(self.block.subnets())[1])

    def commands(self, machine_pid: int) -> list[list[str]]:
        """Return the commands that create the link to the machine of a process; it ends with that machine."""
        inside = ["nsenter", f"--target={machine_pid}", "--net"]
        ends: tuple[tuple[str, str, list[str]], ...]
        ends = ((self.interface, self.host_address, []), ("eth0", self.node_address, inside))
        return [
            _ip("link", "add", self.interface, "type", "veth", "peer", "eth0", "netns", str(machine_pid)),
            *(prefix + _ip("address", "add", f"{own}/30", "dev", name) for name, own, prefix in ends),
            *(prefix + _ip("link", "set", name, "up") for name, _, prefix in ends),
            inside + _ip("link", "set", "lo", "up"),
            # Only traffic that kube-proxy translates leaves this way: the node reaches no other network.
            inside + _ip("route", "add", SERVICE_RANGE, "via", self.host_address),
            _ip("route", "add", self.pod_range, "via", self.node_address),
        ]

    def connect(self, machine_pid: int) -> None:
        """Make the link.

        Raises: LinkTakenError when the interface exists, DevclusterError when the kernel refuses.
        """
        for command in self.commands(machine_pid):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if "File exists" in result.stderr:
                raise LinkTakenError(f"{self.interface} is already there: {result.stderr.strip()}")
            if result.returncode != 0:
                raise DevclusterError(f"`{' '.join(command)}` failed: {result.stderr.strip()}")


def _ip(*arguments: str) -> list[str]:
    return ["ip", *arguments]


def choose_link() -> Link:
    """Give a link whose addresses nothing on this machine uses.

    Raises: DevclusterError when all are taken.
    """
    answer = subprocess.run(
        _ip("-json", "-4", "route", "show", "table", "all"), capture_output=True, check=True
    )
    return first_free(json.loads(answer.stdout))


def first_free(routes: list[dict[str, str]]) -> Link:
    """Give the first link that no route of the machine touches."""
    used = [ipaddress.IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]
    for link in map(Link, NUMBERS):
        if not any(link.block.overlaps(network) for network in used):
            return link
    raise DevclusterError(
        "All addresses for nodes are in use; end a cluster with `python -m devcluster down`."
    )
