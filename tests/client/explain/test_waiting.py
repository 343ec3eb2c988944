"""Jobs that do not run: one table, a line a cause."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

import pytest
from msgspec.structs import replace

from paddlejob.client.explain import Explanation, explain
from paddlejob.client.explain.evidence import Evidence
from paddlejob.testing.build import job, snapshot
from tests.client.explain.scene import (
    claim,
    event,
    gang,
    node,
    pending,
    quota,
    seen,
    unschedulable,
    waiting,
)


def cpu(amount, **more):
    return {"resources": {"requests": {"cpu": amount, **more}}}


def mounts(name):
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def tainted(name, **taint):
    return node(name, spec={"taints": [{"effect": "NoSchedule", **taint}]})


def refused(message, built=None, **around):
    """A job whose first worker the API server does not accept."""
    text = f"cannot create Pod demo-worker-0: {message}; retrying"
    return seen(pending(built or job().worker(1), text, "CreateFailed"), **around)


def placed(status, *, events=(), built=None):
    """A job whose only worker is on a node and does not start."""
    return seen(snapshot(pending(built or job().worker(1))).pod("worker", 0, status, node="a"), events=events)


def unplaced(built, message="0/1 nodes are available: 1 Insufficient cpu.", **around):
    """A job whose pods are there, without nodes; the scheduler says the same of all of them."""
    return seen(snapshot(pending(built)).pods(unschedulable(message)), **around)


def aged(evidence, seconds=60):
    """Let the pods be there for a while."""
    created = evidence.now - timedelta(seconds=seconds)
    pods = [replace(pod, metadata=replace(pod.metadata, creation_timestamp=created)) for pod in evidence.pods]
    return replace(evidence, pods=tuple(pods))


RETRYING_QUOTA = "exceeded quota: team-a, requested: cpu=2, used: cpu=3, limited: cpu=4"
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


@dataclass(frozen=True)
class Case:
    """What is seen, and what has to be said of it; all texts are regular expressions."""

    evidence: Evidence
    cause: str
    summary: str
    rank: str = "worker-0"
    details: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


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
        details=("counted without pods that were not read",),
    ),
    "too many pods on the node": Case(
        unplaced(job().worker(3), nodes=[node("a", pods=2)]),
        "NotEnoughRoom",
        "at most 2 of 3 workers fit now: the nodes take no more pods",
        advice=("replicas from 3 to 2",),
    ),
    "too little of two resources": Case(
        unplaced(job().worker(2, **cpu(4, memory="8Gi")), nodes=[node("a", memory="8Gi")]),
        "NotEnoughRoom",
        "at most 1 of 2 workers fit now: the nodes have too little cpu and memory",
        advice=("replicas from 2 to 1", "requests.cpu from 4 to 2 and .*requests.memory from 8Gi to 4Gi"),
    ),
    "enough of each resource, but on different nodes": Case(
        unplaced(
            job().worker(1, **cpu(4, memory="8Gi")),
            nodes=[node("a", memory="9Gi"), node("b", memory="9Gi")],
            used={"a": {"cpu": 1}, "b": {"memory": "2Gi"}},
        ),
        "NotEnoughRoom",
        "at most 0 of 1 worker fit now: no node has enough left of all that they request",
        advice=("requests.memory from 8Gi to 7Gi", "wait"),
    ),
    "workers beside servers, which are spread": Case(
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
        "no node is open to the worker: 1 node has the taint gpu=yes:NoSchedule",
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
        "1 node is in trouble",
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
    "a taint and a label": Case(
        unplaced(
            job().worker(1, pod={"nodeSelector": {"disk": "ssd"}}),
            nodes=[tainted("a", key="gpu", value="yes")],
        ),
        "NoMatchingNode",
        "no node is open",
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
        "no node for worker-0: 1 of 3 have the taint gpu=yes, 2 of 3 have too little cpu left$",
        advice=("tolerate gpu=yes", r"requests of cpu \(now 3\)"),
    ),
    "what the scheduler alone knows": Case(
        unplaced(
            job().worker(1),
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
            nodes=[node()],
        ),
        "Unschedulable",
        "1 of 1 have no room beside the pod's anti-affinity rules",
    ),
    "no scheduler of that name": Case(
        aged(
            seen(
                snapshot(pending(job().worker(1, pod={"schedulerName": "ghost"}))).pod("worker", 0),
                nodes=[node()],
            )
        ),
        "NoScheduler",
        "no scheduler has looked at worker-0 in 1m: its schedulerName is ghost",
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
    "a quota that cannot be seen": Case(
        refused(RETRYING_QUOTA),
        "QuotaExceeded",
        "quota team-a has no room for worker-0",
        details=("requested cpu=2, used cpu=3 of cpu=4",),
    ),
    "a quota that needs limits": Case(
        refused("failed quota: team-a: must specify limits.memory for: paddle"),
        "QuotaNeedsLimits",
        "must specify limits.memory for: paddle$",
    ),
    "Pod Security": Case(
        refused(
            'pods "demo-worker-0" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != '
            'true (pod or container "paddle" must set runAsNonRoot=true), seccompProfile (pod, too)'
        ),
        "PodSecurity",
        "Pod Security level restricted:latest does not allow worker-0",
        details=("^runAsNonRoot != true .*=true.$", "^seccompProfile"),
        advice=("run restricted",),
    ),
    "Pod Security and the host's network": Case(
        refused('violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'),
        "PodSecurity",
        "baseline:latest",
        advice=("set spec.intranet",),
    ),
    "a webhook that says no": Case(
        refused('admission webhook "policy.example.com" denied the request: no GPUs today'),
        "WebhookDenied",
        "admission webhook policy.example.com refuses worker-0: no GPUs today$",
    ),
    "a webhook that does not answer": Case(
        refused('Internal error: failed calling webhook "gone.example.com": Post "https://x": refused'),
        "WebhookDown",
        "admission webhook gone.example.com does not answer, so worker-0 is refused",
    ),
    "a policy that says no": Case(
        refused("ValidatingAdmissionPolicy 'no-latest' with binding 'all' denied request: no latest tag"),
        "PolicyDenied",
        "ValidatingAdmissionPolicy no-latest refuses worker-0: no latest tag$",
    ),
    "a ServiceAccount that does not exist": Case(
        refused('error looking up service account a/b: serviceaccount "b" not found'),
        "ServiceAccountNotFound",
        "worker-0 names ServiceAccount b, which does not exist",
        advice=("create ServiceAccount b",),
    ),
    "a LimitRange": Case(
        refused("maximum cpu usage per Container is 2, but limit is 4"),
        "LimitRange",
        "does not allow worker-0: maximum cpu usage per Container is 2, but limit is 4$",
    ),
    "rights that the operator lacks": Case(
        refused('User "system:serviceaccount:x:y" cannot create resource "pods" in API group ""'),
        "OperatorForbidden",
        "the operator may not create pods",
    ),
    "any other refusal": Case(refused("no"), "CreateFailed", "cannot create Pod demo-worker-0: no; retrying"),
    "a refused service": Case(
        seen(pending(job().worker(1), "cannot create Service demo-worker-0: no; retrying", "CreateFailed")),
        "CreateFailed",
        "cannot create Service",
        rank="",
    ),
    "a claim that does not exist": Case(
        unplaced(job().worker(1, pod=mounts("data")), claims=[]),
        "ClaimNotFound",
        "worker-0 mounts claim data, which does not exist",
        advice=("create the claim data in namespace default",),
    ),
    "a claim with another name": Case(
        unplaced(job().worker(1, pod=mounts("datas")), claims=[claim("data")]),
        "ClaimNotFound",
        "datas, which does not exist",
        advice=("use the claim data, which exists", "create"),
    ),
    "a claim without its class": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            claims=[claim("data", "Pending")],
            storage_classes=[{"metadata": {"name": "silver"}}],
        ),
        "ClaimNotBound",
        "claim data, which is not bound: there is no StorageClass gold",
        advice=("class gold, or recreate the claim with class silver",),
    ),
    "a claim without a class": Case(
        unplaced(
            job().worker(1, pod=mounts("data")), claims=[claim("data", "Pending", storageClassName=None)]
        ),
        "ClaimNotBound",
        "it names no StorageClass and the cluster has no default one",
    ),
    "a claim that cannot be provisioned": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            claims=[claim("data", "Pending")],
            storage_classes=[{"metadata": {"name": "gold"}, "volumeBindingMode": "Immediate"}],
            events=[event("data", "ProvisioningFailed", "out of disks")],
        ),
        "ClaimNotBound",
        "not bound: ProvisioningFailed: out of disks",
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
    "a lost claim": Case(
        unplaced(job().worker(1, pod=mounts("data")), claims=[claim("data", "Lost", volumeName="pv")]),
        "ClaimLost",
        "claim data has lost its volume pv",
    ),
    "a claim for one pod": Case(
        unplaced(
            job().worker(2, pod=mounts("data")), claims=[claim("data", accessModes=["ReadWriteOncePod"])]
        ),
        "ClaimInUse",
        "claim data is ReadWriteOncePod, but 2 pods of the job mount it",
    ),
    "a claim in use on another node": Case(
        seen(
            snapshot(pending(job().worker(1, pod=mounts("data")))).pod("worker", 0, node="b"),
            claims=[claim("data", accessModes=["ReadWriteOnce"])],
            events=[event("demo-worker-0", "FailedAttachVolume", 'Multi-Attach error for volume "pv"')],
        ),
        "ClaimInUse",
        "claim data is ReadWriteOnce and in use on another node than that of worker-0",
    ),
    "an image that does not exist": Case(
        placed(
            waiting("ImagePullBackOff", 'Back-off pulling image "paddle:test"'),
            events=[event("demo-worker-0", "Failed", 'Failed to pull image "paddle:test": not found')],
        ),
        "ImagePull",
        "worker-0 cannot pull image paddle:test: the registry has no such image",
    ),
    "an image that one may not have": Case(
        placed(waiting("ErrImagePull", "pull access denied, repository does not exist")),
        "ImagePull",
        "the registry denies access",
        advice=("imagePullSecrets",),
    ),
    "a registry that cannot be reached": Case(
        placed(waiting("ErrImagePull", "dial tcp: lookup r.example: no such host")),
        "ImagePull",
        "the registry cannot be reached from the node",
    ),
    "an image without a valid name": Case(
        placed(waiting("InvalidImageName", "couldn't parse")), "ImagePull", "its name is not valid"
    ),
    "a missing Secret": Case(
        placed(waiting("CreateContainerConfigError", 'secret "token" not found')),
        "SecretNotFound",
        "worker-0 needs Secret token, which does not exist",
        details=("worker-0 is on node a",),
        advice=("create Secret token",),
    ),
    "a missing key": Case(
        placed(waiting("CreateContainerConfigError", "couldn't find key a in ConfigMap default/settings")),
        "ConfigMapKeyNotFound",
        "worker-0 needs key a of ConfigMap settings",
    ),
    "a ConfigMap that cannot be mounted": Case(
        placed(
            waiting("ContainerCreating"),
            events=[event("demo-worker-0", "FailedMount", 'MountVolume.SetUp: configmap "x" not found')],
        ),
        "ConfigMapNotFound",
        "worker-0 needs ConfigMap x",
    ),
    "a volume that cannot be mounted": Case(
        placed(
            waiting("ContainerCreating"),
            events=[event("demo-worker-0", "FailedMount", "mount.nfs: timed out")],
        ),
        "FailedMount",
        "worker-0 cannot start on node a: FailedMount: mount.nfs: timed out",
    ),
    "a container that crashes": Case(
        placed(
            waiting(
                "CrashLoopBackOff",
                restartCount=3,
                lastState={"terminated": {"exitCode": 1, "message": "boom"}},
            )
        ),
        "CrashLoopBackOff",
        "worker-0: crashed 3 times, last with code 1: boom",
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


def checked(found: Explanation, case: Case) -> None:
    text = str(found)
    assert found.cause == case.cause, text
    assert re.search(case.summary, found.summary), text
    assert found.rank == case.rank, text
    for wanted in case.details:
        assert any(re.search(wanted, line) for line in found.findings[0].details), text
    if case.advice:
        told = [advice.text for advice in found.advice]
        assert len(told) == len(case.advice), text
        assert all(re.search(wanted, advice) for wanted, advice in zip(case.advice, told, strict=True)), text


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named(name):
    checked(explain(CASES[name].evidence), CASES[name])
