"""Jobs that have no room: on nodes, in quotas, in queues; a line a cause."""

from __future__ import annotations

import pytest

from paddlejob.client.explain import explain
from simkube.build import job, snapshot
from tests.client.explain.scene import (
    Case,
    aged,
    check,
    claim,
    cpu,
    gang,
    mounts,
    node,
    pending,
    quota,
    seen,
    tainted,
    unplaced,
    workload,
)

NO_ROOM_IN_QUEUE = (
    "waiting in Kueue's queue team-a: couldn't assign flavors to pod set worker: "
    "insufficient unused quota for cpu in flavor default, 3 more needed"
)
NEVER_IN_QUEUE = (
    "waiting in Kueue's queue team-a: couldn't assign flavors to pod set worker: insufficient quota for cpu "
    "in flavor default, previously considered podsets requests (2) + current podset request (6) > maximum "
    "capacity (5)"
)
LOCAL_QUEUE = {
    "metadata": {"name": "team-a"},
    "spec": {"clusterQueue": "all"},
    "status": {"pendingWorkloads": 3, "admittedWorkloads": 2},
}
VOLCANO_QUEUE = {
    "metadata": {"name": "research"},
    "spec": {"capability": {"cpu": "8"}},
    "status": {"state": "Open", "allocated": {"cpu": "6"}},
}
AFFINITY = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
            }
        }
    }
}
LOCAL_VOLUME = {
    "metadata": {"name": "pv"},
    "spec": {
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "host", "operator": "In", "values": ["b"]}]}
                ]
            }
        }
    },
}

