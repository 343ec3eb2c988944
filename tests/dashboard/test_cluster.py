"""The dashboard over a cluster: what it tells of jobs, and of a cluster that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddlejob.client.cluster import Cluster
from paddlejob.testing.build import job
from paddlejob.testing.kubelet.outcomes import Exit
from tests.dashboard.pages import Pages, opened
from tests.support.served_api import ServedCluster, served_cluster


@pytest.fixture
def cluster(tmp_path: Path):
    with served_cluster(tmp_path) as served:
        yield served


@pytest.fixture
async def pages(cluster: ServedCluster) -> AsyncIterator[Pages]:
    async with Cluster.open(kubeconfig=cluster.kubeconfig) as jobs, opened(jobs) as found:
        await found.get("/", query=found.query)
        yield found


async def do(cluster, act):
    """Do something inside the cluster while the dashboard goes on."""
    return await asyncio.to_thread(cluster.do, act)


def running(name):
    return lambda change: any(row["name"] == name and row["phase"] == "Running" for row in change["rows"])


async def test_jobs_of_the_namespace_come_and_go(cluster, pages):
    about = (await pages.get("/api/about")).json
    assert (about["isLocal"], about["namespace"], about["allNamespaces"]) == (False, "default", False)
    async with pages.stream("/api/jobs") as events:
        assert await events.until("all") == []
        await do(cluster, lambda scene: scene.submit(job().worker(2)))
        change = await events.until("change", running("demo"))
        assert change["rows"][0]["ready"] == {"worker": "2/2"}
        await do(cluster, lambda scene: scene.cluster.submit(job("other").worker(1).manifest))
        await events.until("change", running("other"))
        assert (await pages.post("/api/jobs/default/demo/delete")).json == {"message": "deleted"}
        assert (await events.until("change", lambda each: each["gone"]))["gone"] == ["default/demo"]


async def test_a_job_with_its_pods_is_followed_over_a_restart(cluster, pages):
    cluster.scene.hold("demo-worker-1", 137)
    async with pages.stream("/api/jobs") as events:
        await do(cluster, lambda scene: scene.submit(job().worker(2)))
        await events.until("change", running("demo"))
    async with pages.stream("/api/jobs/default/demo/stream?logs=1") as events:
        await events.until("job", lambda each: [rank["state"] for rank in each["ranks"]] == ["Running"] * 2)
        await asyncio.to_thread(cluster.write, "demo-worker-0", "step 1/4 loss: 0.25")
        assert (await events.until("lines"))[0][::3] == ["worker-0", "step 1/4 loss: 0.25"]
        cluster.scene.fates.set("demo-worker-1", Exit(0, 600))
        cluster.let_go("demo-worker-1")
        told = await events.until("job", lambda each: each["attempt"] == 1)
        assert told["failure"]["exitCode"] == 137
        found = await events.until("events", lambda all_: any("attempt 1:" in e["message"] for e in all_))
        assert any("exited with code 137" in each["message"] for each in found)


async def test_a_job_that_is_deleted_ends_its_page(cluster, pages):
    async with pages.stream("/api/jobs") as events:
        await do(cluster, lambda scene: scene.submit(job().worker(1)))
        await events.until("change", running("demo"))
    async with pages.stream("/api/jobs/default/demo/stream") as events:
        await events.until("job")
        await pages.post("/api/jobs/default/demo/delete")
        await events.until("gone")


async def test_a_cluster_that_goes_away_and_comes_back_is_told(cluster, pages):
    async with pages.stream("/api/jobs") as events:
        await events.until("all")
        await asyncio.to_thread(cluster.go_away)
        told = await events.until("state", lambda each: each["state"] == "disconnected")
        assert told["message"]
        await asyncio.to_thread(cluster.come_back)
        await events.until("state", lambda each: each["state"] == "live")


async def test_a_cluster_that_is_away_at_the_start_is_told(cluster):
    await asyncio.to_thread(cluster.go_away)
    async with Cluster.open(kubeconfig=cluster.kubeconfig) as jobs, opened(jobs) as pages:
        await pages.get("/", query=pages.query)
        async with pages.stream("/api/jobs") as events:
            await asyncio.to_thread(cluster.come_back)
            await events.until("state", lambda each: each["state"] == "live")


async def test_a_manifest_that_the_server_refuses_is_told_with_its_problems(cluster, pages):
    import json

    manifest = job().worker(1).manifest
    body = {**manifest, "metadata": {"name": "demo", "labels": {"a": "not a label!"}}}
    answer = await pages.post("/api/jobs", {"text": json.dumps(body)})
    assert answer.status == 422
    assert answer.json["problems"]
