from __future__ import annotations

import asyncio
from itertools import pairwise

import msgspec
import pytest

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJobStatus, Phase, RoleStatus, TrainingProgress
from paddlejob.core.actions import Plan
from paddlejob.kube.resource import PODS
from paddlejob.operator import reconciler
from paddlejob.operator.status import status_patch
from simkube.apiserver import refusals
from simkube.build import JobBuilder, job
from simkube.kubelet.outcomes import RunForever
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster


def test_a_patch_has_changed_fields_and_null_for_removed_ones():
    old = PaddleJobStatus(phase=Phase.RUNNING, message="x", worker=RoleStatus(running=2))
    new = msgspec.structs.replace(old, message="", phase=Phase.COMPLETED)
    assert status_patch(old, new) == {"phase": "Completed", "message": None}


def test_a_patch_leaves_no_old_field_inside_an_object():
    old = PaddleJobStatus(progress=TrainingProgress(step=5, loss="0.5", eta="3s"))
    new = PaddleJobStatus(progress=TrainingProgress(step=6))
    assert status_patch(old, new) == {"progress": {"step": 6, "loss": None, "eta": None}}


@simulated
async def test_a_refusal_is_in_the_message_and_is_gone_when_it_is_over(cluster):
    cluster.server.admission.append(_no_pods)
    cluster.submit(job().worker(2))
    await cluster.operate(5)
    assert cluster.status()["message"].startswith("cannot create Pod demo-worker-0: ")
    assert cluster.status()["reason"] == "CreateFailed"
    cluster.server.admission.clear()
    await cluster.operate(200)
    assert cluster.status()["message"] == "waiting for 2 of 2 pods to start"


def _no_pods(request) -> None:
    if request.resource.plural == "pods":
        raise refusals.forbidden(request.resource, request.name, "exceeded quota")


@simulated
async def test_a_job_may_ask_to_be_reconciled_after_a_whole_number_of_seconds(cluster, monkeypatch):
    """Seconds of a spec are integers, which a type checker takes for floats."""
    at = []

    def every_five_seconds(snapshot) -> Plan:
        at.append(asyncio.get_running_loop().time())
        return Plan(snapshot.job.status, requeue_after_seconds=5)

    monkeypatch.setattr(reconciler, "plan", every_five_seconds)
    cluster.submit(job().worker(1))
    await cluster.operate(12)
    assert [round(after - before) for before, after in pairwise(at)] == [5, 5]


REJECTIONS = {
    "a broken rule": refusals.invalid(
        "Pod", "", "demo-worker-0", [refusals.duplicate("spec.containers[0].ports[1].name", "a")]
    ),
    "an unknown field": refusals.bad_request('strict decoding error: unknown field "spec.x"'),
}


@pytest.mark.parametrize("rejection", REJECTIONS.values(), ids=REJECTIONS.keys())
@simulated
async def test_a_rejected_pod_is_reported_as_an_error_of_its_template(cluster, rejection):
    def reject(request) -> None:
        if request.resource.plural == "pods":
            raise rejection

    cluster.server.admission.append(reject)
    cluster.submit(job().worker(1))
    await cluster.operate(5)
    told = cluster.status()["message"]
    assert told.startswith(f"cannot create Pod demo-worker-0: {rejection}; ")
    assert "correct spec.worker.template" in told


@simulated
async def test_retries_after_a_refusal_slow_down(cluster):
    cluster.server.admission.append(_no_pods)
    cluster.submit(job().worker(1))
    await cluster.operate(600)
    tries = len(list(cluster.server.log.select(verb="create", resource="pods")))
    assert 5 < tries < 30


@simulated
async def test_a_defect_with_one_job_harms_no_other(cluster, monkeypatch):
    decide = reconciler.plan

    def broken(snapshot):
        if snapshot.job.name == "bad":
            raise ZeroDivisionError("a defect")
        return decide(snapshot)

    monkeypatch.setattr(reconciler, "plan", broken)

    cluster.submit(job("bad").worker(1))
    cluster.submit(job("good").worker(1))
    await cluster.operate(5)
    assert cluster.pod_names() == ["good-worker-0"]