CASES = {
    "no room, and fewer would fit": Case(
        unplaced(job().worker(3, **cpu(3)), nodes=[node("a"), node("b")]),
        "NotEnoughRoom",
        "at most 2 of 3 workers fit now: the nodes have too little cpu",
        details=("each worker requests cpu 3", "node a has cpu 4 of 4 free"),
        advice=("replicas from 3 to 2", "requests.cpu from 3 to 2"),
    ),
    "no room beside the pods of others": Case(
        unplaced(job().worker(2, **cpu(2)), nodes=[node("a")], used={"a": {"cpu": "3", "pods": 3}}),
        "NotEnoughRoom",
        "at most 0 of 2 workers fit now",
        details=("node a has cpu 1 of 4 free", "would fit if other pods did not use the nodes"),
        advice=("requests.cpu from 2 to 500m", "wait until other pods"),
    ),
    "no room, as far as one's own pods show": Case(
        unplaced(job().worker(2, **cpu(4)), nodes=[node("a")], sees_all_pods=False),
        "NotEnoughRoom",
        "at most 1 of 2 workers",
        details=("pods that could not be read are not counted",),
    ),
    "too many pods on the node": Case(
        unplaced(job().worker(3), nodes=[node("a", pods=2)]),
        "NotEnoughRoom",
        "at most 2 of 3 workers fit now: the nodes have reached their pod limit",
        advice=("replicas from 3 to 2",),
    ),
    "too little of two resources": Case(
        unplaced(job().worker(2, **cpu(4, memory="8Gi")), nodes=[node("a", memory="8Gi")]),
        "NotEnoughRoom",
        "at most 1 of 2 workers fit now: the nodes have too little cpu and memory",
        advice=("replicas from 2 to 1", "lower the cpu and memory requests of each worker"),
    ),
    "enough of each resource, but on different nodes": Case(
        unplaced(
            job().worker(1, **cpu(4, memory="8Gi")),
            nodes=[node("a", memory="9Gi"), node("b", memory="9Gi")],
            used={"a": {"cpu": 1}, "b": {"memory": "2Gi"}},
        ),
        "NotEnoughRoom",
        "at most 0 of 1 worker fit now: no node has enough left of everything that they request",
        advice=("requests.memory from 8Gi to 7Gi", "wait"),
    ),
    "workers beside servers that wait too": Case(
        unplaced(job().ps(2, **cpu(2)).worker(2, **cpu(4)), nodes=[node("a"), node("b")]),
        "NotEnoughRoom",
        "at most 1 of 2 workers",
        advice=("replicas from 2 to 1", "spec.worker.*requests.cpu from 4 to 2"),
    ),
    "a pod too large for any node": Case(
        unplaced(job().worker(1, **cpu(64)), nodes=[node("a"), node("b", cpu=8)]),
        "NodeTooSmall",
        "no node has cpu 64 for a worker: the largest has 8",
        advice=("requests.cpu from 64 to 8",),
    ),
    "processors that were meant as millis": Case(
        unplaced(job().worker(1, **cpu("1000")), nodes=[node("a")]),
        "NodeTooSmall",
        "no node has cpu 1k for a worker: the largest has 4",
        details=("cpu 1000 means 1000 processors; 1000m would be 1$",),
        advice=("requests.cpu from 1k to 4",),
    ),
    "a resource that no node has": Case(
        unplaced(job().worker(1, resources={"limits": {"nvidia.com/gpu": 1}}), nodes=[node("a")]),
        "NodeTooSmall",
        "no node has nvidia.com/gpu 1 for a worker: no node offers it",
        advice=("add nodes",),
    ),
    "fewer of an extended resource": Case(
        unplaced(
            job().worker(1, resources={"limits": {"nvidia.com/gpu": 8}}),
            nodes=[node(**{"nvidia.com/gpu": 4})],
        ),
        "NodeTooSmall",
        "no node has nvidia.com/gpu 8 for a worker: the largest has 4",
        advice=("limits.nvidia.com/gpu from 8 to 4",),
    ),
    "a server that does not fit": Case(
        unplaced(job().ps(2, **cpu(4)).worker(1, **cpu(4)), nodes=[node("a"), node("b")]),
        "NotEnoughRoom",
        "at most 0 of 1 worker fit now",
        advice=("add nodes|tolerate|requests",),
    ),
    "a taint": Case(
        unplaced(job().worker(1), nodes=[tainted("a", key="gpu", value="yes")]),
        "NoMatchingNode",
        "no node accepts the worker: 1 node has the taint gpu=yes:NoSchedule",
        advice=("tolerate gpu=yes:NoSchedule",),
    ),
    "a taint without a value": Case(
        unplaced(job().worker(1), nodes=[tainted("a", key="gpu")]),
        "NoMatchingNode",
        "1 node has the taint gpu:NoSchedule",
        advice=("tolerate gpu:NoSchedule",),
    ),
    "a taint that Kubernetes sets": Case(
        unplaced(job().worker(1), nodes=[tainted("a", key="node.kubernetes.io/disk-pressure")]),
        "NoMatchingNode",
        "1 node is not healthy",
        advice=("add nodes",),
    ),
    "a cordoned node": Case(
        unplaced(job().worker(1), nodes=[node("a", spec={"unschedulable": True})]),
        "NoMatchingNode",
        "1 node is cordoned",
        advice=("uncordon a",),
    ),
    "a label that no node has": Case(
        unplaced(job().worker(1, pod={"nodeSelector": {"disk": "ssd"}}), nodes=[node("a"), node("b")]),
        "NoMatchingNode",
        "2 nodes have no label disk=ssd",
        advice=("remove disk from spec.worker.template.spec.nodeSelector, or give nodes the label disk=ssd",),
    ),
    "node affinity": Case(
        unplaced(job().worker(1, pod=AFFINITY), nodes=[node("a")]),
        "NoMatchingNode",
        "1 node does not match its node affinity",
        advice=("remove the required nodeAffinity",),
    ),
    "a taint and a label": Case(
        unplaced(
            job().worker(1, pod={"nodeSelector": {"disk": "ssd"}}),
            nodes=[tainted("a", key="gpu", value="yes")],
        ),
        "NoMatchingNode",
        "no node accepts the worker",
        advice=("tolerate gpu=yes:NoSchedule and remove disk",),
    ),
    "a volume that lives elsewhere": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            nodes=[node("a")],
            claims=[claim("data", volumeName="pv")],
            volumes=[LOCAL_VOLUME],
        ),
        "NoMatchingNode",
        "1 node cannot reach the volume of claim data",
    ),
    "no nodes": Case(
        unplaced(job().worker(1), nodes=[]), "NoNodes", "the cluster has no nodes", advice=("add a node",)
    ),
    "nodes that cannot be seen": Case(
        unplaced(
            job().worker(2, **cpu(3)),
            "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, 2 Insufficient cpu. "
            "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
        ),
        "Unschedulable",
        "no node for worker-0: 1 of 3 nodes have the taint gpu=yes, 2 of 3 nodes have too little cpu left$",
        advice=("tolerate gpu=yes", r"lower the cpu request of each worker \(now 3\)"),
    ),
    "what the scheduler alone knows": Case(
        unplaced(
            job().worker(1),
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
            nodes=[node()],
        ),
        "Unschedulable",
        "1 of 1 nodes are ruled out by the pod's anti-affinity",
    ),
    "no scheduler of that name": Case(
        aged(
            seen(
                snapshot(pending(job().worker(1, pod={"schedulerName": "ghost"}))).pod("worker", 0),
                nodes=[node()],
            )
        ),
        "NoScheduler",
        "no scheduler has looked at worker-0 in 60s: its schedulerName is ghost",
        advice=("check that a scheduler called ghost runs",),
    ),
    "a quota": Case(
        seen(
            pending(job().worker(3, **cpu(2))), quotas=[quota({"cpu": 5}, {"cpu": 1})], nodes=[node(cpu=99)]
        ),
        "QuotaExceeded",
        "quota team-a has cpu 4 of 5 left, but 3 workers to be created need 6",
        details=("the whole job needs 6 and uses 0; others use 1",),
        advice=(
            "replicas from 3 to 2",
            "requests.cpu from 2 to 1300m",
            "raise the quota: cpu of team-a from 5 to 7",
        ),
    ),
    "a quota that is used up": Case(
        seen(pending(job().worker(1, **cpu(2))), quotas=[quota({"cpu": 5}, {"cpu": 6})]),
        "QuotaExceeded",
        "quota team-a has cpu 0 of 5 left, but 1 worker to be created needs 2",
        advice=("from 5 to 8",),
    ),
    "a quota of best effort pods": Case(
        seen(pending(job().worker(2)), quotas=[quota({"pods": 1}, scopes=["BestEffort"])]),
        "QuotaExceeded",
        "quota team-a has pods 1 of 1 left, but 2 workers to be created need 2",
    ),
    "a quota for the pods of others": Case(
        seen(
            pending(job().worker(2, **cpu(1))),
            quotas=[
                quota({"pods": 1}, scopes=["BestEffort"]),
                quota(
                    {"pods": 1},
                    scopeSelector={
                        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]
                    },
                ),
            ],
        ),
        "WaitingForPods",
        "waiting",
    ),
    "a quota that counts the defaults of a LimitRange": Case(
        seen(
            pending(job().worker(2)),
            quotas=[quota({"limits.memory": "1Gi"})],
            limit_ranges=[
                {
                    "metadata": {},
                    "spec": {"limits": [{"type": "Container", "default": {"memory": "1Gi"}}]},
                }
            ],
        ),
        "QuotaExceeded",
        "quota team-a has limits.memory 1Gi of 1Gi left, but 2 workers to be created need 2Gi",
        advice=("replicas from 2 to 1", "limits.memory from 1Gi to 512Mi", "from 1Gi to 2Gi"),
    ),
    "a claim that waits for its pod": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            claims=[claim("data", "Pending")],
            storage_classes=[{"metadata": {"name": "gold"}, "volumeBindingMode": "WaitForFirstConsumer"}],
            nodes=[node("a", cpu=0, pods=0)],
        ),
        "NodeTooSmall",
        "pods 1",
    ),
    "a queue of Volcano that is full": Case(
        seen(
            pending(job().worker(4, **cpu(1)), "waiting for PodGroup demo: Pending", "WaitingForGang"),
            gang=gang(
                "volcano",
                {"minMember": 4, "minResources": {"cpu": "4"}, "queue": "research"},
                {"phase": "Pending"},
                volcano_queue=VOLCANO_QUEUE,
            ),
        ),
        "WaitingForGang",
        "waiting for PodGroup demo: Pending",
        details=("minMember 4, minResources cpu 4", "queue research: cpu 6 of 8 in use, the gang needs 4"),
        advice=("replicas from 4 to 2", "requests.cpu from 1 to 500m", "wait until other jobs"),
    ),
    "a queue of Kueue that is full": Case(
        seen(
            pending(job().ps(1, **cpu(1)).worker(5, **cpu(1)), NO_ROOM_IN_QUEUE, "WaitingForGang"),
            gang=gang("kueue", {"queueName": "team-a"}, local_queue=LOCAL_QUEUE),
        ),
        "WaitingForGang",
        "insufficient unused quota for cpu",
        rank="ps-0",
        details=("LocalQueue team-a of ClusterQueue all: 3 pending, 2 admitted",),
        advice=("spec.worker.replicas from 5 to 2", "requests.cpu from 1 to 400m", "wait"),
    ),
    "a queue of Kueue with others before the job": Case(
        seen(
            pending(job().worker(1), "waiting in Kueue's queue team-a", "WaitingForGang"),
            gang=gang(
                "kueue",
                {"queueName": "team-a"},
                local_queue=LOCAL_QUEUE,
                pending=[
                    *(workload(f"w-{n}", n, n + 3, owner=f"job-{n}" if n else "") for n in range(5)),
                    workload("demo", 5, 8),
                    workload("later", 6, 9),
                ],
            ),
        ),
        "WaitingForGang",
        "waiting in Kueue's queue team-a",
        details=(
            r"^behind 5 in LocalQueue team-a \(Workload w-0, Job job-1, Job job-2 and 2 more\)$",
            "^behind 8 in ClusterQueue all$",
        ),
    ),
    "a job that is next in a queue of Kueue": Case(
        seen(
            pending(job().worker(1), "waiting in Kueue's queue team-a", "WaitingForGang"),
            gang=gang(
                "kueue",
                {"queueName": "team-a"},
                local_queue=LOCAL_QUEUE,
                pending=[workload("demo", 0, 0), workload("later", 1, 1)],
            ),
        ),
        "WaitingForGang",
        "waiting in Kueue's queue team-a",
        details=("^next in LocalQueue team-a$", "^next in ClusterQueue all$"),
    ),
    "a queue of Kueue that is too small": Case(
        seen(
            pending(job().ps(1, **cpu(2)).worker(3, **cpu(2)), NEVER_IN_QUEUE, "WaitingForGang"),
            gang=gang("kueue", {"queueName": "team-a"}, local_queue=LOCAL_QUEUE),
        ),
        "WaitingForGang",
        "maximum capacity",
        rank="ps-0",
        advice=("requests.cpu from 2 to 1$", "spec.worker.replicas from 3 to 1", "a larger queue"),
    ),
    "a queue of Kueue that does not exist": Case(
        seen(
            pending(job().worker(1), "waiting in Kueue's queue x", "WaitingForGang"),
            gang=gang("kueue", {"queueName": "x"}),
        ),
        "WaitingForGang",
        "waiting in Kueue's queue x",
        details=("LocalQueue x does not exist",),
        advice=("create LocalQueue x",),
    ),
    "a gang of Kubernetes": Case(
        unplaced(
            job().worker(2, **cpu(3)),
            nodes=[node("a")],
            gang=gang("native", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        ),
        "NotEnoughRoom",
        "at most 1 of 2 workers",
        details=("the scheduler starts 2 pods of the job together or none",),
    ),
    "nothing that is known": Case(
        seen(pending(job().worker(1), "waiting for 1 of 1 pods to start")),
        "WaitingForPods",
        "waiting for 1 of 1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named(name):
    check(CASES[name])


def test_a_lowered_request_is_a_patch_of_its_field():
    found = explain(unplaced(job().worker(3, **cpu(3)), nodes=[node("a"), node("b")]))
    path = "/spec/worker/template/spec/containers/0/resources/requests/cpu"
    assert found.advice[1].change.patch == ({"op": "add", "path": path, "value": "2"},)


def test_a_default_of_a_limit_range_has_no_field_to_patch():
    lowered = explain(CASES["a quota that counts the defaults of a LimitRange"].evidence).advice[1]
    assert "limits.memory from 1Gi to 512Mi" in lowered.text
    assert lowered.change is None
