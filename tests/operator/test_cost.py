"""What a job costs the API server and the operator, however slowly its pods come."""

from __future__ import annotations

import asyncio
import random

from paddlejob.kube.client import Client
from paddlejob.testing.build import job
from paddlejob.testing.kubelet.kubelet import Kubelet
from paddlejob.testing.kubelet.outcomes import RunForever
from paddlejob.testing.kubelet.pod_worker import Timing
from tests.operator.small_cluster import on_a_cluster

WORKERS = 100
SLOW = Timing(start_seconds=(1.0, 30.0))


async def started(cluster, *, workers):
    kubelet = Kubelet(
        Client(cluster.server.transport("kubelet")),
        behaviour=lambda *_: RunForever(),
        rng=random.Random(0),
        timing=SLOW,
    )
    running = asyncio.create_task(kubelet.run())
    await cluster.submit(job().worker(workers))
    await cluster.operate(60)
    running.cancel()
    await asyncio.wait([running])
    assert cluster.status()["phase"] == "Running"


def test_a_job_whose_pods_come_one_by_one_is_looked_at_now_and_then():
    async def act(cluster) -> None:
        await started(cluster, workers=WORKERS)
        passes = cluster.controller.metrics.reconciles.collect()[0].samples
        assert sum(sample.value for sample in passes if sample.name.endswith("_total")) < 30

    on_a_cluster(act)


def test_mere_counts_are_written_once_in_five_seconds():
    async def act(cluster) -> None:
        await started(cluster, workers=WORKERS)
        writes = list(cluster.server.log.select(verb="patch", resource="paddlejobs", identity="operator"))
        assert len(writes) < 12

    on_a_cluster(act)


def test_a_small_job_costs_no_write_too_many():
    async def act(cluster) -> None:
        await started(cluster, workers=1)
        by = {"identity": "operator"}
        assert len(list(cluster.server.log.select(resource="paddlejobs", **by))) <= 4
        assert len(list(cluster.server.log.select(resource="pods", **by))) <= 2
        assert len(list(cluster.server.log.select(resource="events", **by))) <= 2

    on_a_cluster(act)
