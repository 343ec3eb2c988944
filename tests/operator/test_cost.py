"""What a job costs the API server and the operator, however slowly its pods come."""

from __future__ import annotations

import asyncio

import pytest

from simkube.build import job
from simkube.kubelet.outcomes import RunForever
from simkube.kubelet.pod_worker import Timing
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

WORKERS = 100


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(behaviour=lambda *_: RunForever(), timing=Timing(start_seconds=(1.0, 30.0)))


async def started(cluster: SimulatedCluster, *, workers: int) -> None:
    async with cluster.running(volcano=False):
        cluster.submit(job().worker(workers))
        await asyncio.sleep(60)
    assert cluster.status()["phase"] == "Running"


@simulated
async def test_a_job_with_pods_that_start_one_by_one_is_reconciled_rarely(cluster):
    await started(cluster, workers=WORKERS)
    passes = cluster.controller.metrics.reconciles.collect()[0].samples
    assert sum(sample.value for sample in passes if sample.name.endswith("_total")) < 30


@simulated
async def test_mere_counts_are_written_once_in_five_seconds(cluster):
    await started(cluster, workers=WORKERS)
    writes = list(cluster.server.log.select(verb="patch", resource="paddlejobs", identity="operator"))
    assert len(writes) < 12


@simulated
async def test_a_small_job_costs_no_write_too_many(cluster):
    await started(cluster, workers=1)
    by = {"identity": "operator"}
    assert len(list(cluster.server.log.select(resource="paddlejobs", **by))) <= 4
    assert len(list(cluster.server.log.select(resource="pods", **by))) <= 2
    assert len(list(cluster.server.log.select(resource="events", **by))) <= 1


@simulated
async def test_a_job_of_four_pods_starts_with_thirteen_writes():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    async with cluster.running(volcano=False):
        cluster.submit(job().ps(2).worker(2))
        await cluster.until_phase("Running")
        await asyncio.sleep(10)
    # 4 pods, each created and woken, the ConfigMap, 3 statuses, 1 event.
    assert len(list(cluster.server.log.select(identity="operator"))) == 13
