"""Each cause on a real API server with a real scheduler; the advice is followed, and the job runs."""

from __future__ import annotations

import pytest

from paddlejob.client.explain.gather import LIMIT_RANGES
from paddlejob.kube.resource import NAMESPACES
from simkube.build import job
from tests.gang.explain_scene import Case, Scene, an_hdd_node, cpu, mounting
from tests.gang.nodes import Nodes
from tests.operator.gang_stage import GangStage

pytestmark = pytest.mark.gang

CPU_FIELD = "spec.worker.template.spec.containers[0].resources.requests.cpu"

LIMIT_FIELD = "spec.worker.template.spec.containers[0].resources.limits.cpu"


async def two_small_nodes(scene: Scene) -> None:
    scene.nodes.add(4)
    scene.nodes.add(4)


async def one_closed_node(scene: Scene) -> None:
    scene.nodes.add(4, taints=[{"key": "team", "value": "b", "effect": "NoSchedule"}])


async def one_cordoned_node(scene: Scene) -> None:
    scene.nodes.add(4, unschedulable=True)


async def a_quota_of_cpus(scene: Scene) -> None:
    scene.nodes.add(16)
    await scene.quota(requests_cpu="5")


async def a_quota_of_pods(scene: Scene) -> None:
    scene.nodes.add(16)
    await scene.quota(pods="2")


async def a_quota_of_limits(scene: Scene) -> None:
    scene.nodes.add(16)
    await scene.quota(limits_cpu="4", requests_cpu="3")


async def a_claim_with_another_name(scene: Scene) -> None:
    scene.nodes.add(4)
    await scene.claim("dataset")


async def a_restricted_namespace(scene: Scene) -> None:
    scene.nodes.add(4)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await scene.stage.client.patch(NAMESPACES, None, scene.stage.namespace, {"metadata": {"labels": labels}})


async def a_limit_range(scene: Scene) -> None:
    scene.nodes.add(16)
    await scene.create(LIMIT_RANGES, "small", {"limits": [{"type": "Container", "max": {"cpu": "2"}}]})


SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
REQUIRED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [SSD]}]}
}

