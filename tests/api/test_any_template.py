"""Whatever JSON a template is, validation and plan have an answer, however its pods are scheduled."""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlejob.api.validation import validate
from paddlejob.api.validation.template import MAX_BYTES_OF_ALL_PODS, MAX_DEPTH
from paddlejob.core.actions import Create, Kind
from paddlejob.core.gang.choose import relevant_systems
from paddlejob.core.gang.kueue import workload_manifest
from paddlejob.core.gang.model import Scheduling
from paddlejob.local.input.accelerators import provide
from simkube.build import JobBuilder, SnapshotBuilder, job, snapshot

pytestmark = pytest.mark.slow

PADDLE = {"name": "paddle", "image": "paddle"}
WORKLOAD = Kind.WORKLOAD_V1BETA2
EXAMPLES = int(os.environ.get("PADDLEJOB_SEEDS", "300")) // 10


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
GONE = object()

RESOURCES = {
    "requests": {"cpu": "500m", "memory": "4Gi"},
    "limits": {"nvidia.com/gpu": 1, "cpu": 0.5},
    "claims": [{"name": "gpu"}],
}
CONTAINER = {
    "name": "side",
    "image": "side",
    "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP", "name": "http"}],
    "resources": RESOURCES,
    "restartPolicy": "Always",
}
FIRST = {
    **CONTAINER,
    **PADDLE,
    "command": ["python"],
    "args": ["train.py"],
    "ports": [{"containerPort": 36000}],
    "env": [
        {"name": "PADDLE_MASTER", "value": "10.0.0.9:1"},
        {"name": "PADDLE_WITH_GLOO", "value": "1"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "a"}}],
}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a"]},
    "spec": {
        "containers": [FIRST, CONTAINER],
        "initContainers": [CONTAINER],
        "overhead": {"cpu": "1m"},
        "resources": RESOURCES,
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "hostname": "a",
        "subdomain": "a",
        "dnsPolicy": "Default",
    },
}
"""Every field that anything of ours reads."""

Path_ = tuple[str | int, ...]


def paths(value: Any, here: Path_ = ()) -> list[Path_]:
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [here, *(path for key, child in children for path in paths(child, (*here, key)))]


def changed(value: Any, changes: dict[Path_, Any], here: Path_ = ()) -> Any:
    """Return a copy of a value with other values at some paths, or none."""
    if here in changes:
        return changes[here]
    if isinstance(value, dict):
        made = {key: changed(child, changes, (*here, key)) for key, child in value.items()}
        return {key: child for key, child in made.items() if child is not GONE}
    if isinstance(value, list):
        made = [changed(child, changes, (*here, index)) for index, child in enumerate(value)]
        return [child for child in made if child is not GONE]
    return value


PATHS = paths(TEMPLATE)[1:]
TEMPLATES = st.dictionaries(st.sampled_from(PATHS), JSON | st.just(GONE), max_size=3).map(
    lambda changes: changed(TEMPLATE, changes)
)


def plain(of: JobBuilder) -> SnapshotBuilder:
    return snapshot(of)


def on_ipv6(of: JobBuilder) -> SnapshotBuilder:
    return snapshot(of).with_settings(pods_have_ipv6=True)


def unknown_to_volcano(of: JobBuilder) -> SnapshotBuilder:
    return snapshot(of).serves(Kind.POD_GROUP).with_settings(scheduling=Scheduling.VOLCANO)


def in_volcano(of: JobBuilder) -> SnapshotBuilder:
    return unknown_to_volcano(of).pod_group(status={"phase": "Inqueue"}, minMember=2, minResources={"x": "y"})


def in_native_gang(of: JobBuilder) -> SnapshotBuilder:
    kind = Kind.POD_GROUP_V1BETA1
    return snapshot(of).serves(kind).with_settings(scheduling=Scheduling.NATIVE).pod_group(kind)


def in_kueue(of: JobBuilder) -> SnapshotBuilder:
    built = snapshot(of.metadata(labels={"kueue.x-k8s.io/queue-name": "a"})).serves(WORKLOAD)
    if validate(built.job):
        return built
    assigned = [{"name": role, "flavors": {"cpu": "fast"}} for role in ("ps", "worker")]
    admitted = {
        "conditions": [{"type": "Admitted", "status": "True"}],
        "admission": {"podSetAssignments": assigned},
    }
    annotations = workload_manifest(built.job, WORKLOAD)["metadata"]["annotations"]
    built.pod_group(WORKLOAD, status=admitted, annotations=annotations)
    return built.flavor("fast", {"node": "fast"}, {"operator": "Exists"})


MODES = [plain, on_ipv6, unknown_to_volcano, in_volcano, in_native_gang, in_kueue]


def with_template(template: Any, intranet: str = "PodIP", replicas: int = 1) -> JobBuilder:
    servers = {"replicas": 1, "template": {"spec": {"containers": [PADDLE]}}}
    return job().spec(ps=servers, worker={"replicas": replicas, "template": template}, intranet=intranet)


