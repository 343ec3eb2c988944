"""A job costs the operator the same among few jobs as among many."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

from simkube.build import job
from simkube.kubelet.outcomes import RunForever
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

OPERATOR = ("/paddlejob/operator/", "/paddlejob/core/", "/paddlejob/kube/", "/paddlejob/history/")


async def calls_per_job(jobs: int) -> float:
    """Return how many functions of the operator are called until so many jobs run, and a while longer."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and any(part in frame.f_code.co_filename for part in OPERATOR)

    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    async with cluster.running(volcano=False):
        await asyncio.sleep(1)
        sys.setprofile(count)
        try:
            for number in range(jobs):
                cluster.submit(job(f"job-{number}").ps(1).worker(2))
            await asyncio.sleep(60)
        finally:
            sys.setprofile(None)
        for number in range(jobs):
            assert cluster.status(f"job-{number}")["phase"] == "Running"
    return calls / jobs


@simulated
async def test_the_cost_of_a_job_does_not_grow_with_the_jobs_that_there_are():
    few, many = await calls_per_job(5), await calls_per_job(60)
    assert many < 1.2 * few, (few, many)
