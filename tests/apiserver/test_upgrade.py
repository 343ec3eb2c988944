"""From paddle-operator 0.3.5 to this one, with jobs in every state, by the commands that the guide shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from behaviour.stage import QUICK, Stage
from devcluster import ControlPlane
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from scripts import manifests
from simkube.build import job
from simkube.kubelet.kubelet import Kubelet
from tests.apiserver import installed
from tests.support import inherited
from tests.support.inherited import Inheritance, killed, running, succeeded

Story = Callable[[Inheritance], Awaitable[None]]
STARTED = "2026-01-01T00:00:00Z"
ENDED = "2036-01-01T00:00:00Z"
"""After the pods were made, whenever the test runs."""
PODS_OF_DEMO = ["demo-ps-0", "demo-worker-0", "demo-worker-1"]

pytestmark = pytest.mark.usefixtures("kubectl")


async def trains(left: Inheritance, *, second_worker=running, **spec) -> None:
    """A parameter server job that is at it."""
    await left.job({"ps": 1, "worker": 2}, **spec)
    await left.pod("ps", 0, running("10.0.0.1"))
    await left.pod("worker", 0, running("10.0.0.2"))
    await left.pod("worker", 1, second_worker("10.0.0.3"))
    await left.config(PADDLE_PSERVERS_IP_PORT_LIST=f"10.0.0.1:{inherited.PORT}")
    counts = {"pending": 0, "starting": 0, "failed": 0, "succeeded": 0}
    refs = [{"kind": "Pod", "name": "demo-ps-0", "resourceVersion": "1"}]
    workers = {**counts, "running": 2, "refs": []}
    await left.status(
        phase="Running",
        mode="PS",
        startTime=STARTED,
        ps={**counts, "running": 1, "refs": refs},
        worker=workers,
    )


async def has_trained(left: Inheritance) -> None:
    """Its workers are done, its server is not: that operator waits for it forever."""
    await left.job({"ps": 1, "worker": 1}, cleanPodPolicy="Never")
    await left.pod("ps", 0, running("10.0.0.1"))
    await left.pod("worker", 0, succeeded("10.0.0.2"))
    await left.config()
    await left.status(phase="Running", mode="PS", startTime=STARTED)


async def begins(left: Inheritance) -> None:
    """Some pods wait for the others, and one was not made yet."""
    await left.job({"ps": 1, "worker": 2})
    await left.pod("ps", 0, {"phase": "Pending", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]})
    await left.pod("worker", 0)
    await left.status(phase="Pending", mode="PS")


def ended(phase: str) -> Story:
    async def story(left: Inheritance) -> None:
        await left.job({"worker": 1}, cleanPodPolicy="Never")
        await left.pod("worker", 0, succeeded("10.0.0.1") if phase == "Completed" else killed("10.0.0.1"))
        await left.config()
        await left.status(phase=phase, mode="Single", startTime=STARTED, completionTime=ENDED)

    return story


STORIES: dict[str, Story] = {
    "trains": trains,
    "trains-by-name": lambda left: trains(left, intranet="Service"),
    "lost-a-worker": lambda left: trains(left, second_worker=killed, withGloo=0),
    "lost-a-worker-by-name": lambda left: trains(left, second_worker=killed, intranet="Service"),
    "has-trained": has_trained,
    "begins": begins,
    "completed": ended("Completed"),
    "failed": ended("Failed"),
    "deleted": trains,
}


@pytest.fixture(scope="module")
def upgraded() -> Iterator[ControlPlane]:
    """A cluster that had paddle-operator until a moment ago, with the job of every story in a namespace."""
    with ControlPlane.start() as plane:
        for each in (inherited.definition(), *inherited.operator()):
            plane.kubectl("create", "-f", "-", stdin=json.dumps(each))
        plane.kubectl("wait", "--for=condition=Established", "crd/paddlejobs.batch.paddlepaddle.org")
        installed.refresh_garbage_collector(plane)
        asyncio.run(tell_stories(plane))
        plane.kubectl("-n", "paddle-system", "delete", "deployment", "paddle-controller-manager")
        files = (f"--filename={installed.CRD}", f"--filename={installed.OPERATOR}")
        plane.kubectl("apply", "--server-side", "--force-conflicts", *files)
        yield plane


async def tell_stories(plane: ControlPlane) -> None:
    async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
        for name, story in STORIES.items():
            plane.kubectl("create", "namespace", name)
            await story(Inheritance(client, name, "demo"))


@asynccontextmanager
async def afterwards(plane: ControlPlane, story: str) -> AsyncIterator[Stage]:
    """Run this operator where a story was told, and a kubelet for the pods that it makes."""
    async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
        stage = Stage(client, story)
        stage.kubelet = Kubelet(
            client,
            behaviour=stage.fates.decide,
            namespace=story,
            timing=QUICK,
            label_selector=names.LABEL_ATTEMPT,
        )
        kubelet = asyncio.create_task(stage.kubelet.run())
        stage.start_operator()
        try:
            await stage.until(lambda: has_no_finalizer(stage), "the finalizer is gone")
            yield stage
        finally:
            await stage.stop_operator()
            kubelet.cancel()
            await asyncio.wait({kubelet})


async def has_no_finalizer(stage: Stage) -> bool:
    return "finalizers" not in (await stage.job())["metadata"]


async def is_settled(stage: Stage) -> bool:
    seen = await stage.job()
    return seen["status"].get("observedGeneration") == seen["metadata"]["generation"]


@pytest.mark.parametrize("story", ["trains", "trains-by-name"])
async def test_a_running_job_trains_on_untouched_and_completes(upgraded, story) -> None:
    async with Client(HttpTransport(load_config(upgraded.kubeconfig))) as client:
        before = await children(Stage(client, story))
    async with afterwards(upgraded, story) as stage:
        await stage.until(lambda: is_settled(stage), "the status is ours")
        status = await stage.status()
        assert (status["phase"], status["ps"]["ready"], status["worker"]["ready"]) == (
            "Running",
            "1/1",
            "2/2",
        )
        assert (status["startTime"], status["message"]) == (STARTED, "1 ps and 2 workers running")
        assert await children(stage) == before
        for worker in ("demo-worker-0", "demo-worker-1"):
            patch = {"status": succeeded("10.0.0.9")}
            await stage.client.patch(PODS, story, worker, patch, subresource="status")
        await stage.phase("Completed")
        await stage.gone(PODS)


async def children(stage: Stage) -> dict[str, str]:
    """Return all objects of a job with their versions."""
    listed = [await stage.client.list(kind, stage.namespace) for kind in (PODS, SERVICES, CONFIG_MAPS)]
    return {
        f"{each['metadata']['name']} {each['metadata']['uid']}": each["metadata"]["resourceVersion"]
        for page in listed
        for each in page.items
    }


async def test_a_job_that_waits_for_its_servers_completes(upgraded) -> None:
    async with afterwards(upgraded, "has-trained") as stage:
        assert (await stage.phase("Completed"))["message"] == "the worker succeeded"
        assert await stage.names() == ["demo-ps-0", "demo-worker-0"]


async def runs_in_attempt(stage: Stage, attempt: int) -> bool:
    status = await stage.status()
    return (status.get("phase"), status.get("attempt")) == ("Running", attempt)


@pytest.mark.parametrize("story", ["begins", "lost-a-worker", "lost-a-worker-by-name"])
async def test_a_job_that_needs_new_pods_gets_all_of_them(upgraded, story) -> None:
    async with afterwards(upgraded, story) as stage:
        # The earlier operator's status may say Running already.
        await stage.until(lambda: runs_in_attempt(stage, 1), "all pods of the new attempt run")
        assert await stage.names() == PODS_OF_DEMO
        pods = [await stage.pod(name) for name in PODS_OF_DEMO]
        assert {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in pods} == {"1"}
        env = stage.kubelet.started("demo-worker-1")[0].environment
        server = f"demo-ps-0.{story}" if story.endswith("by-name") else pods[0]["status"]["podIP"]
        assert env["PADDLE_PSERVERS_IP_PORT_LIST"] == f"{server}:36000"


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
async def test_a_finished_job_stays_as_it_is(upgraded, phase) -> None:
    async with afterwards(upgraded, phase.lower()) as stage:
        await stage.submit(job("other").worker(1))
        await stage.phase("Running", "other")
        status = await stage.status()
        assert (status["phase"], status["completionTime"]) == (phase, ENDED)
        assert "demo-worker-0" in await stage.names()


async def test_a_job_can_be_deleted(upgraded) -> None:
    async with afterwards(upgraded, "deleted") as stage:
        await stage.client.delete(PADDLE_JOBS, "deleted", "demo")
        await stage.gone(PODS, SERVICES, CONFIG_MAPS)


def test_the_operator_and_its_rights_are_ours(upgraded) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/paddle-manager-role"
    rules = [rule.manifest() for rule in manifests.CLUSTER_RULES]
    assert upgraded.request("GET", path)["rules"] == rules
    path = "/apis/apps/v1/namespaces/paddle-system/deployments/paddle-controller-manager"
    [container] = upgraded.request("GET", path)["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == (manifests.IMAGE, ["paddlejob", "operator"])
