"""What the pages are told: of all jobs and of one, on this machine."""

from __future__ import annotations

import asyncio
import socket
import struct

from yarl import URL

from local.jobs import LAUNCHER, job, role
from simkube.build import job as build
from tests.dashboard.pages import opened

LIVE = "echo epoch 1/2 step 3/10 loss: 0.5 ips: 7 samples/s; trap 'exit 0' TERM; while :; do sleep 0.1; done"
FAILS = 'echo up; echo "Traceback (most recent call last):"; echo "ValueError: x"; exit 3'


def keys(rows):
    return {row["key"] for row in rows}


async def test_an_empty_place_is_told_as_such(pages):
    async with pages.stream("/api/jobs") as events:
        assert (await events.until("state"))["state"] in ("loading", "live")
        assert await events.until("all") == []


async def test_jobs_appear_change_and_go_while_one_looks(runs, pages):
    async with pages.stream("/api/jobs") as events:
        await events.until("all")
        demo = await runs.submit(job(worker=role(1, LIVE)))
        key = f"default/{demo.name}"
        told = await events.until(
            "change", lambda each: any(r["phase"] == "Running" and r["progress"] for r in each["rows"])
        )
        assert keys(told["rows"]) == {key}
        progress = told["rows"][0]["progress"]
        assert (progress["percent"], progress["loss"]) == (15, "0.5")
        assert progress["throughput"] == "7 samples/s"
        await demo.stop()
        await demo.wait(timeout_seconds=60)
        await demo.delete()
        assert (await events.until("change", lambda each: each["gone"]))["gone"] == [key]


async def test_a_page_that_comes_back_gets_only_what_it_missed(runs, pages):
    first = await runs.submit(job("first", worker=role(1, "true")))
    await first.wait(timeout_seconds=60)
    async with pages.stream("/api/jobs") as events:
        rows = await events.until("all", bool)
        while rows[0]["phase"] != "Completed":
            rows = (await events.until("change"))["rows"] or rows
        last = events.last_id
    second = await runs.submit(job("second", worker=role(1, "true")))
    await second.wait(timeout_seconds=60)
    async with pages.stream("/api/jobs", last=last) as events:
        change = await events.until("change", lambda each: each["rows"])
        assert keys(change["rows"]) == {f"default/{second.name}"}
    async with pages.stream("/api/jobs", last="of-another-process-7") as events:
        assert len(await events.until("all")) == 2


async def test_the_page_of_a_job_gets_all_about_it_over_one_connection(runs, pages):
    demo = await runs.submit(job(worker=role(2, LIVE)))
    async with pages.stream("/api/jobs") as events:
        await events.until("change", lambda each: any(r["phase"] == "Running" for r in each["rows"]))
    path = f"/api/jobs/default/{demo.name}"
    async with pages.stream(f"{path}/stream?logs=1") as events:
        assert (await events.until("job"))["phase"] == "Running"
        told = await events.until("ranks")
        assert [each["rank"] for each in told["changed"]] == ["worker-0", "worker-1"]
    async with pages.stream(f"{path}/stream?logs=1") as events:
        points = await events.until("points")
        assert (points[0]["loss"], points[0]["step"], points[0]["throughput"]) == (0.5, 3, 7.0)
    async with pages.stream(f"{path}/stream?logs=1") as events:
        lines = await events.until("lines")
        assert lines[0][0] in ("worker-0", "worker-1")
        assert "loss: 0.5" in lines[0][3]
    async with pages.stream(f"{path}/stream") as events:
        found = await events.until("events")
        assert any(each["reason"] == "Running" and each["time"] for each in found)
        assert "running" in (await events.until("explain"))["summary"]
    environment = (await pages.get(f"{path}/environment/1")).json
    assert environment["PADDLE_TRAINER_ID"] == "1"
    assert "kind: PaddleJob" in (await pages.get(f"{path}/manifest")).json["text"]


async def test_a_failed_run_tells_why_and_where(runs, pages):
    demo = await runs.submit(job(worker=role(1, FAILS), backoffLimit=0))
    await demo.wait(timeout_seconds=60)
    path = f"/api/jobs/default/{demo.name}"
    async with pages.stream("/api/jobs") as events:
        rows = await events.until("all")
        while not any(row["phase"] == "Failed" for row in rows):
            rows = (await events.until("change"))["rows"]
    error = (await pages.get(f"{path}/error")).json
    assert (error["rank"], error["exit_code"]) == ("worker-0", 3)
    async with pages.stream(f"{path}/stream") as events:
        assert "exited with code 3" in (await events.until("explain"))["summary"]


async def test_what_is_not_there_is_told_in_a_sentence(runs, pages):
    await (await runs.submit(job(worker=role(1, "true")))).wait(timeout_seconds=60)
    for path in ("stream", "manifest", "environment/0", "error"):
        answer = await pages.get(f"/api/jobs/default/nobody/{path}")
        assert answer.status == 404
        assert answer.json["error"].startswith("there is no run nobody; the newest are ")


async def test_streams_that_nobody_reads_any_more_end(runs):
    async with opened(runs) as pages:
        await pages.get("/", query=pages.query)
        before = len(asyncio.all_tasks())
        for _ in range(5):
            async with pages.stream("/api/jobs") as events:
                await events.until("all")
        async with asyncio.timeout(30):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.02)


async def test_a_browser_that_goes_at_once_leaves_nothing_in_the_log(pages, caplog):
    url = URL(pages.base)
    (cookie,) = (f"{each.key}={each.value}" for each in pages.cookies)
    for _ in range(30):
        with socket.create_connection((url.host, url.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            head = f"GET /api/jobs HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nCookie: {cookie}\r\n\r\n"
            client.sendall(head.encode())
        await asyncio.sleep(0)
    async with pages.stream("/api/jobs") as events:
        await events.until("all")
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_job_whose_types_do_not_fit_is_shown_with_the_reason():
    from paddlejob.client.cluster import Cluster, ClusterJob
    from paddlejob.dashboard.rows import row_of

    body = build().manifest | {"spec": {"worker": {"replicas": "many"}}}
    row = row_of(ClusterJob(Cluster(None), body))
    assert row["reason"] == "Undecodable"
    assert "replicas" in row["message"]


async def test_a_job_is_found_as_soon_as_the_dashboard_answers(runs):
    demo = await runs.submit(job(worker=role(1, "true")))
    await demo.wait(timeout_seconds=60)
    async with opened(runs) as pages:
        await pages.get("/", query=pages.query)
        assert (await pages.get(f"/api/jobs/default/{demo.name}/manifest")).status == 200


async def test_the_processes_of_a_pod_are_read_on_request(runs, pages):
    demo = await runs.submit(job(worker=role(2, LAUNCHER)))
    await demo.wait(timeout_seconds=60)
    path = f"/api/jobs/default/{demo.name}"
    async with pages.stream(f"{path}/stream") as events:
        told = await events.until("ranks")
        assert [each["ranks"] for each in told["changed"]] == ["0-1", "2-3"]
    found = (await pages.get(f"{path}/processes/worker-1")).json
    assert [(each["rank"], each["lastLine"]) for each in found] == [
        (2, "hello from 0 of 1"),
        (3, "hello from 1 of 1"),
    ]
