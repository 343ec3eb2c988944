from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.components import ARGUMENTS, PORTS, Settings, Site, arguments
from devcluster.programs import DevclusterError

SITE = Site(Path("/c"), {name: 1000 + number for number, name in enumerate(PORTS)})


def flags(component, settings=None):
    pairs = (
        argument.removeprefix("--").partition("=")
        for argument in arguments(component, settings or Settings(), SITE)
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


def test_the_controller_manager_runs_only_the_controllers_asked_for():
    found = flags("kube-controller-manager", Settings(controllers=("job-controller", "namespace-controller")))
    assert found["controllers"] == "job-controller,namespace-controller"


@pytest.mark.parametrize("component", ["kube-apiserver", "kube-controller-manager", "kube-scheduler"])
def test_feature_gates_reach_every_kubernetes_component(component):
    settings = Settings(feature_gates={"GangScheduling": True, "Ancient": False})
    assert flags(component, settings)["feature-gates"] == "Ancient=false,GangScheduling=true"


def test_runtime_config_is_the_api_servers_alone():
    settings = Settings(runtime_config={"scheduling.k8s.io/v1alpha1": True})
    having = [name for name in ARGUMENTS if "runtime-config" in flags(name, settings)]
    assert having == ["kube-apiserver"]


def test_without_switches_no_flag_is_given():
    assert not {"feature-gates", "runtime-config"} & set(flags("kube-apiserver"))


def test_extra_arguments_come_last_so_that_they_win():
    settings = Settings(extra_args={"kube-apiserver": ("--authorization-mode=AlwaysAllow",)})
    assert arguments("kube-apiserver", settings, SITE)[-1] == "--authorization-mode=AlwaysAllow"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            {"components": ("etcd", "kubelet")}, "no component 'kubelet'", id="an unknown component"
        ),
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
    ],
)
def test_settings_that_cannot_start_are_refused(settings, message):
    with pytest.raises(DevclusterError, match=message):
        Settings(**settings)
