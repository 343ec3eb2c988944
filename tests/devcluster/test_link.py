from __future__ import annotations

import subprocess

import pytest

from devcluster.errors import DevclusterError
from devcluster.node.link import NUMBERS, Link, LinkTakenError, first_free


def test_host_node_and_pods_have_addresses_of_one_block():
    link = Link(7)
    assert (link.host_address, link.node_address) == ("10.250.7.1", "10.250.7.2")
    assert link.pod_range == "10.250.7.128/25"


def test_the_name_of_the_interface_fits_the_kernels_limit():
    assert max(len(Link(number).interface) for number in NUMBERS) <= 15


@pytest.mark.parametrize(
    ("routes", "number"),
    [
        pytest.param([], 0, id="a machine without routes"),
        pytest.param(["default", "192.0.2.0/24"], 0, id="other networks do not matter"),
        pytest.param(["10.250.0.0/30", "10.250.1.128/25"], 2, id="other clusters are left alone"),
        pytest.param(["10.250.0.1"], 1, id="a single address counts"),
        pytest.param(["10.250.0.0/20"], 16, id="a larger network hides many"),
    ],
)
def test_the_first_block_that_nothing_uses_is_chosen(routes, number):
    assert first_free([{"dst": route} for route in routes]) == Link(number)


def test_without_a_free_block_it_says_what_to_do():
    with pytest.raises(DevclusterError, match="devcluster down"):
        first_free([{"dst": "10.0.0.0/8"}])


def test_only_the_nodes_end_is_set_up_inside_the_machine():
    inside = [" ".join(command) for command in Link(7).commands(42) if command[0] == "nsenter"]
    assert all(command.startswith("nsenter --target=42 --net ip ") for command in inside)
    assert [command.split(" ip ")[1] for command in inside] == [
        "address add 10.250.7.2/30 dev eth0",
        "link set eth0 up",
        "link set lo up",
        "route add 10.96.0.0/16 via 10.250.7.1",
    ]


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        pytest.param("RTNETLINK answers: File exists", LinkTakenError, id="taken in between"),
        pytest.param("RTNETLINK answers: Operation not permitted", DevclusterError, id="refused"),
    ],
)
def test_what_the_kernel_says_is_told_apart(stderr, error, monkeypatch):
    answer = subprocess.CompletedProcess([], 2, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(error) as raised:
        Link(7).connect(42)
    assert type(raised.value) is error