def manifests(built: SnapshotBuilder) -> list[Any]:
    stages = built.plan().stages
    return [action.manifest for stage in stages for action in stage if isinstance(action, Create)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
@settings(max_examples=EXAMPLES)
@given(template=TEMPLATES, intranet=st.sampled_from(["PodIP", "Service", "Host"]))
def test_any_template_is_refused_or_planned(mode, template, intranet):
    built = mode(with_template(template, intranet))
    relevant_systems(built.job, built.settings.scheduling)
    refused = validate(built.job)
    rendered = manifests(built)
    assert msgspec.json.encode(rendered)
    assert not (refused and rendered)
    if not refused:
        provide(built.job, strict=False, devices=Path("/dev"))


JUNK = (
    None,
    0,
    -1,
    3.5,
    True,
    "",
    "x",
    [],
    [None],
    [0],
    ["x"],
    {},
    {"name": 0},
    [{}],
    [[{}]],
    {"a": {}},
    GONE,
)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
def test_every_field_may_be_anything(mode):
    verdicts = Counter()
    for path in PATHS:
        for junk in JUNK:
            built = mode(with_template(changed(TEMPLATE, {path: junk})))
            refused = validate(built.job)
            assert not (manifests(built) and refused)
            assert all(error.field.startswith("spec.worker.template") for error in refused)
            verdicts[bool(refused)] += 1
    assert min(verdicts.values()) > 300


def nested(levels: int, *, kind: type) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = {"a": value} if kind is dict else [value]
    return value


DEEP_FIELDS = {
    "an unknown field of the pod": lambda deep: {"containers": [PADDLE], "x": deep},
    "the name of a container": lambda deep: {"containers": [{**PADDLE, "name": deep}]},
    "a command": lambda deep: {"containers": [{**PADDLE, "command": deep}]},
    "a scheduler": lambda deep: {"containers": [PADDLE], "schedulerName": deep},
    "a request": lambda deep: {"containers": [{**PADDLE, "resources": {"requests": {"cpu": deep}}}]},
}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("field", DEEP_FIELDS.values(), ids=DEEP_FIELDS)
def test_a_deep_template_is_refused_before_anything_recurses_into_it(mode, kind, field):
    of = job().ps().worker(2).build()
    deep = msgspec.structs.replace(of.spec.worker, template={"spec": field(nested(20_000, kind=kind))})
    built = mode(job().ps().worker(2))
    built.job = msgspec.structs.replace(of, spec=msgspec.structs.replace(of.spec, worker=deep))
    relevant_systems(built.job, built.settings.scheduling)
    plan = built.pods_running().plan() if mode is plain else built.plan()
    assert (plan.stages, plan.status.reason) == ((), "InvalidSpec")
    assert "spec.worker.template: Invalid value: nested more than 100 levels deep" in plan.status.message


@pytest.mark.parametrize(("levels", "is_refused"), [(MAX_DEPTH - 2, False), (MAX_DEPTH - 1, True)])
def test_the_depth_that_is_allowed(levels, is_refused):
    template = {"spec": {"containers": [PADDLE], "x": nested(levels, kind=dict)}}
    assert bool(validate(with_template(template).build())) is is_refused


def test_all_pods_together_are_bounded():
    """One object must not become gigabytes in the operator and the API server."""
    template = {"spec": {"containers": [{**PADDLE, "args": ["x" * 200_000]}]}}
    assert validate(with_template(template, replicas=1000).build()) == ()
    (error,) = validate(with_template(template, replicas=5000).build())
    assert str(error) == (
        "spec.worker.template: Invalid value: 200072 bytes for each of 5000 pods are 954 MiB, at most 256 "
        "MiB are allowed for all pods of a role; put data into the image, a volume or a ConfigMap, or lower "
        "replicas"
    )


def entries(count: int) -> dict[str, str]:
    return {f"k{number}": "" for number in range(count)}


def test_the_largest_job_that_is_accepted_is_planned_in_bounded_memory():
    """Manifests share the template; what is copied into each pod is bounded by the number of entries."""
    container = {
        **PADDLE,
        "env": [{"name": f"V{number}"} for number in range(1000)],
        "envFrom": [{}] * 256,
        "ports": [{"containerPort": number} for number in range(1, 257)],
    }
    metadata = {"labels": entries(256), "annotations": entries(256)}
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    assert validate(with_template(template, replicas=5000).build()) == ()
    few = snapshot(with_template(template, replicas=250))
    tracemalloc.start()
    plan = few.plan()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan.stages[-1]) == 250
    assert peak * 5000 / 250 < MAX_BYTES_OF_ALL_PODS


TOO_MANY = {
    "env": {"spec": {"containers": [{**PADDLE, "env": [{"name": "A"}] * 100_000}]}},
    "envFrom": {"spec": {"containers": [{**PADDLE, "envFrom": [{}] * 100_000}]}},
    "ports": {"spec": {"containers": [{**PADDLE, "ports": [{}] * 100_000}]}},
    "requests": {"spec": {"containers": [{**PADDLE, "resources": {"requests": entries(100_000)}}]}},
    "containers": {"spec": {"containers": [{}] * 100_000}},
    "initContainers": {"spec": {"containers": [PADDLE], "initContainers": [{}] * 100_000}},
    "tolerations": {"spec": {"containers": [PADDLE], "tolerations": [{}] * 100_000}},
    "labels": {"metadata": {"labels": entries(100_000)}, "spec": {"containers": [PADDLE]}},
    "annotations": {"metadata": {"annotations": {"k" * 10**6: 0}}, "spec": {"containers": [PADDLE]}},
}


@pytest.mark.parametrize("template", TOO_MANY.values(), ids=TOO_MANY)
def test_an_endless_list_is_rejected_with_a_short_message(template):
    errors = validate(with_template(template).build())
    assert 0 < len(errors) <= 51
    assert sum(len(str(error)) for error in errors) < 20_000
