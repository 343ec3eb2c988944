"""Gangs of Kubernetes itself: a real API server, a real scheduler and the operator; nodes exist on paper.

Nothing is said here of what a scheduler would do: it is the kube-scheduler of 1.36 that binds, or does not.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddlejob.api.resources import POD_GROUPS_V1ALPHA2
from paddlejob.kube.resource import PODS
from simkube.build import job
from simkube.kubelet.outcomes import Exit, crash
from tests.gang.nodes import Nodes
from tests.operator.gang_stage import GangStage

pytestmark = pytest.mark.gang

CPU = {"resources": {"requests": {"cpu": "1"}}}
FOUR = job().ps(2, **CPU).worker(2, **CPU)


async def all_bound(stage: GangStage, count: int) -> None:
    async def they_are() -> bool:
        return len(await stage.bound()) == count

    await stage.until(they_are, f"{count} pods have a node")


async def scheduler_has_tried(stage: GangStage) -> None:
    """Wait until the scheduler has said of the gang that it has no place for it."""

    async def it_has() -> bool:
        group = await stage.group()
        conditions = (group or {}).get("status", {}).get("conditions") or ()
        return any(one["type"] == "PodGroupScheduled" and one["status"] == "False" for one in conditions)

    await stage.until(it_has, "the scheduler has tried")


def min_count(group: dict[str, Any] | None) -> int:
    assert group is not None
    return int(group["spec"]["schedulingPolicy"]["gang"]["minCount"])


def test_a_gang_that_does_not_fit_leaves_nothing_bound(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=3)
        await stage.submit(FOUR)
        await scheduler_has_tried(stage)
        await stage.says("waiting for PodGroup demo: Unschedulable")
        assert await stage.bound() == []
        await asyncio.to_thread(nodes.add, cpu=1)
        await all_bound(stage, 4)
        await stage.phase("Running")

    perform(act)


def test_without_a_gang_the_same_job_takes_what_it_can_get(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=3)
        await stage.submit(FOUR)
        await all_bound(stage, 3)
        assert await stage.group() is None

    perform(act, "")


def test_two_gangs_that_fit_one_at_a_time_do_not_block_each_other(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        for name in ("one", "two"):
            stage.fates.set(f"{name}-worker-0", Exit(0, 0.3))
            stage.fates.set(f"{name}-worker-1", Exit(0, 0.3))
            await stage.submit(job(name).ps(2, **CPU).worker(2, **CPU).spec(cleanPodPolicy="Always"))
        nodes.add(cpu=4)
        await stage.phase("Completed", "one")
        await stage.phase("Completed", "two")

    perform(act)


def test_a_policy_is_enough_where_there_is_no_volcano(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=2)
        await stage.submit(job().worker(3, **CPU).spec(schedulingPolicy={"minAvailable": 2}))
        await all_bound(stage, 2)
        assert min_count(await stage.group()) == 2

    perform(act, "")


def test_the_group_goes_when_the_job_is_done(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=4)
        stage.fates.set("demo-worker-0", Exit(0, 0.3))
        stage.fates.set("demo-worker-1", Exit(0, 0.3))
        await stage.submit(FOUR)
        await stage.phase("Completed")
        await stage.gone(POD_GROUPS_V1ALPHA2)

    perform(act)


def test_a_restarted_gang_is_placed_together_again(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=2)
        stage.fates.set("demo-worker-0", crash(137, after_seconds=0.3))
        restarts = {"delaySeconds": 1, "maxDelaySeconds": 1}
        await stage.submit(job().worker(2, **CPU).spec(restartPolicy=restarts))
        await stage.phase("Restarting")
        await stage.phase("Running")
        assert (await stage.status())["restarts"] == 1
        assert len(await stage.bound()) == 2

    perform(act)


def test_a_resized_gang_gets_a_group_of_its_new_size(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=4)
        await stage.submit(job().worker(2, **CPU))
        await stage.phase("Running")
        await stage.edit(worker={"replicas": 4})
        await all_bound(stage, 4)
        assert min_count(await stage.group()) == 4

    perform(act)


def test_suspending_and_resuming_gathers_the_gang_again(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=4)
        await stage.submit(FOUR)
        await stage.phase("Running")
        await stage.edit(suspend=True)
        await stage.gone(PODS, POD_GROUPS_V1ALPHA2)
        await stage.edit(suspend=False)
        await all_bound(stage, 4)
        await stage.phase("Running")

    perform(act)


def test_a_lost_worker_is_replaced_though_the_gang_was_larger_once(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(cpu=4)
        await stage.submit(job().ps(1, **CPU).worker(3, **CPU).spec(withGloo=0))
        await stage.phase("Running")
        await stage.edit(worker={"replicas": 2})
        await all_bound(stage, 3)
        await stage.phase("Running")
        lost = (await stage.pod("demo-worker-1"))["metadata"]["uid"]
        await stage.client.delete(PODS, stage.namespace, "demo-worker-1", grace_seconds=0)
        await stage.until(lambda: is_replaced(stage, lost), "another worker-1 has a node")
        await stage.phase("Running")

    async def is_replaced(stage: GangStage, lost: str) -> bool:
        listed = (await stage.client.list(PODS, stage.namespace)).items
        found = [pod for pod in listed if pod["metadata"]["name"] == "demo-worker-1"]
        return any(pod["metadata"]["uid"] != lost and pod["spec"].get("nodeName") for pod in found)

    perform(act)
