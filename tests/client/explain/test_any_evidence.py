"""Whatever is in the objects, an explanation is a few lines of text, and JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlejob.api.pod import Pod
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import PaddleJob
from paddlejob.client.events import EventView
from paddlejob.client.explain import explain, objects
from paddlejob.client.explain.evidence import Evidence, GangEvidence
from paddlejob.core.gang.model import GangSystem
from simkube.build import NOW

WORDS = st.sampled_from(
    [
        "",
        "worker",
        "ps-0",
        "data",
        "demo",
        "\x1b[31m",
        "0/3 nodes are available: 2 Insufficient cpu, 1 x.",
        "0/99999999999999999999 nodes are available: 9999999999999999999 Insufficient cpu.",
        "cannot create Pod demo-worker-0: exceeded quota: q, requested: cpu=1, used: cpu=1, limited: cpu=1",
        'cannot create Pod demo-worker-0: violates PodSecurity "restricted": a (b), c',
        "cannot create Pod demo-worker-0: must be less than or equal to cpu limit of x",
        "pod set worker: insufficient unused quota for cpu in flavor f, 9e99 more needed",
        "insufficient quota for cpu in flavor f, x > maximum capacity (-3)",
        'secret "x" not found',
        "{0} {1} No module named 'a'",
    ]
) | st.text(max_size=20)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "requests.cpu", "limits.cpu", "example.com/gpu", "x"]),
    st.sampled_from(["1", "0", "-1", "4Gi", "500m", "9e99", "1n", "nonsense", 3, 0.5]),
    max_size=4,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
CONTAINER = st.fixed_dictionaries(
    {
        "name": WORDS,
        "image": WORDS,
        "resources": st.fixed_dictionaries({"requests": AMOUNTS, "limits": AMOUNTS}),
    }
)
POD_SPEC = JSON | st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, max_size=2)},
    optional={
        "initContainers": st.lists(CONTAINER, max_size=1),
        "nodeSelector": st.dictionaries(WORDS, WORDS, max_size=2),
        "tolerations": st.lists(
            st.dictionaries(st.sampled_from(["key", "operator", "value"]), WORDS), max_size=2
        ),
        "volumes": st.just([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]) | JSON,
        "affinity": JSON,
        "serviceAccountName": JSON,
    },
)
TEMPLATE = st.fixed_dictionaries({"spec": POD_SPEC}) | st.dictionaries(WORDS, JSON, max_size=2)
ROLE = st.fixed_dictionaries(
    {"replicas": st.sampled_from([-1, 0, 1, 2, 5, 2**31 - 1]), "template": TEMPLATE},
    optional={"requests": st.integers(0, 3)},
)
TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
PHASES = ["", "Pending", "Starting", "Running", "Restarting", "Scaling", "Suspended", "Completed", "Failed"]
REASONS = ["CreateFailed", "WaitingForGang", "WaitingForPods", "InvalidSpec", "WaitingToRestart", ""]
STATUS = st.fixed_dictionaries(
    {"phase": st.sampled_from(PHASES), "reason": st.sampled_from(REASONS), "message": WORDS},
    optional={
        "retryTime": TIMES,
        "startTime": TIMES,
        "workers": st.integers(-1, 3),
        "succeededWorkers": WORDS,
        "lastFailure": st.fixed_dictionaries(
            {
                "pod": st.sampled_from(["demo-worker-0", "x", ""]),
                "reason": st.sampled_from(["OOMKilled", "Error", ""]),
                "exitCode": st.sampled_from([0, 1, 137, 300]),
                "message": WORDS,
            }
        ),
    },
)
JOB = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("demo"), "namespace": st.just("team-a"), "uid": st.just("u")}
        ),
        "spec": st.fixed_dictionaries({"worker": ROLE}, optional={"ps": ROLE}),
        "status": STATUS,
    }
)
POD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {
                "name": st.sampled_from(["demo-worker-0", "demo-worker-1", "demo-ps-0"]),
                "labels": st.just({"paddle-res-type": "worker"}),
            },
            optional={"deletionTimestamp": TIMES, "creationTimestamp": TIMES},
        ),
        "spec": st.fixed_dictionaries({"nodeName": st.sampled_from(["", "a"])}),
        "status": st.fixed_dictionaries(
            {
                "phase": st.sampled_from(["Pending", "Running", "Failed", "Unknown"]),
                "conditions": st.lists(
                    st.fixed_dictionaries(
                        {"type": st.just("PodScheduled"), "status": st.just("False"), "message": WORDS}
                    ),
                    max_size=1,
                ),
                "containerStatuses": st.lists(
                    st.fixed_dictionaries(
                        {
                            "name": WORDS,
                            "state": st.fixed_dictionaries(
                                {
                                    "waiting": st.fixed_dictionaries(
                                        {
                                            "reason": st.sampled_from(
                                                ["ErrImagePull", "CrashLoopBackOff", "x"]
                                            ),
                                            "message": WORDS,
                                        }
                                    )
                                }
                            ),
                        }
                    ),
                    max_size=2,
                ),
            }
        ),
    }
)
META = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "data", "pv"]), "labels": st.just({"k": "3"})}
)
NODE = st.fixed_dictionaries(
    {
        "metadata": META,
        "spec": st.fixed_dictionaries(
            {
                "unschedulable": st.booleans(),
                "taints": st.lists(
                    st.fixed_dictionaries({"key": WORDS, "value": WORDS, "effect": st.just("NoSchedule")}),
                    max_size=2,
                ),
            }
        ),
        "status": st.fixed_dictionaries({"allocatable": AMOUNTS}),
    }
)
QUOTA = st.fixed_dictionaries(
    {
        "metadata": META,
        "spec": st.fixed_dictionaries({"scopes": st.lists(WORDS, max_size=1)}),
        "status": st.fixed_dictionaries({"hard": AMOUNTS, "used": AMOUNTS}),
    }
)
LIMIT_RANGE = st.fixed_dictionaries(
    {
        "metadata": META,
        "spec": st.fixed_dictionaries(
            {
                "limits": st.lists(
                    st.fixed_dictionaries(
                        {"type": st.just("Container"), "default": AMOUNTS, "defaultRequest": AMOUNTS}
                    ),
                    max_size=1,
                )
            }
        ),
    }
)
CLAIM = st.fixed_dictionaries(
    {
        "metadata": META,
        "spec": st.fixed_dictionaries(
            {"accessModes": st.lists(WORDS, max_size=2), "storageClassName": st.none() | WORDS}
        ),
        "status": st.fixed_dictionaries({"phase": st.sampled_from(["Pending", "Bound", "Lost", ""])}),
    }
)
EVENT = st.fixed_dictionaries(
    {
        "metadata": META,
        "involvedObject": st.fixed_dictionaries({"name": st.sampled_from(["demo", "demo-worker-0", "data"])}),
        "type": st.just("Warning"),
        "reason": st.sampled_from(["FailedMount", "FailedAttachVolume", "Failed"]),
        "message": WORDS,
    }
)
GROUP = st.fixed_dictionaries(
    {
        "metadata": META,
        "spec": st.fixed_dictionaries(
            {"minMember": st.integers(-1, 9), "minResources": st.just({"cpu": "x"}), "queueName": WORDS}
        ),
        "status": st.fixed_dictionaries({"phase": WORDS}),
    }
)


def some(kind, strategy):
    return st.lists(strategy.map(lambda each: msgspec.convert(each, kind, strict=False)), max_size=3).map(
        tuple
    )


EVIDENCE = st.builds(
    Evidence,
    job=JOB.map(lambda each: msgspec.convert(each, PaddleJob, strict=False)),
    now=st.just(NOW) | st.just(datetime.max.replace(tzinfo=UTC) - timedelta(days=1)),
    pods=some(Pod, POD),
    shapes=st.just({}),
    nodes=st.none() | some(objects.Node, NODE),
    quotas=some(objects.ResourceQuota, QUOTA),
    limit_ranges=some(objects.LimitRange, LIMIT_RANGE),
    events=some(EventView, EVENT),
    claims=st.none()
    | some(objects.Claim, CLAIM).map(lambda found: {each.metadata.name: each for each in found}),
    gang=st.none()
    | st.builds(
        GangEvidence,
        system=st.sampled_from(GangSystem),
        group=GROUP.map(lambda each: msgspec.convert(each, PodGroup, strict=False)),
        volcano_queue=st.none()
        | st.just(
            msgspec.convert({"metadata": {}, "spec": {"capability": {"cpu": "y"}}}, objects.VolcanoQueue)
        ),
    ),
    log=st.lists(WORDS | st.text(max_size=300), max_size=30).map(tuple),
    sees_all_pods=st.booleans(),
)


@settings(max_examples=2 * settings().max_examples)
@given(EVIDENCE)
def test_it_is_explained(evidence):
    found = explain(evidence)
    text = str(found)
    assert found.summary is not None
    assert len(text.splitlines()) < 80
    assert all(line.isprintable() for line in text.splitlines())
    assert json.loads(json.dumps(found.to_dict()))["summary"] == found.summary
