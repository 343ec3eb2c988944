from __future__ import annotations

import asyncio

import pytest

from paddlejob.api.resources import VOLCANO_POD_GROUPS
from paddlejob.core.actions import (
    AnnotatePod,
    Create,
    Delete,
    DeleteJob,
    Kind,
    PatchGroup,
    RemoveFinalizer,
    ReplaceConfig,
    StopPod,
)
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.errors import TransportError
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.kube.transport.fair_limiter import CONNECTION_LIMIT
from paddlejob.operator.executor import FIRST_BATCH, Executor
from paddlejob.operator.settings import OperatorSettings
from simkube.apiserver import refusals
from simkube.build import job, snapshot
from tests.support.definitions import VOLCANO_CRD
from tests.support.simulated import simulated


async def executor_of(cluster, replicas: int):
    """Return a job, its executor and the pods that it wants."""
    submitted = cluster.submit(job().worker(replicas))
    stage = snapshot(submitted).plan().stages[0]
    return submitted, Executor(cluster.client, Consistency({}), writes_per_job=32), stage


@simulated
async def test_a_stage_is_written_whole(cluster):
    submitted, executor, stage = await executor_of(cluster, 50)
    outcome = await executor.run(submitted, (stage,))
    assert outcome.went_well
    assert len(cluster.pod_names()) == 50


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


@simulated
async def test_a_large_job_leaves_most_connections_to_others(cluster):
    submitted, _, stage = await executor_of(cluster, 500)
    client = _SlowClient(cluster.client)
    limit = OperatorSettings().writes_per_job
    outcome = await Executor(client, Consistency({}), writes_per_job=limit).run(submitted, (stage,))
    assert outcome.went_well
    assert client.most == limit <= CONNECTION_LIMIT / 4


@simulated
async def test_a_refusal_costs_one_batch_not_the_whole_stage(cluster):
    cluster.server.admission.append(_no_pods)
    submitted, executor, stage = await executor_of(cluster, 100)
    outcome = await executor.run(submitted, (stage, stage))
    assert 0 < len(outcome.failures) <= FIRST_BATCH
    assert str(outcome.failures[0]).startswith("cannot create Pod demo-worker-0: ")
    assert len(list(cluster.server.log.select(verb="create", resource="pods"))) <= FIRST_BATCH


def _no_pods(request) -> None:
    if request.resource.plural == "pods":
        raise refusals.forbidden(
            request.resource, request.name, "exceeded quota: team, used: pods=4, limited: pods=4"
        )


@simulated
async def test_an_object_that_is_ours_already_counts_as_done(cluster):
    submitted, executor, stage = await executor_of(cluster, 3)
    await executor.run(submitted, (stage,))
    assert (await executor.run(submitted, (stage,))).went_well


OTHER_OWNER = {"apiVersion": "v1", "kind": "PaddleJob", "name": "demo", "uid": "old", "controller": True}
HELD = {"finalizers": ["example.org/slow"]}
STRANGERS = {
    "somebody else's": ({}, "does not belong to this job"),
    "an earlier job's": ({"ownerReferences": [OTHER_OWNER]}, "of a previous owner still exists"),
    "somebody else's, about to go": (HELD, "of a previous owner still exists"),
}


@pytest.mark.parametrize(("metadata", "sentence"), STRANGERS.values(), ids=STRANGERS.keys())
@simulated
async def test_an_object_of_that_name_is_reported(cluster, metadata, sentence):
    submitted, executor, stage = await executor_of(cluster, 1)
    head = {"name": "demo-worker-0", "namespace": "default", **metadata}
    cluster.server.create(PODS, {**stage[0].manifest, "metadata": head})
    if metadata is HELD:
        cluster.server.delete(PODS, "default", "demo-worker-0")
    outcome = await executor.run(submitted, (stage,))
    assert sentence in outcome.failures[0].message


@simulated
async def test_a_group_of_that_name_is_looked_at_by_the_next_reconcile(cluster):
    cluster.server.install(VOLCANO_CRD)
    submitted, executor, _ = await executor_of(cluster, 1)
    head = {"apiVersion": VOLCANO_POD_GROUPS.api_version, "kind": "PodGroup"}
    manifest = {**head, "metadata": {"name": "demo", "namespace": "default"}}
    cluster.server.create(VOLCANO_POD_GROUPS, manifest)
    outcome = await executor.run(submitted, ((Create(Kind.POD_GROUP, "demo", manifest),),))
    assert outcome.stale
    assert outcome.failures == []


@simulated
async def test_an_object_of_ours_that_is_about_to_go_makes_the_pass_stale(cluster):
    submitted, executor, stage = await executor_of(cluster, 1)
    await executor.run(submitted, (stage,))
    cluster.server.patch(PODS, "default", "demo-worker-0", {"metadata": HELD})
    cluster.server.delete(PODS, "default", "demo-worker-0")
    assert (await executor.run(submitted, (stage,))).stale


