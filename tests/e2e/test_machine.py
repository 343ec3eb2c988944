"""The node of the development cluster keeps to itself, and goes without a trace."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import Cluster
from devcluster.control_plane.background import Background
from devcluster.node.cgroups import HIERARCHIES, group_name
from devcluster.node.components import PAUSE_IMAGE
from devcluster.node.link import Link
from devcluster.settings import ClusterSettings
from e2e.jobs import eventually

POD = {
    "metadata": {"name": "waiting"},
    "spec": {"containers": [{"name": "pause", "image": PAUSE_IMAGE}], "hostNetwork": True},
}
KERNEL_SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Background]:
    background = Background(tmp_path / "cluster")
    yield background
    background.down()


def kernel_settings() -> list[str]:
    return [Path("/proc/sys", name).read_text() for name in (*KERNEL_SETTINGS, "net/ipv4/ip_forward")]


def inhabitants(namespace: str) -> list[int]:
    """Give the processes in a network: the node's own, and those of pods that share it."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [pid for pid in pids if lives_in(pid) == namespace]


def lives_in(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def interface_of(cluster: Cluster) -> Path:
    number = cluster.url.split(".")[2]
    return Path("/sys/class/net", Link(int(number)).interface)


def groups(directory: Path) -> list[Path]:
    return [path for path in HIERARCHIES.rglob(group_name(directory)) if path.is_dir()]


def test_killing_the_starter_ends_every_container_and_removes_the_network(background: Background) -> None:
    before = kernel_settings()
    cluster = background.up(ClusterSettings.with_node())
    records = {record.name: record for record in background.records()}
    machine = lives_in(records["machine"].pid)
    cluster.request("POST", "/api/v1/namespaces/default/pods", POD)
    pod = "/api/v1/namespaces/default/pods/waiting"
    eventually(lambda: cluster.request("GET", pod)["status"]["phase"] == "Running", within_seconds=60)
    # One that holds the pod's namespaces, and the container itself.
    assert [command(pid) for pid in inhabitants(machine)].count("pause") == 2
    assert kernel_settings() == before
    assert interface_of(cluster).exists()
    os.kill(records["server"].pid, signal.SIGKILL)
    eventually(lambda: not inhabitants(machine), within_seconds=30)
    eventually(lambda: not interface_of(cluster).exists(), within_seconds=30)
    assert background.down()
    assert not groups(background.directory)
    assert not background.directory.exists()
