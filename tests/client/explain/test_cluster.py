"""Which nodes are open to a pod, by the rules of the scheduler."""

from __future__ import annotations

import pytest

from paddlejob.client.explain.cluster import Cluster, largest_request
from paddlejob.client.explain.demand import demands
from simkube.build import job
from tests.client.explain.scene import node, pending, seen

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def is_open(pod, **of_node) -> bool:
    evidence = seen(pending(job().worker(1, pod=pod)), nodes=[node("a", **of_node)])
    (demand,) = demands(evidence)
    return bool(Cluster(evidence).open_nodes(demand))


def requiring(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def rule(operator, *values, key="cores"):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NAMED_A = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
NAMED_B = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        ([rule("In", "8", "16")], True),
        ([rule("In", "16")], False),
        ([rule("NotIn", "16")], True),
        ([rule("NotIn", "8")], False),
        ([rule("NotIn", "x", key="other")], True),
        ([rule("Exists")], True),
        ([rule("Exists", key="other")], False),
        ([rule("DoesNotExist")], False),
        ([rule("DoesNotExist", key="other")], True),
        ([rule("Gt", "4")], True),
        ([rule("Gt", "8")], False),
        ([rule("Lt", "9")], True),
        ([rule("Lt", "x")], False),
        ([rule("Gt", key="other")], False),
        ([rule("Unheard", "8")], False),
        ([rule("In", "16"), rule("In", "8")], True),
        ([{}], False),
        ([NAMED_A], True),
        ([NAMED_B], False),
    ],
)
def test_node_affinity(terms, wanted):
    assert is_open(requiring(*terms), labels={"cores": "8"}) is wanted


@pytest.mark.parametrize(
    ("toleration", "wanted"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations(toleration, wanted):
    assert is_open({"tolerations": [toleration]}, spec={"taints": [TAINT]}) is wanted


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_only_some_effects_keep_pods_away(effect):
    assert is_open({}, spec={"taints": [{**TAINT, "effect": effect}]}) is (effect == "PreferNoSchedule")


def test_a_cordoned_node_can_be_tolerated():
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert is_open({"tolerations": [toleration]}, spec={"unschedulable": True})
    assert not is_open({}, spec={"unschedulable": True})


def test_pods_are_packed_to_find_the_most_that_fit():
    evidence = seen(
        pending(job().worker(2, resources={"requests": {"cpu": 1}})),
        nodes=[node("a", cpu=3), node("b", cpu=2), node("c", cpu=0)],
    )
    (demand,) = demands(evidence)
    cluster = Cluster(evidence)
    free = cluster.free_room()
    assert cluster.place(free, demand, 3) == 3
    assert {name: amounts["cpu"] // 10**9 for name, amounts in free.items()} == {"a": 2, "b": 0, "c": 0}
    assert cluster.place(free, demand, 9) == 2


@pytest.mark.parametrize(
    ("free", "count", "wanted"),
    [
        ([8], 1, 8),
        ([8], 3, 2),
        ([4, 4], 3, 2),
        ([10, 3], 3, 3),
        ([10, 3], 4, 3),
        ([10, 3], 5, 2),
        ([1], 2, 0),
        ([0, -3], 1, 0),
        ([], 1, 0),
    ],
)
def test_the_largest_request_with_which_all_pods_fit(free, count, wanted):
    nodes = [{"cpu": each, "pods": 110} for each in free]
    assert largest_request(nodes, {"cpu": 99, "pods": 1}, "cpu", count) == wanted


def test_the_largest_request_respects_other_resources():
    nodes = [{"cpu": 12, "memory": 2}, {"cpu": 5, "memory": 9}]
    assert largest_request(nodes, {"cpu": 99, "memory": 1}, "cpu", 2) == 6
    assert largest_request(nodes, {"cpu": 99, "memory": 2}, "cpu", 2) == 5
    assert largest_request(nodes, {"cpu": 99, "memory": 3}, "cpu", 4) == 0
