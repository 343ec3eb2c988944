"""The rules of the simulation, broken on purpose: a rule that nothing can break says nothing."""

from __future__ import annotations

import pytest

from paddlejob.testing.kubelet.pod_worker import ContainerStart
from sim.invariants import BrokenInvariantError, check_start


def start(servers: str, host: str, *, own: str = "") -> ContainerStart:
    """Return the start of a job's first server, with the given list of servers and address of its own."""
    environment = {
        "TRAINING_ROLE": "PSERVER",
        "POD_IP": host,
        "PADDLE_PORT": "36000",
        "PADDLE_CURRENT_ENDPOINT": own or f"{host}:36000",
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.9:36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": servers,
    }
    return ContainerStart("default", "demo-ps-0", "uid", "paddle", 0, 0.0, host, environment)


@pytest.mark.parametrize("host", ["10.0.0.1", "demo-ps-0.default"])
def test_a_server_that_finds_itself_holds(host):
    check_start(start(f"{host}:36000", host))


BROKEN = {
    "brackets in the list alone": (start("[fd00::1]:36000", "fd00::1"), "is not number 0 of"),
    "brackets in the own endpoint alone": (
        start("fd00::1:36000", "fd00::1", own="[fd00::1]:36000"),
        r"\[fd00::1\]:36000 is not fd00::1:36000",
    ),
    "brackets everywhere": (start("[fd00::1]:36000", "[fd00::1]"), "cannot tell the hosts"),
    "no brackets anywhere": (start("fd00::1:36000", "fd00::1"), "cannot tell the hosts"),
    "a host twice": (start("10.0.0.1:36000,10.0.0.1:36001", "10.0.0.1"), "cannot tell the hosts"),
}


@pytest.mark.parametrize(("given", "complaint"), BROKEN.values(), ids=BROKEN.keys())
def test_it_breaks_with(given, complaint):
    with pytest.raises(BrokenInvariantError, match=complaint):
        check_start(given)
