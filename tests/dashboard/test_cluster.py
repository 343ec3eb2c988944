"""The dashboard over a cluster: what it tells of jobs, and of a cluster that does not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from yarl import URL

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import Failure
from paddlejob.client.cluster import Cluster
from paddlejob.dashboard import job_stream
from paddlejob.history.record import AttemptRecord, Point, RankEnd, Record, Summary, manifest
from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, PODS
from simkube.build import job
from simkube.kubelet.outcomes import Exit
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
    assert (about["isLocal"], about["namespace"], about["scope"]) == (False, "default", "default")
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
        told = await events.until("ranks")
        assert [rank["state"] for rank in told["changed"]] == ["Running"] * 2
        await asyncio.to_thread(cluster.write, "demo-worker-0", "step 1/4 loss: 0.25")
        assert (await events.until("lines"))[0][::3] == ["worker-0", "step 1/4 loss: 0.25"]
        cluster.scene.fates.set("demo-worker-1", Exit(0, 600))
        cluster.let_go("demo-worker-1")
        told = await events.until("job", lambda each: each["attempt"] == 1)
        assert told["failure"]["exitCode"] == 137
        await events.until("ranks", lambda each: any(rank["attempt"] == 1 for rank in each["changed"]))
    async with pages.stream("/api/jobs/default/demo/stream") as events:
        found = await events.until("events", lambda all_: any("attempt 1:" in e["message"] for e in all_))
        assert any("exited with code 137" in each["message"] for each in found)


async def test_the_ranks_of_pods_are_shown_when_the_number_of_processes_becomes_known(cluster, pages):
    async with pages.stream("/api/jobs") as events:
        await do(cluster, lambda scene: scene.submit(job().worker(2)))
        await events.until("change", running("demo"))
    async with pages.stream("/api/jobs/default/demo/stream") as events:
        told = await events.until("ranks")
        assert [rank["ranks"] for rank in told["changed"]] == ["", ""]
        patch = {"status": {"progress": {"step": 1, "processes": 4}}}
        cluster.scene.server.patch(PADDLE_JOBS, "default", "demo", patch, subresource="status")
        told = await events.until("ranks")
        assert [rank["ranks"] for rank in told["changed"]] == ["0-3", "4-7"]


async def test_what_ranks_print_tells_what_they_did(cluster, pages):
    async with pages.stream("/api/jobs") as events:
        await do(cluster, lambda scene: scene.submit(job().worker(2)))
        await events.until("change", running("demo"))
    for step in (1, 2):
        await asyncio.to_thread(cluster.write, "demo-worker-0", f"step {step}/4 loss: 0.25")
    async with pages.stream("/api/jobs/default/demo/stream?logs=1") as events:
        told = await events.until("activity", bool)
    assert [(rank, spans[0][0]) for rank, spans in told.items()] == [("worker-0", "training")]


async def test_a_page_gets_the_newest_events_of_pods_and_all_of_the_job(cluster, pages, monkeypatch):
    monkeypatch.setattr(job_stream, "MAX_EVENTS", 3)

    async def report(scene) -> None:
        await scene.submit(job().worker(1))
        for number in range(9):
            kind, name = ("PaddleJob", "demo") if number < 2 else ("Pod", f"demo-worker-{number}")
            about = {"kind": kind, "name": name, "namespace": "default"}
            time = f"2020-01-01T00:00:0{number}Z"
            event = {"metadata": {"name": f"e{number}"}, "reason": f"R{number}", "involvedObject": about}
            await scene.client.create(EVENTS, "default", {**event, "lastTimestamp": time})

    await do(cluster, report)
    async with pages.stream("/api/jobs/default/demo/stream") as events:
        found = [each["reason"] for each in await events.until("events", bool)]
    assert [each for each in found if each.startswith("R")] == ["R0", "R1", "R6", "R7", "R8"]


async def test_a_job_that_is_deleted_ends_its_page(cluster, pages):
    async with pages.stream("/api/jobs") as events:
        await do(cluster, lambda scene: scene.submit(job().worker(1)))
        await events.until("change", running("demo"))
    async with pages.stream("/api/jobs/default/demo/stream") as events:
        await events.until("job")
        await pages.post("/api/jobs/default/demo/delete")
        await events.until("gone")


@pytest.mark.parametrize(
    "path",
    [
        "/api/jobs/%2E%2E/demo/manifest",
        "/api/jobs/default/%2E%2E/manifest",
        "/api/jobs/default/a%2Fb/error",
        "/api/history/%2E%2E/demo",
        "/api/rights/%2E%2E",
        "/api/history?namespace=..",
        "/api/jobs?namespace=a%2Fb",
    ],
)
async def test_a_name_that_is_no_object_name_is_refused_with_a_sentence(pages, path):
    answer = await pages.get(URL(path, encoded=True))
    assert answer.status == 422
    assert "must be the name of a Kubernetes object" in answer.json["error"]


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
    manifest = job().worker(1).manifest
    body = {**manifest, "metadata": {"name": "demo", "labels": {"a": "not a label!"}}}
    answer = await pages.post("/api/jobs", {"text": json.dumps(body)})
    assert answer.status == 422
    assert answer.json["problems"]


GONE = Summary(
    "gone",
    "default",
    "0123456789",
    result="Failed",
    message="worker-1 exited with code 1",
    created=datetime(2020, 1, 1, tzinfo=UTC),
    ended=datetime(2020, 1, 1, 0, 5, tzinfo=UTC),
    attempt=1,
    failure=Failure(attempt=1, pod="gone-worker-1", message="worker-1 exited with code 1"),
)
RECORD = Record(
    GONE,
    attempts=(
        AttemptRecord(0, "Restarting", message="worker-0 was evicted"),
        AttemptRecord(1, "Failed", ranks=(RankEnd("worker-1", "failed", 1, text="ValueError: <b>x</b>"),)),
    ),
    curve=(Point(1577836800, 1, 5, "0.5"), Point(1577836810, 1, 6, "nan")),
)


async def keep(cluster, record):
    """Store a record as the operator does."""
    await do(cluster, lambda scene: scene.client.create(CONFIG_MAPS, "default", manifest(record)))


async def test_a_job_that_is_gone_has_a_post_mortem(cluster, pages):
    await keep(cluster, RECORD)
    (row,) = (await pages.get("/api/history")).json
    assert (row["name"], row["result"], row["attempt"]) == ("gone", "Failed", 1)
    record = (await pages.get(f"/api/history/default/{row['record']}")).json
    assert [each["message"] for each in record["attempts"][:1]] == ["worker-0 was evicted"]
    assert record["attempts"][1]["ranks"][0]["text"] == "ValueError: <b>x</b>"
    assert [each["loss"] for each in record["curve"]] == [0.5, None]
    missing = await pages.get("/api/history/default/nobody")
    assert missing.status == 404
    assert "no record of one" in missing.json["error"]


async def test_the_page_of_a_failed_job_shows_the_recorded_lines_of_a_deleted_pod(cluster, pages):
    cluster.scene.fates.set("demo-worker-1", Exit(1, 1))
    built = job().worker(2).spec(backoffLimit=0, cleanPodPolicy="Always")
    found = await do(cluster, lambda scene: scene.submitted(built))
    summary = msgspec.structs.replace(GONE, name="demo", uid=found.state.metadata.uid)
    last = msgspec.structs.replace(RECORD.attempts[1], attempt=0)
    await keep(cluster, msgspec.structs.replace(RECORD, summary=summary, attempts=(last,)))
    await do(cluster, lambda scene: found.wait(timeout_seconds=60))
    await do(cluster, lambda scene: scene.gone(PODS))
    path, from_record = "/api/jobs/default/demo/stream", "from the operator's record"
    async with pages.stream(f"{path}?logs=1") as events:
        await events.until("marker", lambda marker: from_record in marker["text"])
        (line,) = await events.until("lines")
    assert (line[0], line[3]) == ("worker-1", "ValueError: <b>x</b>")
    async with pages.stream(path) as events:
        explained = await events.until("explain")
    assert explained["log"] == ["ValueError: <b>x</b>"]
    assert any(from_record in each for each in explained["findings"][0]["details"])


async def test_the_page_of_a_job_knows_attempts_whose_pods_and_events_are_gone(cluster, pages):
    async with pages.stream("/api/jobs") as events:
        await do(cluster, lambda scene: scene.submit(job().worker(1)))
        row = (await events.until("change", running("demo")))["rows"][0]
    found = await do(cluster, lambda scene: scene.cluster.get("demo"))
    summary = msgspec.structs.replace(GONE, name="demo", uid=found.state.metadata.uid)
    await keep(cluster, msgspec.structs.replace(RECORD, summary=summary))
    async with pages.stream(f"/api/jobs/{row['key']}/stream") as events:
        record = await events.until("record")
        assert record["attempts"][0]["message"] == "worker-0 was evicted"
        assert record["curve"][0]["step"] == 5
