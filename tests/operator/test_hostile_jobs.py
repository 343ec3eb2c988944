"""Whatever a tenant can write into an object concerns that object alone."""

from __future__ import annotations

import msgspec
import pytest

from kube.deep_json import DEPTHS, DeepTransport, deep
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from simkube.build import job
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.slow


async def _submit_too_deep(cluster: SimulatedCluster, levels: int) -> None:
    cluster.client = Client(DeepTransport(cluster.server, "operator", None))
    manifest = job(name="deep").worker(1).manifest
    manifest = {**manifest, "metadata": {"name": "deep", "namespace": "default"}}
    manifest["spec"]["worker"]["template"]["spec"]["x"] = deep(levels)
    cluster.server.create(PADDLE_JOBS, manifest)


@pytest.mark.parametrize("levels", DEPTHS)
@simulated
async def test_a_job_that_is_nested_too_deeply_is_reported_and_harms_no_other(cluster, levels):
    await _submit_too_deep(cluster, levels)
    cluster.submit(job(name="innocent").worker(1))
    await cluster.operate(30)
    assert cluster.pod_names() == ["innocent-worker-0"]
    assert cluster.status("deep")["reason"] == "InvalidSpec"
    assert "nested more than 100 levels deep" in cluster.status("deep")["message"]
    writes = len(list(cluster.server.log.select(verb="patch", resource="paddlejobs/status")))
    await cluster.operate(600)
    assert len(list(cluster.server.log.select(verb="patch", resource="paddlejobs/status"))) == writes

    spec = {"worker": {"template": {"spec": {"x": None}}}}
    cluster.server.patch(PADDLE_JOBS, "default", "deep", {"spec": spec})
    await cluster.operate(30)
    assert cluster.server.get(PODS, "default", "deep-worker-0") is not None


@simulated
async def test_a_job_that_has_ended_stays_ended_when_it_becomes_too_deep(cluster):
    await _submit_too_deep(cluster, 9984)
    ended = {"phase": "Failed", "reason": "BackoffLimitExceeded", "message": "worker-0 failed"}
    cluster.server.patch(PADDLE_JOBS, "default", "deep", {"status": ended}, subresource="status")
    await cluster.operate(60)
    assert cluster.status("deep")["phase"] == "Failed"
    assert cluster.status("deep")["message"] == "worker-0 failed"


LARGEST = 2**63 - 1
DATES = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
)
TIMES = ("activeSince", "attemptTime", "completionTime", "startTime")
PHASES = ("Pending", "Starting", "Running", "Restarting", "Suspended", "Completed", "Failed")
HOSTILE_SPECS = [
    {"activeDeadlineSeconds": LARGEST},
    {"startupDeadlineSeconds": LARGEST},
    {"ttlSecondsAfterFinished": LARGEST},
    {"restartPolicy": {"delaySeconds": LARGEST, "maxDelaySeconds": LARGEST, "nodeLostSeconds": LARGEST}},
    {"restartPolicy": {"permanentExitCodes": [LARGEST]}},
    {"backoffLimit": LARGEST},
    {"schedulingPolicy": {"minAvailable": LARGEST, "minResources": {"cpu": "1e999999999"}}},
    {"managedBy": "x" * 100_000},
    {"intranet": "İ" * 10_000},
]
HOSTILE_STATUSES = [
    *({"phase": phase, field: date} for phase in PHASES for field, date in zip(TIMES, DATES, strict=True)),
    {"hostPort": LARGEST},
    {"attempt": LARGEST, "baseAttempt": LARGEST, "restarts": LARGEST},
    {"attempt": -LARGEST, "restarts": -LARGEST},
    {"workers": LARGEST},
    {"workers": -LARGEST},
    {"workers": -LARGEST, "phase": "Running", "worldSize": {"worker": 2}},
    {"workers": LARGEST, "phase": "Running", "worldSize": {"worker": -2}},
    {"activeSeconds": LARGEST, "activeSince": DATES[0], "phase": "Running"},
    {"message": "x" * 900_000},
    {"lastFailure": {"time": DATES[3], "attempt": LARGEST, "exitCode": LARGEST}},
    {"worldSize": {"attempt": LARGEST, "worker": LARGEST}},
]
STATUS_SPECS = [
    {"intranet": "Host", "activeDeadlineSeconds": 60},
    {"elastic": 1},
    {"activeDeadlineSeconds": -1},
]
LABELS = (names.LABEL_ATTEMPT, names.LABEL_INDEX, names.LABEL_RESOURCE_TYPE, names.LABEL_RESOURCE_NAME)


def _ended(date: str) -> dict:
    ended = {"exitCode": -(2**31), "startedAt": date, "finishedAt": date}
    head = {"name": "a", "image": "a", "imageID": "", "ready": False, "restartCount": 2**31 - 1}
    return {**head, "state": {"terminated": ended}}


HOSTILE_PODS = [
    *({"labels": {label: value}} for label in LABELS for value in ("", "9" * 63, "007", "A.b_c")),
    *({"annotations": {names.ANNOTATION_CONFIG_HASH: value}} for value in ("", "9" * 5000, "[" * 5000)),
    *({"status": {"phase": "Failed", "containerStatuses": [_ended(date)]}} for date in DATES),
    {"status": {"phase": "Running", "podIP": "not an address", "podIPs": [{"ip": "::" * 99}]}},
    {"status": {"phase": "Unheard", "message": "x" * 300_000}},
]


async def _innocent_runs(cluster: SimulatedCluster, caplog) -> None:
    """Nobody but the hostile object is concerned, and even that takes the operator by no surprise."""
    cluster.submit(job("innocent").worker(1))
    await cluster.operate(30)
    assert cluster.server.get(PODS, "default", "innocent-worker-0") is not None
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("fields", HOSTILE_SPECS, ids=lambda fields: str(fields)[:60])
@simulated
async def test_a_spec_of_hostile_values_harms_no_other(cluster, fields, caplog):
    cluster.submit(job("hostile").worker(1).spec(**fields))
    await _innocent_runs(cluster, caplog)


@pytest.mark.parametrize("status", HOSTILE_STATUSES, ids=lambda status: str(status)[:60])
@pytest.mark.parametrize("spec", STATUS_SPECS, ids=str)
@simulated
async def test_a_status_of_hostile_values_harms_no_other(cluster, status, spec, caplog):
    cluster.submit(job("hostile").worker(4).spec(**spec))
    cluster.server.patch(PADDLE_JOBS, "default", "hostile", {"status": status}, subresource="status")
    await _innocent_runs(cluster, caplog)


@pytest.mark.parametrize("pod", HOSTILE_PODS, ids=lambda pod: str(pod)[:60])
@simulated
async def test_a_pod_of_hostile_values_harms_no_other(cluster, pod, caplog):
    """One that claims to be the job's; anybody who may create pods can write that."""

    hostile = cluster.submit(job("hostile").worker(1))
    metadata = {
        "name": "hostile-worker-0",
        "namespace": "default",
        "labels": {names.LABEL_RESOURCE_TYPE: "worker", **pod.get("labels", {})},
        "annotations": pod.get("annotations", {}),
        "ownerReferences": [msgspec.to_builtins(hostile.owner_reference)],
    }
    spec = {"containers": [{"name": "a", "image": "a"}]}
    cluster.server.create(PODS, {"metadata": metadata, "spec": spec})
    status = {"status": pod.get("status", {})}
    cluster.server.patch(PODS, "default", "hostile-worker-0", status, subresource="status")
    await _innocent_runs(cluster, caplog)
