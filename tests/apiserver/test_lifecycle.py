"""What happens to the real components when things around them end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import Client, ControlPlane, DevclusterError, StartError
from devcluster.control_plane.background import Background
from devcluster.control_plane.provisioning import free_ports
from devcluster.processes import Record, ended
from devcluster.settings import ClusterSettings

ROOT = Path(__file__).parents[2]
STARTER = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from devcluster import ControlPlane
with ControlPlane.start(("etcd", "kube-apiserver"), directory=Path(sys.argv[1])) as plane:
    print(json.dumps([asdict(record) for record in plane.records()]), flush=True)
    sys.stdin.read()
"""
SMALL = ClusterSettings(components=("etcd", "kube-apiserver"))


def all_end(records: list[Record], *, within_seconds: float = 30.0) -> bool:
    handles = [handle for handle in (record.open() for record in records) if handle is not None]
    try:
        return all(ended(handle, within_seconds) for handle in handles)
    finally:
        for handle in handles:
            os.close(handle)


def start_in_another_process(directory: Path) -> tuple[subprocess.Popen[bytes], list[Record]]:
    command = [sys.executable, "-c", STARTER, str(directory)]
    starter = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    return starter, [Record(**entry) for entry in json.loads(starter.stdout.readline())]


def test_the_components_die_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    starter, records = start_in_another_process(tmp_path)
    with starter:
        assert all(record.alive() for record in records)
        starter.kill()
        assert all_end(records)


def test_data_survive_a_crash_of_the_api_server() -> None:
    with ControlPlane.start(("etcd", "kube-apiserver")) as plane:
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}})
        plane.restart("kube-apiserver")
        assert plane.request("GET", "/api/v1/namespaces/kept")["metadata"]["name"] == "kept"


def test_a_paused_api_server_keeps_silent_and_comes_back() -> None:
    with ControlPlane.start(("etcd", "kube-apiserver")) as plane:
        with plane.paused("kube-apiserver"), pytest.raises(TimeoutError):
            plane.request("GET", "/version", timeout_seconds=0.5)
        assert plane.request("GET", "/version")["major"] == "1"


def test_a_failed_start_shows_the_log_and_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"(?s)kube-apiserver ended with code 1 .*no-such-flag") as failure:
        ControlPlane.start(extra_args={"kube-apiserver": ("--no-such-flag",)}, directory=tmp_path)
    assert str(tmp_path / "logs" / "kube-apiserver.log") in str(failure.value)
    assert not (tmp_path / "processes.json").exists()


@pytest.mark.parametrize("component", ["etcd", "kube-apiserver"])
def test_a_port_that_was_taken_meanwhile_is_replaced_by_another(component, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = {**free_ports(), component: other.getsockname()[1]}
        choices = iter([taken, free_ports()])
        monkeypatch.setattr("devcluster.control_plane.plane.free_ports", lambda: next(choices))
        with ControlPlane.start(("etcd", "kube-apiserver")) as plane:
            assert plane.request("GET", "/version")["major"] == "1"
    assert list(choices) == []


def test_etcd_refuses_a_client_without_a_certificate() -> None:
    with ControlPlane.start(("etcd",)) as plane:
        stranger = Client(f"https://127.0.0.1:{plane._layout.ports['etcd']}", ca_file=plane.ca_file)
        with pytest.raises(OSError, match="certificate required"):
            stranger.text("/health")


def test_feature_gates_and_runtime_config_reach_the_server() -> None:
    gates, versions = {"GenericWorkload": True}, {"scheduling.k8s.io/v1alpha1": True}
    with ControlPlane.start(
        ("etcd", "kube-apiserver"), feature_gates=gates, runtime_config=versions
    ) as plane:
        kinds = plane.request("GET", "/apis/scheduling.k8s.io/v1alpha1")["resources"]
    assert "Workload" in {kind["kind"] for kind in kinds}


def test_a_background_cluster_is_started_once_and_ends_on_down(tmp_path: Path) -> None:
    background = Background(tmp_path / "shared")
    first = background.up(SMALL)
    records = background.records()
    assert background.up(SMALL).url == first.url == background.connect().url
    assert background.down()
    assert all_end(records)
    assert not background.down()


def test_a_background_cluster_refuses_other_settings(tmp_path: Path) -> None:
    background = Background(tmp_path / "shared")
    background.up(SMALL)
    try:
        with pytest.raises(DevclusterError, match="other settings"):
            background.up(ClusterSettings())
    finally:
        background.down()


def test_a_background_cluster_ends_with_its_owner(tmp_path: Path) -> None:
    background = Background(tmp_path / "shared")
    with subprocess.Popen(["sleep", "600"]) as owner:
        background.up(SMALL, owner_pid=owner.pid)
        records = background.records()
        owner.kill()
    assert all_end(records)


def test_a_background_cluster_is_cleaned_up_and_replaced_after_its_server_is_killed(tmp_path: Path) -> None:
    background = Background(tmp_path / "shared")
    background.up(SMALL)
    records = background.records()
    os.kill(records[0].pid, signal.SIGKILL)
    assert all_end(records)
    assert background.up(SMALL).request("GET", "/version")["major"] == "1"
    assert background.down()