CASES = {
    "nodes too full": Case(
        job().worker(3, **cpu(3)),
        two_small_nodes,
        "NotEnoughRoom",
        "at most 2 of 3 workers fit now: the nodes have too little cpu",
        ("lower spec.worker.replicas from 3 to 2", f"lower {CPU_FIELD} from 3 to 2"),
    ),
    "nodes too full for servers and workers": Case(
        job().ps(2, **cpu(2)).worker(2, **cpu(3)),
        two_small_nodes,
        "NotEnoughRoom",
        "at most 0 of 2 workers fit now: the nodes have too little cpu",
        (f"lower {CPU_FIELD} from 3 to 2",),
    ),
    "a gang for which nodes are too full": Case(
        job().worker(3, **cpu(3)),
        two_small_nodes,
        "NotEnoughRoom",
        "at most 2 of 3 workers fit now: the nodes have too little cpu",
        ("lower spec.worker.replicas from 3 to 2", f"lower {CPU_FIELD} from 3 to 2"),
        scheduling="native",
    ),
    "nodes too small": Case(
        job().worker(2, **cpu(64)),
        two_small_nodes,
        "NodeTooSmall",
        "no node has cpu 64 for a worker: the largest has 4",
        (f"lower {CPU_FIELD} from 64 to 4",),
    ),
    "a taint": Case(
        job().worker(2, **cpu(1)),
        one_closed_node,
        "NoMatchingNode",
        "no node accepts the 2 workers: 1 node has the taint team=b:NoSchedule",
        ("let the worker tolerate team=b:NoSchedule",),
    ),
    "a cordoned node": Case(
        job().worker(1),
        one_cordoned_node,
        "NoMatchingNode",
        "no node accepts the worker: 1 node is cordoned",
        ("uncordon node-",),
    ),
    "a nodeSelector": Case(
        job().worker(1, pod={"nodeSelector": {"disk": "ssd"}}),
        an_hdd_node,
        "NoMatchingNode",
        "no node accepts the worker: 1 node has no label disk=ssd",
        ("remove disk from spec.worker.template.spec.nodeSelector",),
    ),
    "node affinity": Case(
        job().worker(1, pod={"affinity": {"nodeAffinity": REQUIRED}}),
        an_hdd_node,
        "NoMatchingNode",
        "no node accepts the worker: 1 node does not match its node affinity",
        ("remove the required nodeAffinity from spec.worker.template.spec",),
    ),
    "a quota of cpus": Case(
        job().worker(3, **cpu(2)),
        a_quota_of_cpus,
        "QuotaExceeded",
        "quota team-a has requests.cpu 1 of 5 left, but 1 worker to be created needs 2",
        (
            f"lower {CPU_FIELD} from 2 to 1600m",
            "lower spec.worker.replicas from 3 to 2",
            "raise the quota: requests.cpu of team-a from 5 to 6",
        ),
    ),
    "a quota of limits and requests": Case(
        job().worker(2, resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}),
        a_quota_of_limits,
        "QuotaExceeded",
        "quota team-a has limits.cpu 0 of 4 left, but 1 worker to be created needs 4",
        (
            "lower spec.worker.replicas from 2 to 1",
            f"lower {LIMIT_FIELD} from 4 to 2 and {CPU_FIELD} from 2 to 1500m",
            "raise the quota: limits.cpu of team-a from 4 to 8",
        ),
    ),
    "a quota of pods": Case(
        job().worker(3),
        a_quota_of_pods,
        "QuotaExceeded",
        "quota team-a has pods 0 of 2 left, but 1 worker to be created needs 1",
        ("lower spec.worker.replicas from 3 to 2", "raise the quota: pods of team-a from 2 to 3"),
    ),
    "a claim that does not exist": Case(
        job().worker(1, pod=mounting("datasets")),
        a_claim_with_another_name,
        "ClaimNotFound",
        "worker-0 mounts claim datasets, which does not exist",
        ("use the claim dataset, which exists",),
    ),
    "Pod Security": Case(
        job().worker(1),
        a_restricted_namespace,
        "PodSecurity",
        "the namespace's Pod Security level restricted:latest does not allow worker-0",
        ("run the worker as a non-root user",),
    ),
    "a ServiceAccount that does not exist": Case(
        job().worker(1, pod={"serviceAccountName": "ghost"}),
        two_small_nodes,
        "ServiceAccountNotFound",
        "worker-0 names ServiceAccount ghost, which does not exist",
        ("remove spec.worker.template.spec.serviceAccountName",),
    ),
    "a PriorityClass that does not exist": Case(
        job().worker(1, pod={"priorityClassName": "ghost"}),
        two_small_nodes,
        "PriorityClassNotFound",
        "worker-0 names PriorityClass ghost, which does not exist",
        ("remove spec.worker.template.spec.priorityClassName",),
    ),
    "a LimitRange": Case(
        job().worker(1, **cpu(4)),
        a_limit_range,
        "LimitRange",
        "worker-0 requests more cpu than the limit 2 that a LimitRange gives it",
        (f"lower {CPU_FIELD} from 4 to 2",),
    ),
}


@pytest.mark.parametrize(
    ("name", "chosen"),
    [(name, number) for name, case in CASES.items() for number in range(len(case.advice))],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_the_advice_makes_the_job_run(perform, nodes: Nodes, name: str, chosen: int) -> None:
    case = CASES[name]

    async def act(stage: GangStage) -> None:
        scene = Scene(stage, nodes)
        await case.prepare(scene)
        await stage.submit(case.job)
        found = await scene.explained(case)
        applicable = [advice for advice in found.advice if advice.change]
        pairs = zip(applicable, case.advice, strict=True)
        assert all(advice.text.startswith(start) for advice, start in pairs)
        await scene.follow(applicable[chosen])
        await stage.phase("Running")

    perform(act, case.scheduling)
