"""Which nodes are open to a pod, by the rules of the scheduler."""

from __future__ import annotations

import pytest

from paddlejob.client.explain.cluster import Cluster, needs_of, spread, take
from paddlejob.client.explain.demand import demands
from paddlejob.testing.build import job
from tests.client.explain.scene import node, pending, seen

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def is_open(pod, **of_node) -> bool:
    evidence = seen(pending(job().worker(1, pod=pod)), nodes=[node("a", **of_node)])
    (demand,) = demands(evidence)
    nodes = Cluster(evidence)
    return bool(nodes.open_to(demand, nodes.rooms().values()))


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


def rooms(**amounts):
    evidence = seen(
        pending(job().worker(2, resources={"requests": {"cpu": 1}})),
        nodes=[node(name, cpu=cpu) for name, cpu in amounts.items()],
    )
    (demand,) = demands(evidence)
    return needs_of(demand), Cluster(evidence).rooms()


def free(of) -> dict[str, int]:
    return {name: room.free["cpu"] // 10**9 for name, room in of.items()}


def test_pods_are_packed_to_find_the_most_that_fit():
    needs, nodes = rooms(a=3, b=2, c=0)
    assert take(nodes.values(), needs, 3) == 3
    assert free(nodes) == {"a": 2, "b": 0, "c": 0}
    assert take(nodes.values(), needs, 9) == 2


def test_pods_are_spread_as_a_scheduler_does():
    needs, nodes = rooms(a=3, b=2, c=0)
    spread(nodes.values(), needs, 3)
    assert free(nodes) == {"a": 1, "b": 1, "c": 0}
    spread(nodes.values(), needs, 9)
    assert free(nodes) == {"a": 0, "b": 0, "c": 0}
