from __future__ import annotations

import asyncio

import pytest

from paddlejob.core.actions import AnnotatePod, Create, Delete, Kind, ReplaceConfig
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.kube.transport.http import CONNECTION_LIMIT
from paddlejob.operator.executor import FIRST_BATCH, Executor
from paddlejob.operator.settings import OperatorSettings
from paddlejob.testing.apiserver import fake_refusals
from paddlejob.testing.build import job, snapshot
from tests.operator.small_cluster import on_a_cluster


async def executor_of(cluster, replicas: int):
    """Return a job, its executor and the pods that it wants."""
    submitted = await cluster.submit(job().worker(replicas))
    stage = snapshot(submitted).plan().stages[0]
    return submitted, Executor(cluster.client, Consistency({}), writes_per_job=32), stage


def pods(cluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.server.objects(PODS)]


def test_a_stage_is_written_whole():
    async def act(cluster) -> None:
        submitted, executor, stage = await executor_of(cluster, 50)
        outcome = await executor.run(submitted, (stage,))
        assert outcome.went_well
        assert len(pods(cluster)) == 50

    on_a_cluster(act)


class _SlowClient:
    """Counts the creations in flight."""

    def __init__(self, client) -> None:
        self._client = client
        self._in_flight = self.most = 0

    async def create(self, *arguments, **options):
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        await asyncio.sleep(0.1)
        self._in_flight -= 1
        return await self._client.create(*arguments, **options)


def test_a_large_job_leaves_most_connections_to_others():
    async def act(cluster) -> None:
        submitted, _, stage = await executor_of(cluster, 500)
        client = _SlowClient(cluster.client)
        limit = OperatorSettings().writes_per_job
        outcome = await Executor(client, Consistency({}), writes_per_job=limit).run(submitted, (stage,))
        assert outcome.went_well
        assert client.most == limit <= CONNECTION_LIMIT / 4

    on_a_cluster(act)


def test_a_refusal_costs_one_batch_not_the_whole_stage():
    async def act(cluster) -> None:
        cluster.server.admission.append(_no_pods)
        submitted, executor, stage = await executor_of(cluster, 100)
        outcome = await executor.run(submitted, (stage, stage))
        assert 0 < len(outcome.failures) <= FIRST_BATCH
        assert str(outcome.failures[0]).startswith("cannot create Pod demo-worker-0: ")
        assert len(list(cluster.server.log.select(verb="create", resource="pods"))) <= FIRST_BATCH

    on_a_cluster(act)


def _no_pods(request) -> None:
    if request.resource.plural == "pods":
        raise fake_refusals.forbidden(
            request.resource, request.name, "exceeded quota: team, used: pods=4, limited: pods=4"
        )


def test_an_object_that_is_ours_already_counts_as_done():
    async def act(cluster) -> None:
        submitted, executor, stage = await executor_of(cluster, 3)
        await executor.run(submitted, (stage,))
        assert (await executor.run(submitted, (stage,))).went_well

    on_a_cluster(act)


def test_a_stranger_of_that_name_is_told():
    async def act(cluster) -> None:
        submitted, executor, stage = await executor_of(cluster, 1)
        stranger = {**stage[0].manifest, "metadata": {"name": "demo-worker-0", "namespace": "default"}}
        cluster.server.create(PODS, stranger)
        outcome = await executor.run(submitted, (stage,))
        assert "does not belong to this job" in outcome.failures[0].message

    on_a_cluster(act)


GONE = {
    "a pod to delete": Delete(Kind.POD, "demo-worker-0", "uid-gone"),
    "a pod to wake": AnnotatePod("demo-worker-0", "uid-gone", "hash"),
}


@pytest.mark.parametrize("action", GONE.values(), ids=GONE.keys())
@pytest.mark.parametrize("namesake", [False, True], ids=["nobody there", "another of that name"])
def test_what_is_gone_is_done(action, namesake):
    async def act(cluster) -> None:
        submitted, executor, stage = await executor_of(cluster, 1)
        if namesake:
            await executor.run(submitted, (stage,))
        assert (await executor.run(submitted, ((action,),))).went_well
        assert len(pods(cluster)) == namesake

    on_a_cluster(act)


def test_a_config_that_changed_meanwhile_makes_the_pass_stale():
    async def act(cluster) -> None:
        submitted, executor, _ = await executor_of(cluster, 1)
        manifest = {"metadata": {"name": "demo", "namespace": "default"}, "data": {"a": "1"}}
        await executor.run(submitted, ((Create(Kind.CONFIG_MAP, "demo", manifest),),))
        outcome = await executor.run(submitted, ((ReplaceConfig("demo", manifest, "1"),),))
        assert outcome.stale
        assert cluster.server.get(CONFIG_MAPS, "default", "demo")["data"] == {"a": "1"}

    on_a_cluster(act)
