"""What a job is told when its pods have addresses that PaddlePaddle cannot use."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.v1 import Intranet
from paddlejob.core.actions import Create, Kind
from paddlejob.core.network import network_of
from paddlejob.core.plan import plan
from simkube.build import job, snapshot

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


def shared(built, *indexes: int):
    """Let some workers have the address of worker 0, as pods on the network of their node do."""
    given = built.build()
    address = next(pod.status.pod_ip for pod in given.pods if pod.metadata.name == "demo-worker-0")
    names = [f"demo-worker-{index}" for index in indexes]
    pods = (
        msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, pod_ip=address))
        if pod.metadata.name in names
        else pod
        for pod in given.pods
    )
    return msgspec.structs.replace(given, pods=tuple(pods))


class TestSharedAddresses:
    """Something other than the template put pods on the network of their node, such as a webhook."""

    @pytest.mark.parametrize("intranet", ["PodIP", "Host"])
    def test_no_rank_starts_with_the_endpoint_of_another(self, intranet):
        built = waiting(job().ps(1).worker(3).spec(intranet=intranet), IPV4)
        decided = plan(shared(built, 2))
        assert (decided.stages, decided.status.phase, decided.status.reason) == ((), "Pending", "InvalidSpec")
        assert "pods demo-worker-0 and demo-worker-2 have the same address" in decided.status.message
        assert "recreate the job with intranet: Host" in decided.status.message
        assert [event.message for event in decided.events] == [decided.status.message]

    @pytest.mark.parametrize("fields", [{}, {"pod": {"hostNetwork": True}}], ids=["pod", "node"])
    @pytest.mark.parametrize("hosts", list(itertools.product("123", repeat=3)), ids="".join)
    def test_published_endpoints_differ(self, hosts, fields):
        """A job that ran under an earlier operator may have hostNetwork in its templates."""
        built = waiting(
            job().ps(1, **fields).worker(2, **fields).status(startTime="2030-01-01T00:00:00Z"), IPV4
        )
        given = built.build()
        pods = (
            msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, pod_ip=f"10.0.0.{host}"))
            for pod, host in zip(given.pods, hosts, strict=True)
        )
        stages = plan(msgspec.structs.replace(given, pods=tuple(pods))).stages
        published = [
            endpoint
            for action in itertools.chain(*stages)
            if isinstance(action, Create) and action.kind is Kind.CONFIG_MAP
            for name in ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS")
            for endpoint in action.manifest["data"][name].split(",")
        ]
        assert len(set(published)) == len(published) == (3 if len(set(hosts)) == 3 else 0)

    def test_a_pod_that_is_replaced_alone_does_not_start_either(self):
        built = snapshot(job().ps(1).worker(3).spec(withGloo=0)).pods_with_addresses().config()
        built.pods_running().formed().status(built.plan().status).waiting("worker", 2)
        assert plan(shared(built, 2)).stages == ()

    def test_a_job_that_has_started_goes_on(self):
        built = with_addresses(snapshot(job().worker(2)), "Running", RUNNING, IPV4).config({})
        assert plan(shared(built, 1)).status.phase == "Running"

    def test_names_are_never_shared(self):
        assert plan(shared(waiting(job().worker(2).spec(intranet="Service"), IPV4), 1)).stages

    def test_the_address_of_a_worker_that_is_done_may_be_given_again(self):
        built = waiting(job().ps(1).worker(2).spec(withGloo=0), IPV4).succeeded("worker", 0)
        given = shared(built, 1)
        [address] = {pod.status.pod_ip for pod in given.pods if "worker" in pod.metadata.name}
        [[config], *_] = plan(given).stages
        endpoints = config.manifest["data"]["PADDLE_TRAINER_ENDPOINTS"]
        assert endpoints == f"demo-worker-0.default:36000,{address}:36000"


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
    assert (network.settings("p"), network.required_settings(), len(network.ports(36000))) == (
        settings,
        forced,
        ports,
    )
    assert network.has_host_ports is any("hostPort" in port for port in network.ports(36000))