@simulated
async def test_a_job_that_does_not_decode_is_reported_and_harms_no_other(cluster):
    bad = job("bad").worker(1)
    bad.manifest["spec"]["worker"]["replicas"] = "two"
    manifest = {**bad.manifest, "metadata": {"name": "bad", "namespace": "default"}}
    cluster.server.create(PADDLE_JOBS, manifest)
    cluster.submit(job("good").worker(1))
    await cluster.operate(5)
    assert cluster.status("bad")["reason"] == "InvalidSpec"
    assert "spec.worker.replicas" in cluster.status("bad")["message"]
    assert cluster.pod_names() == ["good-worker-0"]


@simulated
async def test_a_job_with_an_unreadable_status_reports_its_spec_error(cluster):
    cluster.server.create(PADDLE_JOBS, _unreadable().manifest)
    _write_status(cluster, {"phase": ["Completed"]})
    await cluster.operate(60)
    assert cluster.status()["reason"] == "InvalidSpec"


STATUSES = {
    "a status that can be read": {},
    "of which one field cannot": {"hostPort": "x"},
}


@pytest.mark.parametrize("extra", STATUSES.values(), ids=STATUSES.keys())
@pytest.mark.parametrize("phase", ["Completed", "Failed"])
@simulated
async def test_a_job_that_ended_stays_so_when_it_does_not_decode(cluster, phase, extra):
    status = {"phase": phase, "message": "as it was", **extra}
    cluster.server.create(PADDLE_JOBS, _unreadable().manifest)
    _write_status(cluster, status)
    await cluster.operate(60)
    assert cluster.status() == status


@simulated
async def test_a_job_that_ended_stays_so_when_it_no_longer_decodes(cluster):
    cluster.submit(job().worker(1))
    _write_status(cluster, {"phase": "Completed"})
    operator = asyncio.create_task(cluster.operate(60))
    await asyncio.sleep(5)
    cluster.server.patch(PADDLE_JOBS, "default", "demo", {"spec": {"worker": {"replicas": "two"}}})
    await operator
    assert cluster.status()["phase"] == "Completed"


@simulated
async def test_a_running_job_keeps_its_pods_when_its_spec_and_one_field_of_its_status_do_not_decode():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    async with cluster.running(volcano=False):
        cluster.submit(job().worker(1))
        await cluster.until(lambda: cluster.status().get("phase") == "Running")
        cluster.server.delete(PODS, "default", "demo-worker-0", options={"gracePeriodSeconds": 0})
        await cluster.until(
            lambda: cluster.status().get("attempt") and cluster.status()["phase"] == "Running"
        )
        uid = cluster.server.get(PODS, "default", "demo-worker-0")["metadata"]["uid"]
        _write_status(cluster, {"progress": "half"})
        cluster.server.patch(PADDLE_JOBS, "default", "demo", {"spec": {"worker": {"replicas": "two"}}})
        await cluster.until(lambda: cluster.status()["reason"] == "InvalidSpec")
        status = cluster.status()
        assert (status["phase"], status["attempt"]) == ("Running", 1)
        assert status["message"].startswith("1 worker running; no pod is created or replaced until")
        assert cluster.server.get(PODS, "default", "demo-worker-0")["metadata"]["uid"] == uid


@simulated
async def test_a_job_that_does_not_decode_is_reported_once(cluster):
    cluster.server.create(PADDLE_JOBS, _unreadable().manifest)
    await cluster.operate(5)
    assert cluster.status()["reason"] == "InvalidSpec"
    cluster.server.log.clear()
    await cluster.operate(600)
    assert [write for write in cluster.server.log.writes if write.resource != "events"] == []


