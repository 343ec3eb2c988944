from __future__ import annotations

from e2e.images import RESNET, WIDE_AND_DEEP
from e2e.jobs import Space, collective, with_environment
from paddlejob.api import names


def test_a_worker_trains_in_the_network_of_its_node(space: Space) -> None:
    body = collective("host", RESNET, ["python3", "train_fleet.py"], intranet="Host")
    job = space.submit(with_environment(body, {"EPOCHS": 1}))
    job.await_phase("Running")
    (pod,) = job.pods()
    assert pod["spec"]["hostNetwork"]
    assert pod["status"]["podIP"] == pod["status"]["hostIP"]
    ports = {port["hostPort"] for port in pod["spec"]["containers"][0]["ports"]}
    first, last = names.HOST_PORT_RANGE
    assert ports <= set(range(first, last + 1))
    job.await_phase("Completed", within_seconds=300)


def test_two_workers_with_the_same_ports_never_share_a_node(space: Space) -> None:
    job = space.submit(collective("host", WIDE_AND_DEEP, ["sleep", "600"], replicas=2, intranet="Host"))
    job.await_message("didn't have free ports")
