from __future__ import annotations

import random
from collections import Counter
from typing import Any

from simkube.kubelet.node_pool import NodePool


def pod(uid: str, *, host_port: int = 0, **spec: Any) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": host_port}] if host_port else []
    return {"metadata": {"uid": uid}, "spec": {"containers": [{"name": "c", "ports": ports}], **spec}}


def pool(count: int = 3, **options: Any) -> NodePool:
    return NodePool([f"n{number}" for number in range(count)], rng=random.Random(0), **options)


def test_pods_are_spread() -> None:
    nodes = pool()
    placed = [nodes.place(pod(f"{number}")) for number in range(9)]
    assert Counter(place.node for place in placed if place) == {"n0": 3, "n1": 3, "n2": 3}


def test_every_address_is_given_once() -> None:
    nodes = pool()
    addresses = [nodes.place(pod(f"{number}")) for number in range(600)]
    assert len({place.pod_address for place in addresses if place}) == 600
    nodes.release("0")
    again = nodes.place(pod("600"))
    assert again is not None
    assert again.pod_address not in {place.pod_address for place in addresses if place}


def test_addresses_can_be_of_ipv6() -> None:
    place = pool(ip_family="IPv6").place(pod("a"))
    assert place is not None
    assert (place.pod_address, place.node_address.startswith("fd00:18::")) == ("fd00:244::1", True)


def test_a_pod_on_the_host_network_has_the_address_of_its_node() -> None:
    place = pool().place(pod("a", hostNetwork=True))
    assert place is not None
    assert place.pod_address == place.node_address


def test_one_host_port_is_once_on_a_node() -> None:
    nodes = pool(2)
    first, second = nodes.place(pod("a", host_port=80)), nodes.place(pod("b", host_port=80))
    assert first is not None
    assert second is not None
    assert first.node != second.node
    assert nodes.place(pod("c", host_port=80)) is None
    assert nodes.place(pod("d", host_port=81)) is not None
    nodes.release("a")
    again = nodes.place(pod("c", host_port=80))
    assert again is not None
    assert again.node == first.node


def test_a_full_node_takes_no_more() -> None:
    nodes = pool(1, pods_per_node=2)
    assert nodes.place(pod("a"))
    assert nodes.place(pod("b"))
    assert nodes.place(pod("c")) is None


def test_a_bound_pod_stays_where_it_is_with_its_address() -> None:
    bound = {**pod("a", nodeName="n2"), "status": {"podIP": "10.244.0.1"}}
    nodes = pool()
    nodes.notice(bound)
    place = nodes.place(bound)
    assert place is not None
    assert (place.node, place.pod_address) == ("n2", "10.244.0.1")
    other = nodes.place(pod("b"))
    assert other is not None
    assert other.pod_address == "10.244.0.2"
