"""The memory that the operator keeps for an object does not depend on the size of the object."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey, ObjectMeta
from paddlejob.api.pod import Pod, Service
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.validation.job import MAX_SPEC_BYTES
from paddlejob.history.record import outline_of_record
from paddlejob.kube.resource import PODS
from paddlejob.operator import limits, state
from paddlejob.operator.limits import MAX_PACKED_BYTES, PackedParts
from paddlejob.operator.manager import MAX_RESPONSE_BYTES
from paddlejob.operator.settings import OperatorSettings
from simkube.build import job
from simkube.kubelet.outcomes import Exit, RunForever
from tests.apiserver.installed import OPERATOR, objects
from tests.support import hostile
from tests.support.hostile import fat_config_map, fat_job, fat_pod, fat_record, fat_texts, owned
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.slow

MAX_KEPT_BYTES = 12 * 1024
"""An ordinary job with its status takes 3 KiB."""
COPIES = 5
IDLE_BYTES = 60 << 20
"""Memory of an operator without jobs."""

WIDE = "\U0001f600"
OWNERS = [
    {"apiVersion": "v1", "kind": "x" * 100, "name": f"o{number}", "uid": f"u{number}"}
    for number in range(8_000)
]
STATUSES = [{"name": f"c{number}", "state": {"waiting": {"reason": "x"}}} for number in range(15_000)]
CONDITIONS = [{"type": f"t{number}", "status": "True"} for number in range(20_000)]


def decode_job(encoded: msgspec.Raw) -> object:
    """Read a job as the informer of the operator does."""
    try:
        return limits.decode_job(encoded)[0]
    except msgspec.ValidationError as error:
        return limits.readable_job(encoded, ObjectMeta("hostile"), str(error))


def decode_config_map(encoded: msgspec.Raw) -> object:
    found = limits.decode_config_map(encoded)
    return found and found[0]


decode_pod = limits.decoder_of(Pod, owned=True)
decode_service = limits.decoder_of(Service, owned=True)
decode_group = limits.decoder_of(PodGroup, owned=False)
recorder_name = f"{names.RECORDER}-0123456789"


def with_status(body: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**body, "status": status}


CASES: dict[str, tuple[Callable[[msgspec.Raw], object], Callable[[], dict[str, Any]]]] = {
    "a job": (decode_job, fat_job),
    "a job just below the limit": (decode_job, partial(fat_job, size=250_000)),
    "the labels of a job": (decode_job, partial(fat_job, size=0, labels=fat_texts(1_000_000, length=0))),
    "the annotations of a job": (decode_job, partial(fat_job, size=0, annotations={"a": WIDE + "x" * 10**6})),
    "a known label": (decode_job, partial(fat_job, size=0, labels={names.LABEL_KUEUE_QUEUE: "x" * 10**6})),
    "the owners of a job": (decode_job, partial(fat_job, size=0, ownerReferences=OWNERS)),
    "the finalizers of a job": (
        decode_job,
        partial(fat_job, size=0, finalizers=[f"example.org/{number}" for number in range(40_000)]),
    ),
    "the status of a job": (decode_job, lambda: with_status(fat_job(size=0), conditions=CONDITIONS)),
    "the policy of a job": (
        decode_job,
        lambda: fat_job(size=0) | {"spec": {"schedulingPolicy": {"minResources": {"x" * 250_000: 1}}}},
    ),
    "the words of a job": (decode_job, lambda: fat_job(size=0) | {"spec": {"intranet": WIDE * 50_000}}),
    "the names in a template": (
        decode_job,
        lambda: job().worker(1, pod={"schedulerName": "x" * 200_000}).manifest,
    ),
    "a config map of nobody": (decode_config_map, partial(fat_config_map, "any")),
    "a config map of the job": (decode_config_map, partial(fat_config_map, hostile.NAME, **owned())),
    "another config map of the job": (decode_config_map, partial(fat_config_map, "any", **owned())),
    "a recorder": (decode_config_map, lambda: fat_config_map(recorder_name) | {"immutable": True}),
    "the labels of a pod": (decode_pod, fat_pod),
    "the containers of a pod": (
        decode_pod,
        lambda: with_status(fat_pod(), phase="Running", containerStatuses=STATUSES),
    ),
    "a pod of nobody": (decode_pod, lambda: fat_pod(metadata={"labels": fat_texts(500_000, length=0)})),
    "a service": (decode_service, lambda: {"metadata": fat_pod()["metadata"]}),
    "the resources of a pod group": (
        decode_group,
        lambda: {
            "metadata": {"name": "g"},
            "spec": {"minResources": dict.fromkeys(map(str, range(90_000)), 1)},
        },
    ),
    "the conditions of a pod group": (
        decode_group,
        lambda: with_status({"metadata": {"name": "g"}}, conditions=CONDITIONS),
    ),
    "a record": (outline_of_record, partial(fat_record, "demo", "default")),
}


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("case", CASES)
def test_a_view_of_a_huge_object_is_small(case):
    decode, body = CASES[case]
    text = json.dumps(body(), ensure_ascii=False).encode()
    assert len(text) > 100_000

    def read() -> object:
        return decode(msgspec.Raw(text))

    read()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    kept = [read() for _ in range(COPIES)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    assert len(kept) == COPIES
    assert (after - before) / COPIES < MAX_KEPT_BYTES


@pytest.mark.parametrize("decode", [decode_pod, decode_service, decode_config_map])
def test_an_object_that_no_job_controls_is_not_kept(decode):
    mine, other = owned(), owned()
    other["ownerReferences"][0]["kind"] = "Deployment"

    def view(metadata: dict[str, Any]) -> object:
        body = {"metadata": {"name": hostile.NAME, "namespace": "default", **metadata}}
        return decode(msgspec.Raw(json.dumps(body).encode()))

    assert view(mine) is not None
    assert view(other) is None
    assert view({}) is None


@simulated
async def test_a_job_that_is_too_large_is_reported_with_a_remedy():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    async with cluster.running(volcano=False):
        cluster.submit(job("grows").worker(1))
        await cluster.until(lambda: cluster.status("grows").get("phase") == "Running")
        uid = cluster.server.get(PODS, "default", "grows-worker-0")["metadata"]["uid"]
        fat = {"worker": {"template": {"spec": {"fromTheFuture": hostile.fat_list()}}}}
        cluster.server.patch(PADDLE_JOBS, "default", "grows", {"spec": fat})
        cluster.server.create(PADDLE_JOBS, fat_job("fat", namespace="default"))
        await cluster.until(lambda: cluster.status("fat").get("reason") == "InvalidSpec")
        assert cluster.status("fat")["message"] == (
            "spec: Too large: 1270 KiB as JSON, at most 256 KiB are allowed; "
            "put data into a ConfigMap, a volume or the image"
        )
        await cluster.until(lambda: cluster.status("grows")["reason"] == "InvalidSpec")
        assert cluster.status("grows")["phase"] == "Running"
        assert "1 worker running" in cluster.status("grows")["message"]
        assert cluster.server.get(PODS, "default", "grows-worker-0")["metadata"]["uid"] == uid
        thin = {"worker": {"template": {"spec": {"fromTheFuture": None}}}}
        cluster.server.patch(PADDLE_JOBS, "default", "grows", {"spec": thin})
        await cluster.until(lambda: cluster.status("grows")["reason"] == "PodsRunning")


def test_all_budgets_together_fit_into_the_memory_of_the_manifests():
    deployment = next(each for each in objects(OPERATOR) if each["kind"] == "Deployment")
    limit = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    decoded = 24 * MAX_SPEC_BYTES * OperatorSettings().workers
    assert IDLE_BYTES + MAX_PACKED_BYTES + 2 * MAX_RESPONSE_BYTES + decoded <= bytes_of(limit)


def bytes_of(limit: str) -> int:
    return int(limit.removesuffix("Mi")) << 20


JOBS = {
    "collective": job().worker(2),
    "with servers": job().ps(1).worker(2),
    "by name": job().ps(1).worker(2).spec(intranet="Service"),
}


@pytest.mark.parametrize("kind", JOBS)
@simulated
async def test_a_job_with_parts_not_in_memory_runs_restarts_and_completes(monkeypatch, kind):
    monkeypatch.setattr(state, "PackedParts", lambda: PackedParts(0))
    failures = iter([Exit(139, 20.0)])

    def behaviour(pod: dict[str, Any], *_: object) -> Exit:
        is_worker_0 = pod["metadata"]["name"] == "demo-worker-0"
        return (next(failures, None) if is_worker_0 else None) or Exit(0, 20.0)

    cluster = SimulatedCluster(behaviour=behaviour)
    async with cluster.running(volcano=False):
        cluster.submit(JOBS[kind])
        await cluster.until_phase("Running")
        await cluster.until_phase("Completed", within_seconds=600)
    assert cluster.status()["attempt"] == 1
    # The operator may list PaddleJobs, but not get one.
    assert not cluster.server.log.requests["get", "paddlejobs"]


@simulated
async def test_fat_jobs_of_a_namespace_cost_other_namespaces_nothing(monkeypatch):
    """Of 60 fat jobs, a few stay in memory, and all of them are reconciled."""
    monkeypatch.setattr(state, "PackedParts", lambda: PackedParts(2 << 20))
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    for number in range(60):
        fat = fat_job(f"fat-{number}", size=100_000, namespace="mallory")
        cluster.server.create(PADDLE_JOBS, fat)
    cluster.submit(job("innocent").worker(1))

    def status_of(namespace: str, name: str) -> dict[str, Any]:
        return cluster.server.get(PADDLE_JOBS, namespace, name)["status"]

    async with cluster.running(volcano=False):
        await cluster.until_phase("Running", "innocent")
        await cluster.until(lambda: all(map(is_suspended, cluster.server.objects(PADDLE_JOBS, "mallory"))))
        packed = cluster.controller.state._packed
        assert 1 << 20 < packed.size <= 2 << 20
        innocent = cluster.controller.state.job(ObjectKey("default", "innocent"))
        assert packed.get(innocent.metadata, "1") is not None
        # A job that is not in memory is read when it is needed; the server refuses pods with unknown fields.
        cluster.server.patch(PADDLE_JOBS, "mallory", "fat-0", {"spec": {"suspend": False}})
        await cluster.until(lambda: status_of("mallory", "fat-0").get("reason") == "CreateFailed")


@simulated
async def test_many_small_jobs_of_a_namespace_cost_other_namespaces_nothing(monkeypatch):
    """Of 30 jobs, 10 are kept in memory; the others follow as soon as those are deleted."""
    monkeypatch.setattr(limits, "MAX_JOBS", 10)
    cluster = SimulatedCluster()
    for number in range(30):
        cluster.submit(job(f"small-{number:02}", "mallory").worker(1).spec(suspend=True))

    def reconciled() -> set[str]:
        found = cluster.server.objects(PADDLE_JOBS, "mallory")
        return {each["metadata"]["name"] for each in found if is_suspended(each)}

    async with cluster.running(volcano=False):
        await cluster.until(lambda: len(reconciled()) == 10)
        cluster.submit(job("innocent").worker(1))
        await cluster.until_phase("Completed", "innocent")
        assert len(reconciled()) == 10
        assert len(cluster.controller.state.jobs) == 11
        for name in reconciled():
            cluster.server.delete(PADDLE_JOBS, "mallory", name)
        await cluster.until(lambda: len(reconciled()) == 10, within_seconds=300)
        # The latest ones are created while the namespace is full.
        cluster.submit(job("small-99", "mallory").worker(1).spec(suspend=True))
        for name in sorted(reconciled())[:5]:
            cluster.server.delete(PADDLE_JOBS, "mallory", name)
        await cluster.until(lambda: len(reconciled()) == 10, within_seconds=300)


@simulated
async def test_many_finished_jobs_of_a_namespace_keep_no_new_job_out(monkeypatch):
    monkeypatch.setattr(limits, "MAX_JOBS", 3)
    cluster = SimulatedCluster(behaviour=lambda *_: Exit(0, 1.0))
    async with cluster.running(volcano=False):
        for number in range(9):
            cluster.submit(job(f"job-{number}").worker(1))
            await cluster.until_phase("Completed", f"job-{number}")
            # Pods of finished jobs are deleted before their jobs are dropped from memory.
            await cluster.until(lambda: not cluster.pod_names())
        assert len(cluster.controller.state.jobs) == 3


@pytest.mark.parametrize(("namespace", "kept"), [("default", 30), ("", 10)])
@simulated
async def test_only_an_operator_for_all_namespaces_limits_the_jobs_of_one(monkeypatch, namespace, kept):
    monkeypatch.setattr(limits, "MAX_JOBS", 10)
    cluster = SimulatedCluster()
    for number in range(30):
        cluster.submit(job(f"small-{number:02}").worker(1).spec(suspend=True))
    settings = OperatorSettings(namespace=namespace)
    found = state.ClusterState(cluster.client, settings, lambda *_: None, cluster.rng)
    watch = asyncio.create_task(found.informers[0].run())
    await found.informers[0].synced.wait()
    assert len(found.jobs) == kept
    watch.cancel()


def is_suspended(body: dict[str, Any]) -> bool:
    return (body.get("status") or {}).get("phase") == "Suspended"


@simulated
async def test_a_finished_job_keeps_no_template():
    cluster = SimulatedCluster()
    async with cluster.running(volcano=False):
        cluster.submit(job().worker(1))
        await cluster.until_phase("Completed")
        await cluster.until(lambda: cluster.controller.state._packed.size == 0)