@pytest.mark.parametrize("error", [None, TransportError("no route")], ids=["gone", "out of reach"])
@simulated
async def test_an_existing_object_may_be_deleted_or_unreadable(cluster, error, monkeypatch):
    submitted, executor, stage = await executor_of(cluster, 1)
    await executor.run(submitted, (stage,))

    async def get(*args, **options):
        if error:
            raise error
        cluster.server.delete(PODS, "default", "demo-worker-0")
        return await look(*args, **options)

    look = cluster.client.get
    monkeypatch.setattr(cluster.client, "get", get)
    outcome = await executor.run(submitted, (stage,))
    assert outcome.stale is (error is None)
    assert [failure.message for failure in outcome.failures] == ([str(error)] if error else [])


CONFIG = {"metadata": {"name": "demo", "namespace": "default"}}
FAILURES = {
    "create Pod demo-worker-0": Create(Kind.POD, "demo-worker-0", CONFIG),
    "update ConfigMap demo": ReplaceConfig("demo", CONFIG, "1"),
    "update PodGroup demo": PatchGroup(Kind.POD_GROUP, "demo", {}, "spec", {}),
    "annotate Pod demo-worker-0": AnnotatePod("demo-worker-0", "uid", "hash"),
    "stop Pod demo-worker-0": StopPod("demo-worker-0", "uid"),
    "delete Pod demo-worker-0": Delete(Kind.POD, "demo-worker-0", "uid"),
    "delete PaddleJob demo": DeleteJob("demo", "uid"),
    "update PaddleJob example.org/old": RemoveFinalizer("example.org/old"),
}


@pytest.mark.parametrize(("what", "action"), FAILURES.items(), ids=FAILURES.keys())
@simulated
async def test_every_failure_names_the_action_and_the_object(cluster, what, action, monkeypatch):
    submitted, executor, _ = await executor_of(cluster, 1)

    async def fail(*_, **__):
        raise TransportError("no route")

    for verb in ("create", "replace", "patch", "delete"):
        monkeypatch.setattr(cluster.client, verb, fail)
    outcome = await executor.run(submitted, ((action,),))
    assert [str(failure) for failure in outcome.failures] == [f"cannot {what}: no route"]


GONE = {
    "a pod to delete": Delete(Kind.POD, "demo-worker-0", "uid-gone"),
    "a pod to wake": AnnotatePod("demo-worker-0", "uid-gone", "hash"),
    "a pod to stop": StopPod("demo-worker-0", "uid-gone"),
    "a pod to mark": StopPod("demo-worker-0", "uid-gone", "1"),
}


@pytest.mark.parametrize("action", GONE.values(), ids=GONE.keys())
@pytest.mark.parametrize("namesake", [False, True], ids=["nobody there", "another of that name"])
@simulated
async def test_a_deleted_object_is_not_a_failure(cluster, action, namesake):
    submitted, executor, stage = await executor_of(cluster, 1)
    if namesake:
        await executor.run(submitted, (stage,))
    assert (await executor.run(submitted, ((action,),))).went_well
    assert len(cluster.pod_names()) == namesake


@pytest.mark.parametrize("is_bound", [False, True], ids=["unchanged", "bound in the meantime"])
@simulated
async def test_a_pod_is_marked_as_failed_only_if_it_has_no_node(cluster, is_bound):
    submitted, executor, stage = await executor_of(cluster, 1)
    await executor.run(submitted, (stage,))
    metadata = cluster.server.get(PODS, "default", "demo-worker-0")["metadata"]
    if is_bound:
        binding = {"metadata": {"name": "demo-worker-0"}, "target": {"kind": "Node", "name": "node-0"}}
        await cluster.client.create(
            PODS, "default", binding, name="demo-worker-0", subresource="binding", type=dict
        )
    mark = StopPod("demo-worker-0", metadata["uid"], metadata["resourceVersion"])
    assert (await executor.run(submitted, ((mark,),))).went_well
    status = cluster.server.get(PODS, "default", "demo-worker-0")["status"]
    assert (status["phase"], status.get("reason")) == (
        ("Pending", None) if is_bound else ("Failed", "JobEnded")
    )


@simulated
async def test_a_config_map_changed_by_others_makes_the_reconcile_stale(cluster):
    submitted, executor, _ = await executor_of(cluster, 1)
    manifest = {"metadata": {"name": "demo", "namespace": "default"}, "data": {"a": "1"}}
    await executor.run(submitted, ((Create(Kind.CONFIG_MAP, "demo", manifest),),))
    outcome = await executor.run(submitted, ((ReplaceConfig("demo", manifest, "1"),),))
    assert outcome.stale
    assert cluster.server.get(CONFIG_MAPS, "default", "demo")["data"] == {"a": "1"}
