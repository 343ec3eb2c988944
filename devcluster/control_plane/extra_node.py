"""A second node of a running cluster, for tests of pods in the networks of their nodes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from devcluster.control_plane.cluster import Cluster
from devcluster.control_plane.plane import ControlPlane
from devcluster.control_plane.provisioning import issue_for_kubelet, write_node_files
from devcluster.node.link import Link, choose_link
from devcluster.node.runtime import NodeRuntime
from devcluster.requirements import programs_for
from devcluster.settings import ClusterSettings, Layout

NAME = "node-1"


@contextmanager
def extra_node(cluster: Cluster) -> Iterator[NodeRuntime]:
    """Give a cluster another node while the block runs.

    It has neither kube-proxy nor DNS: its pods reach the API server, the other node, and no service.
    """
    settings = ClusterSettings.with_node()
    programs = programs_for(settings)
    # Inside the cluster's own, with which it is removed after a crash.
    directory = cluster.directory / NAME
    shutil.rmtree(directory, ignore_errors=True)
    layout = Layout(directory, {}, choose_link(), NAME)
    plane = ControlPlane(replace(cluster.access, directory=directory), settings, layout, programs)
    try:
        _prepare(cluster, settings, layout, programs["pki"])
        plane.launch(("machine",))
        _connect(
            NodeRuntime(cluster.directory).machine_pid(),
            _link_of(cluster),
            plane.records()[0].pid,
            layout.node,
        )
        plane.launch(("containerd", "kubelet"))
        yield NodeRuntime(directory)
        cluster.kubectl("delete", "node", NAME)
    finally:
        plane.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _prepare(cluster: Cluster, settings: ClusterSettings, layout: Layout, pki: Path) -> None:
    """Write the configuration of the node's components."""
    (layout.directory / "logs").mkdir(parents=True)
    shutil.copytree(cluster.directory / "pki", layout.directory / "pki")
    for old in (layout.directory / "pki").glob("kubelet.*"):
        old.unlink()
    issue_for_kubelet(layout, pki)
    write_node_files(settings, layout)
    # The tokens of the API server are fixed when it starts, and it knows only the first node.
    shutil.copy(cluster.kubeconfig, layout.component_kubeconfig("kubelet"))


def _link_of(cluster: Cluster) -> Link:
    return Link(int(cluster.url.split(".")[2]))


def _connect(first_pid: int, first: Link, second_pid: int, second: Link) -> None:
    """Make the way from the second machine to the API server, and a cable between the two machines."""
    inside_first, inside_second = (
        ["nsenter", f"--target={pid}", "--net", "ip"] for pid in (first_pid, second_pid)
    )
    to_server = ["route", "add", first.host_address, "via", second.host_address]
    cable = ["link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(second_pid)]
    commands = [[*inside_second, *to_server], [*inside_first, *cable]]
    for inside, own, other in ((inside_first, first, second), (inside_second, second, first)):
        commands.append([*inside, "link", "set", "cable", "up"])
        route = ["route", "add", other.node_address, "dev", "cable", "src", own.node_address]
        commands.append([*inside, *route])
    for command in commands:
        subprocess.run(command, check=True)
