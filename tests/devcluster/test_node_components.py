from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from devcluster.node.cgroups import group_name
from devcluster.node.components import CONTAINERD_SOCKET, PAUSE_IMAGE, configuration_files
from devcluster.node.link import Link
from devcluster.settings import PORTS, ClusterSettings, Layout

LAYOUT = Layout(Path("/c"), dict.fromkeys(PORTS, 1), Link(7))


@pytest.fixture
def files():
    settings = ClusterSettings.with_node(feature_gates={"GangScheduling": True})
    return {path.name: text for path, text in configuration_files(settings, LAYOUT, "/plugins").items()}


@pytest.fixture
def kubelet(files):
    return json.loads(files["kubelet.json"])


def test_containerd_starts_pods_with_our_image_and_our_network(files):
    settings = tomllib.loads(files["containerd.toml"])["plugins"]["io.containerd.grpc.v1.cri"]
    assert settings["sandbox_image"] == PAUSE_IMAGE
    assert settings["cni"] == {"bin_dir": "/plugins", "conf_dir": "/c/node/networks"}
    assert settings["registry"] == {"config_path": "/c/node/registries"}


def test_the_kubelet_speaks_to_that_containerd(kubelet):
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{CONTAINERD_SOCKET}"


def test_the_kubelet_answers_only_who_has_a_certificate_and_the_right(kubelet):
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}


def test_all_containers_are_in_the_clusters_own_control_group(kubelet):
    assert kubelet["cgroupRoot"] == f"/{group_name(LAYOUT.directory)}"


def test_no_image_is_ever_removed_to_save_space(kubelet):
    assert kubelet["imageGCHighThresholdPercent"] == 100


def test_feature_gates_reach_the_kubelet(kubelet):
    assert kubelet["featureGates"] == {"GangScheduling": True}


def test_pods_ask_the_dns_that_listens_on_the_node(files, kubelet):
    assert kubelet["clusterDNS"] == ["10.250.7.2"]
    assert "bind 10.250.7.2" in files["Corefile"]


def test_pods_get_addresses_of_the_nodes_range(files):
    bridge = json.loads(files["pods.conflist"])["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.250.7.128/25"}]]
