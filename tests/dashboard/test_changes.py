"""Buttons and the form: what they do, and what they say when they cannot."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading

import pytest

from local.jobs import config_map, job, role, text
from paddlejob.dashboard import pages as pages_module
from paddlejob.dashboard.session import MAX_TEXTS
from tests.dashboard.test_streams import LIVE


async def shown(pages, name, phase):
    async with pages.stream("/api/jobs") as events:
        rows = await events.until("all")
        while not any(row["name"] == name and row["phase"] == phase for row in rows):
            rows = (await events.until("change"))["rows"]


async def test_a_run_is_submitted_suspended_resumed_scaled_stopped_retried_and_deleted(runs, pages):
    answer = await pages.post("/api/jobs", {"text": text(job(worker=role(1, LIVE)))})
    assert answer.status == 200, answer.text
    (key,) = answer.json["keys"]
    name = key.partition("/")[2]
    # The page of the new job is there at once.
    assert (await pages.get(f"/api/jobs/{key}/manifest")).status == 200
    await shown(pages, name, "Running")
    path = f"/api/jobs/{key}"
    assert (await pages.post(f"{path}/suspend")).status == 200
    await shown(pages, name, "Suspended")
    assert (await pages.post(f"{path}/resume")).status == 200
    await shown(pages, name, "Running")
    assert (await pages.post(f"{path}/scale", {"workers": 2})).status == 200
    refused = await pages.post(f"{path}/delete")
    assert refused.status == 422
    assert "is running; stop it first" in refused.json["error"]
    assert (await pages.post(f"{path}/stop")).status == 200
    await (await runs.get(name)).wait(timeout_seconds=60)
    await shown(pages, name, "Stopped")
    again = await pages.post(f"{path}/retry")
    assert again.json["key"] != key
    assert (await pages.post(f"{path}/delete")).json == {"message": "deleted"}


async def test_a_number_of_workers_is_checked(runs, pages):
    demo = await runs.submit(job(worker=role(1, LIVE)))
    await shown(pages, demo.name, "Running")
    for workers in (None, "2", -1, 1.5, True):
        answer = await pages.post(f"/api/jobs/default/{demo.name}/scale", {"workers": workers})
        assert answer.status == 422, workers
        assert "workers: Invalid value" in answer.json["error"], workers


async def test_an_unknown_change_is_refused(runs, pages):
    demo = await runs.submit(job(worker=role(1, "true")))
    await demo.wait(timeout_seconds=60)
    await shown(pages, demo.name, "Completed")
    assert (await pages.post(f"/api/jobs/default/{demo.name}/explode")).status == 422


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ("", "no PaddleJob"),
        ("a: [", "not valid YAML"),
        (text(config_map("c")), "no PaddleJob, only ConfigMap"),
        (text(job(worker=role(0))), "spec.worker"),
        (text(job(werker=role(1))), "werker"),
        (
            text({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}, job()),
            "Deployment",
        ),
    ],
)
async def test_a_manifest_is_checked_as_one_types(pages, manifest, problem):
    found = (await pages.post("/api/validate", {"text": manifest})).json["problems"]
    assert any(problem in each for each in found), found
    refused = await pages.post("/api/jobs", {"text": manifest})
    assert refused.status == 422
    assert refused.json["problems"] == found


async def test_a_good_manifest_has_no_problems(pages):
    good = text(config_map("c", a="b"), job())
    assert (await pages.post("/api/validate", {"text": good})).json == {"problems": []}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"'])
async def test_a_body_that_is_not_an_object_is_refused_in_words(pages, body):
    answer = await pages.request("POST", "/api/validate", data=body, headers={"Origin": pages.base})
    assert answer.status in (200, 422)
    assert json.loads(answer.text)


async def test_a_body_without_end_is_refused(pages):
    headers = {"Origin": pages.base}
    answer = await pages.request("POST", "/api/validate", data=io.BytesIO(b" " * (2 << 20)), headers=headers)
    assert answer.status == 413


def test_only_the_first_problems_of_a_text_are_returned():
    bad = "---\n".join(f"kind: PaddleJob\nmetadata: {{name: A{at}}}\nspec: {{}}\n" for at in range(200))
    found = pages_module.read_submission(bad).problems
    assert len(found) == pages_module.MAX_PROBLEMS + 1
    assert re.fullmatch(r"and \d{3,} more problems", found[-1])
    long = pages_module.read_submission(f"kind: PaddleJob\nmetadata: {{name: {'A' * 100_000}}}\n").problems
    assert max(map(len, long)) <= pages_module.PROBLEM_LENGTH


async def test_one_text_of_a_user_is_parsed_at_a_time_and_few_wait(pages, monkeypatch):
    started, release = asyncio.Semaphore(0), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(text: str) -> pages_module.Submission:
        loop.call_soon_threadsafe(started.release)
        assert release.wait(60)
        return pages_module.Submission([], [], [text])

    monkeypatch.setattr(pages_module, "read_submission", slow)
    checks = [asyncio.create_task(pages.post("/api/validate", {"text": "x"})) for _ in range(MAX_TEXTS + 2)]
    await started.acquire()
    done, waiting = await asyncio.wait(checks, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 2:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert {each.result().status for each in done} == {429}
    assert started.locked()
    release.set()
    assert {(await each).status for each in waiting} == {200}
