from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.control_plane.components import arguments
from devcluster.errors import DevclusterError
from devcluster.node.link import Link
from devcluster.settings import COMPONENTS, NODE_COMPONENTS, ON_THE_NODE, PORTS, ClusterSettings, Layout

PORT_NUMBERS = {name: 1000 + number for number, name in enumerate(PORTS)}
LAYOUT = Layout(Path("/c"), PORT_NUMBERS)
NODE_LAYOUT = Layout(Path("/c"), PORT_NUMBERS, Link(7))


def flags(component, settings=None):
    settings = settings or ClusterSettings()
    layout = NODE_LAYOUT if settings.has_node else LAYOUT
    pairs = (
        argument.removeprefix("--").partition("=") for argument in arguments(component, settings, layout)
    )
    return {name: value for name, _, value in pairs}


def test_etcd_listens_on_loopback_and_does_not_wait_for_the_disk():
    found = flags("etcd")
    assert found["listen-client-urls"] == found["advertise-client-urls"] == "https://127.0.0.1:1000"
    assert found["initial-cluster"] == "devcluster=https://127.0.0.1:1001"
    assert "unsafe-no-fsync" in found


@pytest.mark.parametrize("prefix", ["", "peer-"])
def test_etcd_answers_only_who_has_a_certificate_of_the_cluster(prefix):
    found = flags("etcd")
    assert found[f"{prefix}client-cert-auth"] == "true"
    assert found[f"{prefix}trusted-ca-file"] == "/c/pki/ca.crt"


def test_the_api_server_verifies_authorizes_and_signs():
    found = flags("kube-apiserver")
    assert found["authorization-mode"] == "Node,RBAC"
    assert found["tls-cert-file"] == "/c/pki/apiserver.crt"
    assert found["service-account-signing-key-file"] == "/c/pki/service-account.key"
    assert (found["bind-address"], found["secure-port"]) == ("127.0.0.1", "1002")


def test_the_api_server_listens_where_the_node_can_reach_it_and_no_farther():
    found = flags("kube-apiserver", ClusterSettings.with_node())
    assert (found["bind-address"], found["advertise-address"]) == ("10.250.7.1", "10.250.7.1")
    assert "endpoint-reconciler-type" not in found


def test_the_api_server_and_the_kubelet_know_each_other_by_certificates():
    found = flags("kube-apiserver", ClusterSettings.with_node())
    assert found["kubelet-certificate-authority"] == "/c/pki/ca.crt"
    assert found["kubelet-client-certificate"] == "/c/pki/apiserver-to-kubelet.crt"


def test_a_node_starts_after_the_control_plane_that_listens_on_its_link():
    assert NODE_COMPONENTS[0] == "machine"
    assert NODE_COMPONENTS[-len(ON_THE_NODE) :] == ON_THE_NODE


def test_the_controller_manager_runs_only_the_controllers_asked_for():
    found = flags(
        "kube-controller-manager", ClusterSettings(controllers=("job-controller", "namespace-controller"))
    )
    assert found["controllers"] == "job-controller,namespace-controller"


@pytest.mark.parametrize(
    "component", ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"]
)
def test_feature_gates_reach_every_kubernetes_component(component):
    settings = ClusterSettings.with_node(feature_gates={"GangScheduling": True, "Ancient": False})
    assert flags(component, settings)["feature-gates"] == "Ancient=false,GangScheduling=true"


def test_runtime_config_is_the_api_servers_alone():
    settings = ClusterSettings.with_node(runtime_config={"scheduling.k8s.io/v1alpha1": True})
    having = [name for name in COMPONENTS if "runtime-config" in flags(name, settings)]
    assert having == ["kube-apiserver"]


def test_without_switches_no_flag_is_given():
    assert not {"feature-gates", "runtime-config"} & set(flags("kube-apiserver"))


def test_extra_arguments_come_last_so_that_they_win():
    settings = ClusterSettings(extra_args={"kube-apiserver": ("--authorization-mode=AlwaysAllow",)})
    assert arguments("kube-apiserver", settings, LAYOUT)[-1] == "--authorization-mode=AlwaysAllow"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"components": ("etcd", "kublet")}, "no component 'kublet'", id="an unknown component"),
        pytest.param(
            {"extra_args": {"kublet": ()}}, "no component 'kublet'", id="arguments for an unknown component"
        ),
        pytest.param(
            {"components": ("kube-apiserver",)}, "kube-apiserver needs etcd", id="a server without a store"
        ),
        pytest.param(
            {"components": ("etcd", "kube-scheduler")},
            "kube-scheduler needs kube-apiserver",
            id="a client without a server",
        ),
        pytest.param(
            {"components": ("etcd", "kube-apiserver", "kubelet")},
            "kubelet needs containerd",
            id="a kubelet without containers",
        ),
    ],
)
def test_settings_that_cannot_start_are_refused(settings, message):
    with pytest.raises(DevclusterError, match=message):
        ClusterSettings(**settings)
