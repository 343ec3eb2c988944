"""Gangs of Volcano on a real API server, with Volcano's own schema; only its scheduler is simulated.

A control plane of its own: whether Volcano is installed is a fact about a whole cluster.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from devcluster import ApiError, ControlPlane
from documents import files
from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.operator.gang_stage import GangStage, VolcanoStage
from tests.support.definitions import VOLCANO_CRD
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
CPU = {"resources": {"requests": {"cpu": "1", "memory": "1536Mi"}}}
PLAIN = job().ps(1, **CPU).worker(2, **CPU)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane.start() as plane:
        plane.apply(ROOT / "deploy/v1/crd.yaml")
        yield plane


@pytest.fixture(scope="module", params=[False, True], ids=["status in the object", "status as a subresource"])
def volcano(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[bool]:
    """Volcano's definition, as both of its generations have it."""
    install(plane, status_subresource=request.param)
    yield request.param
    uninstall(plane)


def uninstall(plane: ControlPlane) -> None:
    path = CUSTOM_RESOURCE_DEFINITIONS.path(None, VOLCANO_CRD["metadata"]["name"])
    plane.request("DELETE", path)
    eventually(lambda: not is_there(plane, path))


def install(plane: ControlPlane, *, status_subresource: bool) -> None:
    definition = copy.deepcopy(VOLCANO_CRD)
    if status_subresource:
        definition["spec"]["versions"][0]["subresources"] = {"status": {}}
    plane.apply(definition)


def is_there(plane: ControlPlane, path: str) -> bool:
    try:
        plane.request("GET", path)
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


def play(
    plane: ControlPlane,
    act: Callable[[VolcanoStage], Awaitable[None]],
    scheduling: str = "",
    *,
    status_subresource: bool = False,
) -> None:
    """Play an act in a fresh namespace."""
    namespace = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "gang-"}})
    name = namespace["metadata"]["name"]
    plane.await_found(f"/api/v1/namespaces/{name}/serviceaccounts/default")

    async def main() -> None:
        async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
            stage = VolcanoStage(client, name, scheduling, status_subresource=status_subresource)
            await stage.play(act)

    asyncio.run(main())


def test_a_job_waits_until_volcano_is_installed(plane: ControlPlane) -> None:
    async def act(stage: VolcanoStage) -> None:
        await stage.submit(PLAIN)
        await stage.says("does not serve Volcano (scheduling.volcano.sh/v1beta1); install it")
        await asyncio.to_thread(install, plane, status_subresource=False)
        await stage.phase("Running")

    play(plane, act, "volcano")
    uninstall(plane)


def test_the_operators_group_fits_the_schema_and_follows_the_job(plane: ControlPlane, volcano: bool) -> None:
    async def act(stage: VolcanoStage) -> None:
        policy = {"queue": "research", "priorityClass": "system-cluster-critical"}
        await stage.submit(job().worker(2, **CPU).spec(schedulingPolicy=policy))
        await stage.until(lambda: has_phase(stage, "Running"), "the group runs")
        group = await stage.group()
        assert group["spec"] == {
            "minMember": 2,
            "minResources": {"cpu": "2", "memory": "3Gi"},
            "queue": "research",
            "priorityClassName": "system-cluster-critical",
        }
        await stage.edit(worker={"replicas": 3})
        await stage.until(lambda: has_size(stage, 3), "the group grows")
        await stage.phase("Running")
        assert (await stage.group())["spec"]["minResources"] == {"cpu": "3", "memory": "4608Mi"}
        await stage.until(lambda: has_phase(stage, "Running"), "what the scheduler wrote survives the change")
        await stage.edit(suspend=True)
        await stage.gone(VOLCANO_POD_GROUPS)

    play(plane, act, status_subresource=volcano)


async def has_phase(stage: GangStage, phase: str) -> bool:
    group = await stage.group()
    return group is not None and group.get("status", {}).get("phase") == phase


async def has_size(stage: GangStage, members: int) -> bool:
    return bool((await stage.group())["spec"]["minMember"] == members)


def test_a_gang_that_does_not_fit_leaves_nothing_bound(plane: ControlPlane, volcano: bool) -> None:
    async def act(stage: VolcanoStage) -> None:
        stage.volcano.capacity = {"cpu": "2", "memory": "32Gi"}
        await stage.submit(PLAIN)
        await stage.says("NotEnoughResources")
        assert await stage.names(PODS) == []
        stage.volcano.capacity = {"cpu": "3", "memory": "32Gi"}
        await stage.phase("Running")

    play(plane, act, "volcano", status_subresource=volcano)


@pytest.mark.parametrize("order", ["as in the file", "the other way round"])
@pytest.mark.parametrize("scheduling", ["", "volcano"])
def test_the_documents_file_works_unchanged(plane: ControlPlane, volcano, order, scheduling) -> None:
    documents = files.manifests()["003-guide-3-paddlejob-podgroup"]
    ordered = documents if order == "as in the file" else documents[::-1]

    async def act(stage: VolcanoStage) -> None:
        for index in range(2):
            stage.fates.set(f"wide-ande-deep-worker-{index}", Exit(0, 0.5))
        for document in ordered:
            resource = PADDLE_JOBS if document["kind"] == "PaddleJob" else VOLCANO_POD_GROUPS
            await stage.client.create(resource, stage.namespace, document, strict=True)
        await stage.phase("Completed", "wide-ande-deep")
        group = await stage.group("wide-ande-deep")
        assert group["spec"] == {"minMember": 4, "queue": "default"}
        assert "ownerReferences" not in group["metadata"]
        pods = await stage.client.list(PODS, stage.namespace)
        assert {pod["spec"]["schedulerName"] for pod in pods.items} == {"volcano"}
        assert len(pods.items) == 4

    play(plane, act, scheduling, status_subresource=volcano)


def test_the_authors_group_is_neither_changed_nor_deleted(plane: ControlPlane, volcano: bool) -> None:
    async def act(stage: VolcanoStage) -> None:
        body = {
            "apiVersion": VOLCANO_POD_GROUPS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": "demo"},
            "spec": {"minMember": 1, "queue": "mine"},
        }
        await stage.client.create(VOLCANO_POD_GROUPS, stage.namespace, body)
        for index in range(2):
            stage.fates.set(f"demo-worker-{index}", Exit(0, 0.2))
        await stage.submit(job().ps(1, **CPU).worker(2, **CPU).spec(ttlSecondsAfterFinished=1))
        # The job itself is the last thing that the operator deletes.
        await stage.gone(PADDLE_JOBS)
        assert (await stage.group())["spec"] == {"minMember": 1, "queue": "mine"}

    play(plane, act, "volcano", status_subresource=volcano)