@simulated
async def test_a_job_that_does_not_decode_keeps_its_time_limits_and_its_controller(cluster):
    for name, fields in (("late", {"startupDeadlineSeconds": 60}), ("theirs", {"managedBy": "other"})):
        manifest = _unreadable().spec(**fields).manifest
        cluster.server.create(PADDLE_JOBS, {**manifest, "metadata": {"name": name, "namespace": "default"}})
    await cluster.operate(70)
    assert cluster.status("late")["reason"] == "StartupDeadlineExceeded"
    assert cluster.status("theirs") == {}


def _write_status(cluster, status: dict) -> None:
    cluster.server.patch(PADDLE_JOBS, "default", "demo", {"status": status}, subresource="status")


def _unreadable() -> JobBuilder:
    built = job().worker(1)
    built.manifest["spec"]["worker"]["replicas"] = "two"
    built.manifest["metadata"] = {"name": "demo", "namespace": "default"}
    return built


@simulated
async def test_a_quiet_cluster_is_not_written_to(cluster):
    cluster.submit(job().worker(2))
    await cluster.operate(10)
    cluster.server.log.clear()
    await cluster.operate(600)
    assert [write for write in cluster.server.log.writes if write.resource != "events"] == []


@simulated
async def test_a_pod_created_and_deleted_while_a_watch_is_interrupted_is_replaced(cluster):
    def vanish(write) -> None:
        if write.resource == "paddlejobs" and write.identity == "operator":
            cluster.server.drop_watches()
        elif write.resource == "pods" and write.verb == "create":
            cluster.server.log.on_write.remove(vanish)
            cluster.server.delete(PODS, "default", write.name, options={"gracePeriodSeconds": 0})
            cluster.server.compact()

    cluster.server.log.on_write.append(vanish)
    cluster.submit(job().worker(1))
    await cluster.operate(60)
    assert vanish not in cluster.server.log.on_write
    assert cluster.pod_names() == ["demo-worker-0"]


@simulated
async def test_a_job_that_is_deleted_while_its_status_is_written_is_forgotten(cluster, monkeypatch):
    write = cluster.client.patch

    async def patch(resource, namespace, name, *args, **options):
        if cluster.server.get(PADDLE_JOBS, namespace, name):
            cluster.server.delete(PADDLE_JOBS, namespace, name)
        return await write(resource, namespace, name, *args, **options)

    monkeypatch.setattr(cluster.client, "patch", patch)
    cluster.submit(job().worker(1))
    await cluster.operate(60)
    assert cluster.server.objects(PODS) == []
    assert cluster.controller.metrics.reconciles.labels("stale")._value.get() == 0


@pytest.mark.parametrize("refused", [0, 2])
@simulated
async def test_a_pod_that_a_deleted_job_left_on_a_lost_node_is_removed_by_force(cluster, refused):
    def refuse(request) -> None:
        nonlocal refused
        if request.verb == "delete" and request.identity == "operator" and refused:
            refused -= 1
            raise refusals.forbidden(PODS, request.name, "not now")

    cluster.submit(job().worker(1, pod={"nodeName": "lost"}))
    await cluster.operate(5)
    cluster.server.delete(PADDLE_JOBS, "default", "demo")
    await asyncio.sleep(5)
    assert cluster.server.get(PODS, "default", "demo-worker-0") is not None
    cluster.server.admission.append(refuse)
    await cluster.operate(300)
    assert cluster.server.objects(PODS) == []


@simulated
async def test_an_elastic_job_runs_with_the_workers_that_a_quota_allows():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())

    def two_pods(request) -> None:
        if request.verb == "create" and request.resource == PODS and len(cluster.pods()) >= 2:
            raise refusals.forbidden(PODS, request.name, "exceeded quota: team")

    cluster.server.admission.append(two_pods)
    async with cluster.running(volcano=False):
        cluster.submit(job().worker(4).spec(elastic=1))
        await asyncio.sleep(3600)
    status = cluster.status()
    assert (status["phase"], status["worker"]["ready"]) == ("Running", "2/2")
    assert "2 of 4 workers running; cannot create Pod demo-worker-2: " in status["message"]
