"""What the operator remembers does not grow with the jobs that have come and gone."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys

import pytest

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube import cache
from paddlejob.kube.events import EventLimits
from paddlejob.kube.resource import PODS
from paddlejob.operator.settings import OperatorSettings
from simkube.build import job
from simkube.operator import Operator
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

pytestmark = pytest.mark.slow

CONTAINERS = (dict, list, set, tuple)
PACKAGES = ("paddlejob.api", "paddlejob.core", "paddlejob.history", "paddlejob.kube", "paddlejob.operator")
"""What an operator consists of."""


def _entries(root: object) -> int:
    """Count what can be reached from an object through our own objects and containers."""
    seen: set[int] = set()
    pending, entries = [root], 0
    while pending:
        found = pending.pop()
        ours = type(found).__module__.startswith(("paddlejob.kube", "paddlejob.operator"))
        if id(found) in seen or not (ours or isinstance(found, CONTAINERS)):
            continue
        if type(found).__module__.startswith("paddlejob.kube.client"):
            continue  # behind it is the server of the test
        seen.add(id(found))
        entries += len(found) if isinstance(found, CONTAINERS) else 0
        pending += gc.get_referents(found)
    return entries


async def _churn(cluster: SimulatedCluster, numbers: range) -> None:
    for number in numbers:
        cluster.submit(job(f"job-{number}").ps(1).worker(2).spec(cleanPodPolicy="Always"))
        await asyncio.sleep(3)
    await asyncio.sleep(120)
    for number in numbers:
        assert cluster.status(f"job-{number}")["phase"] == "Completed"
        cluster.server.delete(PADDLE_JOBS, "default", f"job-{number}")
    await asyncio.sleep(120)
    assert not cluster.server.objects(PODS)


@simulated
async def test_memory_does_not_grow_with_deleted_jobs(cluster, monkeypatch):
    monkeypatch.setattr(cache, "_SPARE_PARTS", 20)

    settings, limits = OperatorSettings(workers=4), EventLimits(remembered=20)
    operator = Operator(cluster.client, settings, event_limits=limits)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in (operator, cluster.kubelet)]
        remembered = []
        for first in range(0, 100, 20):
            await _churn(cluster, range(first, first + 20))
            remembered.append(_entries(operator.controller))
        assert max(remembered[1:]) < remembered[0] + 100, remembered
        for task in tasks:
            task.cancel()


def test_no_function_remembers_its_results_for_more_than_a_few_hundred_jobs():
    by_type_or_mode = {"_bounded_fields", "_written", "network_of"}
    """The arguments of these functions, if any, do not come from a job."""
    limits = {
        name: each.cache_parameters()["maxsize"]
        for module, loaded in list(sys.modules.items())
        if module.startswith(PACKAGES)
        for name, each in vars(loaded).items()
        if isinstance(each, functools._lru_cache_wrapper) and name not in by_type_or_mode
    }
    assert limits
    assert all(limit is not None and limit <= 256 for limit in limits.values()), limits
