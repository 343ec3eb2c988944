"""What the operator takes for its own, and what makes it look at a job."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.core.snapshot import Settings
from paddlejob.kube.resource import PODS
from paddlejob.operator import state
from paddlejob.operator.changes import needs_reconcile, startup_stage
from paddlejob.operator.settings import OperatorSettings
from paddlejob.training.findings import Awaited, Hang, Slowdown
from simkube import virtual_loop
from simkube.build import job
from simkube.kubelet.outcomes import RunForever
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

GOLD = {names.LABEL_KUEUE_QUEUE: "gold"}


def _pod_of(owner: dict, name: str, **metadata: object) -> dict:
    labels = {names.LABEL_RESOURCE_TYPE: "worker"}
    owners = [{"name": "demo", "uid": "other", "controller": True, **owner}]
    head = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": owners, **metadata}
    return {"metadata": head, "spec": {"containers": [{"name": "a", "image": "a"}]}}


@pytest.mark.parametrize(
    "owner",
    [
        {"apiVersion": "apps/v1", "kind": "StatefulSet"},
        {"apiVersion": "example.org/v1", "kind": "PaddleJob"},
        {"apiVersion": "v1", "kind": "PaddleJob"},
    ],
    ids=["another-kind", "another-group", "core-group"],
)
@simulated
async def test_the_pods_of_another_controller_of_the_same_name_are_not_the_jobs(cluster, owner):
    finalizers = ["example.org/slow"]
    cluster.server.create(PODS, _pod_of(owner, "demo-0", finalizers=finalizers))
    cluster.server.delete(PODS, "default", "demo-0")
    cluster.submit(job().worker(1))
    await cluster.operate(600)
    assert cluster.server.get(PODS, "default", "demo-worker-0") is not None
    writes = [write for write in cluster.server.log.writes if write.identity == "operator"]
    assert not any(write.name == "demo-0" for write in writes)


@simulated
async def test_the_pods_of_an_earlier_job_of_the_same_name_are_waited_for(cluster):
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND}
    cluster.server.create(PODS, _pod_of(owner, "demo-worker-7", finalizers=["example.org/slow"]))
    cluster.submit(job().worker(1))
    await cluster.operate(10)
    assert cluster.server.get(PODS, "default", "demo-worker-0") is None


@pytest.mark.parametrize(
    ("labels", "expected"),
    [({names.LABEL_KUEUE_QUEUE: "silver"}, True), ({}, True), ({**GOLD, "team": "x"}, False)],
    ids=["changed", "removed", "of-no-concern"],
)
def test_a_change_of_the_queue_label_asks_for_a_reconcile(labels, expected):
    old, new = job().metadata(labels=GOLD).build(), job().metadata(labels=labels).build()
    assert needs_reconcile(old, new) is expected
    assert needs_reconcile(new, old) is expected


def _host_job(name: str, policy: str = "Never"):
    return job(name).worker(1).spec(intranet="Host", cleanPodPolicy=policy)


TERMINATED = [{"name": "paddle", "state": {"terminated": {"exitCode": 1}}}]
ENDED_EARLY = {"phase": "Running", "containerStatuses": TERMINATED}
"""All containers have terminated, and the phase has not followed."""


@pytest.mark.parametrize(
    ("pod_status", "is_free"),
    [
        ({"phase": "Running"}, False),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, True),
        (ENDED_EARLY, True),
    ],
)
@simulated
async def test_the_host_port_of_an_ended_job_is_taken_while_its_pods_can_run(cluster, pod_status, is_free):
    room_for_one = (40000, 40000 + names.PORTS_PER_POD - 1)
    settings = OperatorSettings(jobs=Settings(host_port_range=room_for_one))

    cluster.submit(_host_job("first"))
    await cluster.operate(10, settings)
    assert cluster.status("first")["hostPort"] == 40000
    cluster.server.patch(PODS, "default", "first-worker-0", {"status": pod_status}, subresource="status")
    ended = {"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}
    cluster.server.patch(PADDLE_JOBS, "default", "first", ended, subresource="status")
    cluster.submit(_host_job("second"))
    await cluster.operate(10, settings)
    assert ("hostPort" in cluster.status("second")) is is_free


@pytest.mark.parametrize(
    ("namespace", "ports"), [("", 2), ("default", 4)], ids=["for all namespaces", "for one namespace"]
)
@simulated
async def test_a_namespace_gets_its_share_of_host_ports_from_an_operator(cluster, namespace, ports):
    room_for_four = (40000, 40000 + 4 * names.PORTS_PER_POD - 1)
    settings = OperatorSettings(namespace=namespace, jobs=Settings(host_port_range=room_for_four))
    for number in range(5):
        cluster.submit(_host_job(f"job-{number}"))
    await cluster.operate(10, settings)
    assert sum("hostPort" in cluster.status(f"job-{number}") for number in range(5)) == ports


@simulated
async def test_suspended_jobs_leave_their_host_ports_to_others(cluster):
    room_for_one = (40000, 40000 + names.PORTS_PER_POD - 1)
    settings = OperatorSettings(jobs=Settings(host_port_range=room_for_one))
    cluster.submit(_host_job("first"))
    await cluster.operate(10, settings)
    cluster.submit(_host_job("second"))
    await cluster.operate(10, settings)
    assert cluster.status("second")["reason"] == "NoHostPort"
    cluster.server.patch(PADDLE_JOBS, "default", "first", {"spec": {"suspend": True}})
    await cluster.operate(60, settings)
    assert ("hostPort" in cluster.status("first"), cluster.status("second")["hostPort"]) == (False, 40000)
    cluster.server.patch(PADDLE_JOBS, "default", "first", {"spec": {"suspend": False}})
    await cluster.operate(10, settings)
    assert cluster.status("first")["reason"] == "NoHostPort"


@pytest.mark.parametrize(
    ("pod_status", "expected"),
    [({"phase": "Pending"}, 0), ({"phase": "Running"}, 3), ({"phase": "Failed"}, 4), (ENDED_EARLY, 4)],
)
def test_a_pod_that_has_ended_is_furthest_on_its_way(pod_status, expected):
    pod = {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never"}, "status": pod_status}
    assert startup_stage(msgspec.convert(pod, Pod)) == expected


@simulated
async def test_a_spec_is_validated_once_for_each_of_its_generations(cluster, monkeypatch):
    validated = []

    def validate(job, **options):
        validated.append((job.name, job.metadata.generation))
        return real(job, **options)

    real = state.validation.validate
    monkeypatch.setattr(state.validation, "validate", validate)
    cluster.submit(job().worker(1))
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.operate(180))
        await asyncio.sleep(50)
        assert validated == [("demo", 1)]
        cluster.server.patch(PADDLE_JOBS, "default", "demo", {"spec": {"backoffLimit": -1}})
        await asyncio.sleep(50)
        assert (validated[1:], "backoffLimit" in cluster.status()["message"]) == ([("demo", 2)], True)
        cluster.server.delete(PADDLE_JOBS, "default", "demo")
        cluster.submit(job().worker(1))
        await asyncio.sleep(50)
        assert (validated[2:], "backoffLimit" in cluster.status()["message"]) == ([("demo", 1)], False)


@pytest.mark.parametrize("in_a_gap", [False, True], ids=["watched", "listed"])
@simulated
async def test_findings_do_not_apply_to_the_next_job_with_the_name(in_a_gap):
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    async with cluster.running(volcano=False):
        cluster.submit(job().worker(1).spec(hangPolicy="Restart", stragglerPolicy="Replace"))
        await cluster.until_phase("Running")
        known, key = cluster.controller.state, ObjectKey("default", "demo")
        known.note(key, Hang, Hang(0, 7, 900, (), "no progress"))
        known.note(key, Slowdown, Slowdown(0, "demo-worker-0", "slow", is_lasting=True))
        known.note(key, Awaited, Awaited(0, "demo-worker-0"))
        old = known.job(key)
        if in_a_gap:
            cluster.server.drop_watches()
        cluster.server.delete(PADDLE_JOBS, "default", "demo")
        cluster.submit(job().worker(1).spec(hangPolicy="Restart", stragglerPolicy="Replace"))
        if in_a_gap:
            cluster.server.compact()
        await cluster.until(lambda: (found := known.job(key)) is not None and found is not old)
        found = known.snapshot(known.job(key), virtual_loop.now())
        assert found.findings == ()
        await asyncio.sleep(60)
        assert cluster.status().get("attempt", 0) == 0
