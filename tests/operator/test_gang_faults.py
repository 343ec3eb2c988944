"""Gangs on a bad network: whatever goes wrong, the user's group is left alone and the operator's own goes."""

from __future__ import annotations

import asyncio
import random

import pytest

from paddlejob.testing.build import JobBuilder, job
from paddlejob.testing.faults.transport import FaultRates
from paddlejob.testing.kubelet.outcomes import Exit, RunForever
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

CPU = {"resources": {"requests": {"cpu": "1"}}}


def train_well(pod, container, restarts):
    return RunForever() if "-ps-" in pod["metadata"]["name"] else Exit(after_seconds=200)


def draw(rng: random.Random, *, documented: bool) -> JobBuilder:
    """Draw a job."""
    pod = {"schedulerName": "volcano"} if documented else {}
    built = job().worker(rng.choice((1, 2, 3)), pod=pod, **CPU)
    if rng.random() < 0.5:
        built.ps(rng.choice((1, 2)), **CPU)
    if rng.random() < 0.3:
        built.spec(schedulingPolicy={"queue": "q"})
    if rng.random() < 0.2:
        built.spec(elastic=1)
    return built.spec(
        cleanPodPolicy=rng.choice(("Always", "Never", "OnCompletion")), withGloo=rng.choice((0, 1))
    )


async def disturb(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Do to the job and the cluster what users and platforms do."""
    for _ in range(rng.choice((0, 1, 3))):
        await asyncio.sleep(rng.uniform(0, 40))
        deed = rng.choice(("scale", "suspend", "shrink", "grow"))
        if deed == "scale":
            cluster.edit(worker={"replicas": rng.choice((1, 2, 3))})
        elif deed == "suspend":
            cluster.edit(suspend=True)
            await asyncio.sleep(rng.uniform(1, 20))
            cluster.edit(suspend=False)
        else:
            cluster.volcano.capacity = {"cpu": "1" if deed == "shrink" else "8"}


@pytest.mark.parametrize("seed", range(40))
@simulated
async def test_history(seed: int) -> None:
    rng = random.Random(seed)
    documented = rng.random() < 0.4
    cluster = SimulatedCluster(
        behaviour=train_well, seed=seed, rates=FaultRates.everything(rng.choice((0.02, 0.1)))
    )
    scheduling = rng.choice(("volcano", "auto")) if not documented else rng.choice(("", "volcano"))
    async with cluster.running(scheduling):
        cluster.submit(draw(rng, documented=documented))
        if documented:
            await asyncio.sleep(rng.uniform(0, 4))
            cluster.submit_group(minMember=1)
        await disturb(cluster, rng)
        cluster.faults.heal()
        cluster.volcano.capacity = {"cpu": "8"}
        await cluster.until_phase("Completed", within_seconds=2400)
        await asyncio.sleep(120)
        check(cluster, users_group=documented)


def check(cluster: SimulatedCluster, *, users_group: bool) -> None:
    """Check what must hold at the end."""
    group = cluster.group()
    if users_group:
        assert group is not None
        assert group["spec"] == {"minMember": 1}
    else:
        assert group is None
    touched = [
        write.verb
        for write in cluster.server.log.writes
        if write.identity == "operator" and write.resource == "podgroups" and write.changed
    ]
    assert not users_group or touched == []
    assert users_group or touched.count("create") == touched.count("delete") > 0
