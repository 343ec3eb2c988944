"""What a job is told when its pods have addresses that PaddlePaddle cannot use."""

from __future__ import annotations

import pytest

from paddlejob.api import names
from paddlejob.api.v1 import Intranet
from paddlejob.core.actions import Create, Kind
from paddlejob.core.network import network_of
from paddlejob.testing.build import job, snapshot

IPV6, IPV4 = "fd00::1", "10.0.0.1"
READS = (
    "has the IPv6 address fd00::1, which PaddlePaddle cannot read; recreate the job with intranet: Service"
)
CONNECTS = (
    "has only the IPv6 address fd00::1, and PaddlePaddle (up to 3.3) connects its processes over IPv4 alone"
)
RUNNING = {"running": {"startedAt": "2024-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "CreateContainerConfigError", "message": 'configmap "demo" not found'}}
FAILED = {"terminated": {"exitCode": 139, "message": "Segmentation fault"}}


def status_of(phase: str, state: dict, *addresses: str) -> dict:
    """Return the status of a pod whose first address is what most programs take for its only one."""
    return {
        "phase": phase,
        "podIP": addresses[0],
        "podIPs": [{"ip": address} for address in addresses],
        "containerStatuses": [{"name": "paddle", "ready": "running" in state, "state": state}],
    }


def first_creations(plan) -> list[str]:
    return [action.name for action in plan.stages[0] if isinstance(action, Create)]


def with_addresses(built, phase: str, state: dict, *addresses: str):
    """Put every pod there, the first with these addresses and the others with the next ones."""
    for number, replica in enumerate(built.replicas(), 1):
        own = (f"{address[:-1]}{number}" for address in addresses)
        built.pod(replica.role, replica.index, status_of(phase, state, *own))
    return built


def waiting(of, *addresses: str):
    return with_addresses(snapshot(of), "Pending", WAITING, *addresses)


def named(of, phase: str, state: dict, *addresses: str):
    """Return the snapshot of an operator that knows that pods have IPv6 addresses."""
    return with_addresses(snapshot(of).with_settings(pods_have_ipv6=True), phase, state, *addresses)


class TestAddressesThatNobodyForesaw:
    """The operator took the cluster for one of IPv4, so that pods have their addresses in POD_IP."""

    @pytest.mark.parametrize("intranet", ["PodIP", "Host"])
    @pytest.mark.parametrize("addresses", [(IPV6,), (IPV6, IPV4)], ids=["IPv6", "IPv6 and IPv4"])
    def test_a_job_with_peers_is_refused(self, intranet, addresses):
        plan = waiting(job().ps(1).worker(1).spec(intranet=intranet), *addresses).plan()
        assert (plan.stages, plan.status.reason) == ((), "InvalidSpec")
        assert plan.status.message == f"spec.intranet is {intranet}, but pod demo-ps-0 {READS}"
        assert [event.message for event in plan.events] == [plan.status.message]

    def test_a_single_worker_has_nobody_to_find(self):
        assert first_creations(waiting(job().worker(1), IPV6).plan()) == ["demo"]

    def test_an_ipv4_address_is_fine(self):
        assert first_creations(waiting(job().worker(2), IPV4, IPV6).plan()) == ["demo"]

    def test_a_job_that_has_started_goes_on(self):
        plan = with_addresses(snapshot(job().worker(2)), "Running", RUNNING, IPV6).plan()
        assert plan.status.phase == "Running"


class TestForeseenAddresses:
    """The operator knows that pods have IPv6 addresses, so that they are called by name."""

    def test_names_come_first_as_with_services(self):
        plan = snapshot(job().worker(2)).with_settings(pods_have_ipv6=True).plan()
        kinds = [{action.kind for action in stage if isinstance(action, Create)} for stage in plan.stages]
        assert kinds == [{Kind.SERVICE}, {Kind.CONFIG_MAP}, {Kind.POD}]

    def test_the_decision_does_not_change_with_what_pods_turn_out_to_have(self):
        plan = named(job().worker(2), "Pending", WAITING, IPV4).plan()
        config = next(a.manifest for stage in plan.stages for a in stage if a.kind is Kind.CONFIG_MAP)
        assert config["data"]["PADDLE_TRAINERS"] == "demo-worker-0.default,demo-worker-1.default"

    @pytest.mark.parametrize(("phase", "state"), [("Pending", WAITING), ("Running", RUNNING)])
    def test_pods_without_an_ipv4_address_are_told_of(self, phase, state):
        status = named(job().worker(2), phase, state, IPV6).plan().status
        assert f"; pod demo-worker-0 {CONNECTS}" in status.message
        assert status.message.endswith("; run the job where pods have IPv4 addresses too")

    def test_so_is_a_failure_that_it_may_have_caused(self):
        of = job().ps(1).worker(1).spec(backoffLimit=0)
        status = named(of, "Failed", FAILED, IPV6).plan().status
        assert status.phase == "Failed"
        assert "Segmentation fault" in status.message
        assert CONNECTS in status.message

    @pytest.mark.parametrize(
        ("of", "addresses"),
        [(job().worker(2), (IPV6, IPV4)), (job().worker(2), (IPV4,)), (job().worker(1), (IPV6,))],
        ids=["both families", "IPv4", "a single worker"],
    )
    def test_others_are_not(self, of, addresses):
        assert "IPv" not in named(of, "Running", RUNNING, *addresses).plan().status.message


MODES = {
    Intranet.POD_IP: ({}, {}, 0),
    Intranet.SERVICE: ({"hostname": "p", "subdomain": "p"}, {}, 1),
    Intranet.HOST: ({"dnsPolicy": "ClusterFirstWithHostNet"}, {"hostNetwork": True}, names.PORTS_PER_POD),
}


@pytest.mark.parametrize("mode", Intranet)
def test_every_mode_says_what_it_means_to_a_pod(mode):
    network, (settings, forced, ports) = network_of(mode), MODES[mode]
    assert (network.settings("p"), network.forced(), len(network.ports(36000))) == (settings, forced, ports)
    assert network.has_host_ports is any("hostPort" in port for port in network.ports(36000))
