"""An operator beside the CustomResourceDefinition of an older release, which drops fields of a status."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import msgspec
import pytest

from paddlejob.api.crd.definition import CRD_NAME, crd_v1, crd_v1beta1, dropped_status_fields, sample_status
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS
from paddlejob.kube.transport import Transport
from paddlejob.operator import status
from paddlejob.operator.status import DroppedFieldsError, StatusSchema
from simkube.apiserver import refusals
from simkube.build import job
from simkube.kubelet.outcomes import RunForever, crash
from tests.operator.log_transport import Logs
from tests.support import inherited
from tests.support.definitions import PADDLE_JOB_CRD, definition
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

FIRST_RELEASE = definition("tests/release/released/crd-0.1.0.yaml")
OLD = {"0.1.0": FIRST_RELEASE, "paddle-operator": inherited.definition()}
old_definitions = pytest.mark.parametrize("old", OLD.values(), ids=OLD)
FIELD_COUNT = len(msgspec.structs.fields(PaddleJobStatus))


def _definition(status: dict, **spec) -> dict:
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"status": status}}}}
    return {"spec": {"versions": [version], **spec}}


def test_the_shipped_definition_drops_no_field():
    assert dropped_status_fields(crd_v1()) == ()
    assert dropped_status_fields(PADDLE_JOB_CRD) == ()


def test_a_definition_that_keeps_unknown_fields_drops_none():
    assert dropped_status_fields(_definition({"x-kubernetes-preserve-unknown-fields": True})) == ()
    assert dropped_status_fields(_definition({}, preserveUnknownFields=True)) == ()
    old_cluster = crd_v1beta1()["spec"]
    assert dropped_status_fields({"spec": {**old_cluster, "preserveUnknownFields": True}}) == ()


def test_a_missing_object_is_one_field_and_a_missing_part_of_it_another():
    status = crd_v1()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del status["properties"]["goodput"]
    del status["properties"]["lastFailure"]["properties"]["counted"]
    del status["properties"]["conditions"]["items"]["properties"]["reason"]
    assert set(dropped_status_fields(_definition(status))) == {
        "status.goodput",
        "status.lastFailure.counted",
        "status.conditions[].reason",
    }


def test_an_empty_status_drops_every_field():
    assert len(dropped_status_fields(_definition({}))) == FIELD_COUNT


@pytest.mark.parametrize(
    ("patch", "stored", "missing"),
    [
        ({"attempt": 1}, b'{"attempt":1}', ""),
        ({"attempt": 1}, b"{}", "status.attempt"),
        ({"progressMark": {"epoch": 1, "step": 2}}, b'{"progressMark":{"epoch":1}}', "progressMark.step"),
        ({"retryTime": None, "lastFailure": {"time": None}}, b'{"lastFailure":{}}', ""),
        ({"attempt": 1}, b"[" * 5000, ""),
    ],
)
def test_a_stored_status_is_compared_with_the_patch(patch, stored, missing):
    schema = StatusSchema(None)
    with pytest.raises(DroppedFieldsError) if missing else nullcontext():
        schema.check_write(patch, msgspec.Raw(stored))
    assert missing in "".join(schema.problems())
    assert bool(schema.problems()) == bool(missing)


def _crashing() -> SimulatedCluster:
    return SimulatedCluster(behaviour=lambda *_: crash(137, after_seconds=1.0))


def _upgrade(cluster: SimulatedCluster) -> None:
    spec = PADDLE_JOB_CRD["spec"]
    cluster.server.patch(CUSTOM_RESOURCE_DEFINITIONS, "", CRD_NAME, {"spec": spec}, identity="admin")


def _writes(cluster: SimulatedCluster, resource: str) -> int:
    """Count the writes of the operator that changed a resource, or any."""
    writes = [each for each in cluster.server.log.writes if each.identity == "operator" and each.changed]
    return sum(each.resource == (resource or each.resource) for each in writes)


@old_definitions
@simulated
async def test_no_job_is_reconciled_until_the_definition_is_upgraded(old, caplog):
    cluster = _crashing()
    cluster.server.create(CUSTOM_RESOURCE_DEFINITIONS, old)
    cluster.submit(job().worker(1))
    async with cluster.running(volcano=False):
        await asyncio.sleep(600)
        assert _writes(cluster, "pods") == _writes(cluster, PADDLE_JOBS.plural) == 0
        [problem] = cluster.controller.schema.problems()
        assert f"{CRD_NAME} is too old and drops status." in problem
        assert "paddlejob install --apply" in problem
        assert caplog.text.count(problem) == 1
        _upgrade(cluster)
        await cluster.until_phase("Failed", within_seconds=600)
        assert cluster.controller.schema.problems() == []


@old_definitions
@simulated
async def test_a_definition_that_cannot_be_read_is_found_by_a_dry_run(old):
    """As for an operator of one namespace, whose Role cannot grant the right to read definitions."""
    cluster = _crashing()
    cluster.server.install(old)
    cluster.server.forbidden.add(CUSTOM_RESOURCE_DEFINITIONS)
    cluster.submit(job().worker(2))
    async with cluster.running(volcano=False):
        await cluster.until(lambda: bool(cluster.controller.schema.problems()))
        cluster.submit(job("other").worker(2))
        await asyncio.sleep(3600)
        assert _writes(cluster, "") == 0
        cluster.server.install(PADDLE_JOB_CRD)
        await cluster.until_phase("Failed", within_seconds=600)
        assert cluster.controller.schema.problems() == []


@old_definitions
@simulated
async def test_a_definition_that_is_replaced_by_an_older_one_stops_the_operator(old):
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    async with cluster.running(volcano=False):
        cluster.submit(job().worker(2))
        await cluster.until_phase("Running")
        cluster.server.install(old)
        cluster.submit(job("other").worker(1))
        await cluster.until(lambda: bool(cluster.controller.schema.problems()))
        before = _writes(cluster, "")
        cluster.server.delete(PODS, "default", "demo-worker-0", identity="user")
        await asyncio.sleep(3600)
        assert _writes(cluster, "") == before
        cluster.server.install(PADDLE_JOB_CRD)
        await cluster.until_phase("Running", within_seconds=600)
        await cluster.until_phase("Running", "other", within_seconds=600)
        assert cluster.controller.schema.problems() == []


@pytest.mark.parametrize("code", [400, 403, 422])
@simulated
async def test_a_server_without_dry_runs_is_believed_until_a_write_loses_fields(code):
    cluster = _crashing()
    cluster.server.install(FIRST_RELEASE)
    cluster.server.forbidden.add(CUSTOM_RESOURCE_DEFINITIONS)
    cluster.client = Client(NoDryRuns(cluster.server.transport("operator"), code), rng=cluster.rng)
    cluster.submit(job().worker(2))
    async with cluster.running(volcano=False):
        await cluster.until(lambda: bool(cluster.controller.schema.problems()))
        cluster.server.install(PADDLE_JOB_CRD)
        await cluster.until(lambda: not cluster.controller.schema.problems())
        await cluster.until_phase("Failed", within_seconds=600)


class NoDryRuns(Logs):
    """A transport to a server that refuses dry runs."""

    def __init__(self, transport: Transport, code: int) -> None:
        super().__init__(transport)
        self._refusal = errors.api_error(errors.Status(code, "Refused", "no dry runs"))

    async def request(self, method: str, path: str, **options):
        if "dryRun" in (options.get("query") or {}):
            return refusals.response(self._refusal)
        return await self._transport.request(method, path, **options)


def test_a_sample_has_every_field_that_a_definition_may_drop():
    sample = sample_status()
    assert sample.keys() == {each.encode_name for each in msgspec.structs.fields(PaddleJobStatus)}
    assert msgspec.convert({**sample, "phase": "Running"}, PaddleJobStatus).attempt == 1


@simulated
async def test_an_old_definition_stays_a_problem_while_it_cannot_be_read_again():
    cluster = SimulatedCluster()
    cluster.server.create(CUSTOM_RESOURCE_DEFINITIONS, FIRST_RELEASE)
    async with cluster.running(volcano=False):
        await cluster.until(lambda: bool(cluster.controller.schema.problems()))
        cluster.server.forbidden.add(CUSTOM_RESOURCE_DEFINITIONS)
        await asyncio.sleep(10 * status.RETRY_SECONDS)
        assert cluster.controller.metrics.leader._value.get() == 0
        cluster.server.forbidden.clear()
        _upgrade(cluster)
        await cluster.until(lambda: cluster.controller.metrics.leader._value.get() == 1)
