"""Runs on this machine behind the same interface as jobs on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec
import pytest

from local.jobs import config_map, job, role
from paddlejob.client.errors import (
    ClientError,
    GoalMissedError,
    InvalidJobError,
    NoSuchJobError,
    UnsupportedError,
)
from paddlejob.client.local_runs import LocalRuns
from paddlejob.client.logs.model import LogQuery
from tests.support.waiting import eventually_async

LIVE = "echo up; trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture
async def runs(tmp_path: Path):
    """Runs, of which none is left when the test is over."""
    found = LocalRuns(tmp_path / "runs")
    yield found
    for each in await found.list():
        if each.run.is_alive:
            with contextlib.suppress(ClientError):
                # Raised when it is just about to end.
                await each.stop()
            await each.wait(timeout_seconds=60)


async def test_a_run_is_submitted_followed_and_deleted(runs):
    demo = await runs.submit(job(worker=role(2, "echo hello from $PADDLE_TRAINER_ID")))
    found = [f"{line.rank}: {line.text}" async for line in demo.lines(LogQuery(follow=True))]
    assert sorted(found) == ["worker-0: hello from 0", "worker-1: hello from 1"]
    assert (await demo.wait(timeout_seconds=60)).status.phase == "Completed"
    assert [line.text async for line in demo.lines(LogQuery(rank="1"))] == ["hello from 1"]
    assert [pod.metadata.name for pod in await demo.pods()] == ["job-worker-0", "job-worker-1"]
    assert (await demo.environment("1"))["PADDLE_TRAINER_ID"] == "1"
    assert {each.object for each in await demo.events()} == {"PaddleJob/job"}
    assert (await runs.get("@latest")).name == demo.name
    assert await demo.delete() == "deleted"
    with pytest.raises(NoSuchJobError):
        await demo.refresh()


async def test_a_failed_run_tells_who_failed_first_and_is_retried(runs):
    script = 'echo epoch 1; echo "Traceback (most recent call last):"; echo "ValueError: x"; exit 3'
    demo = await runs.submit(job(worker=role(1, script), backoffLimit=0))
    with pytest.raises(GoalMissedError, match="is Failed"):
        await demo.wait("completed", timeout_seconds=60)
    found = await demo.first_error()
    assert (found.rank, found.exit_code) == ("worker-0", 3)
    assert found.lines == ("Traceback (most recent call last):", "ValueError: x")
    explained = await demo.explain()
    assert (explained.name, explained.phase, explained.exit_code) == (demo.name, "Failed", 3)
    assert f"run it again: paddlejob retry {demo.name}" in str(explained)
    again = await demo.retry()
    assert again.name != demo.name
    assert (await again.wait(timeout_seconds=60)).status.phase == "Failed"


async def test_what_a_run_owns_is_in_its_file_and_its_python_can_be_chosen(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "run by $0: $(cat $1)"\n')
    python.chmod(0o755)
    volumes = [{"name": "files", "configMap": {"name": "files"}}]
    mounts = [{"name": "files", "mountPath": "/workspace/train.py", "subPath": "train.py"}]
    command = ["python", "train.py"]
    program = {"name": "main", "image": "some/image:v1", "command": command, "volumeMounts": mounts}
    runs = LocalRuns(tmp_path / "runs", python=str(python))
    demo = await runs.submit(
        job(worker=role(1, containers=[program], volumes=volumes)),
        owned=[config_map("files", **{"train.py": "hello"})],
    )
    assert (await demo.wait(timeout_seconds=60)).status.phase == "Completed"
    assert [line.text async for line in demo.lines()] == [f"run by {python}: hello"]


async def test_a_live_run_is_scaled_suspended_resumed_and_stopped(runs):
    demo = await runs.submit(job(worker=role(1, LIVE)))
    await demo.wait("running", timeout_seconds=60)
    assert await demo.scale(2) == "scaling to 2 workers"
    assert await demo.suspend() == "suspending"
    await demo.wait("suspended", timeout_seconds=60)
    assert await demo.resume() == "resuming"
    await demo.wait("running", timeout_seconds=60)
    with pytest.raises(ClientError, match="is running; stop it first"):
        await demo.delete()
    with pytest.raises(ClientError, match="only a finished run can be retried"):
        await demo.retry()
    await demo.stop()
    state = await demo.wait(timeout_seconds=60)
    assert (state.status.phase, state.status.reason) == ("Failed", "Stopped")
    assert state.status.completion_time.timestamp() == pytest.approx(demo.run.recorded)
    assert (state.status.worker.ready, state.status.worker.running) == ("0/2", 0)
    held = {each.type for each in state.status.conditions if each.status == "True"}
    assert held == {"Failed"}
    assert [pod for pod in await demo.pods() if pod.metadata.deletion_timestamp] == []
    with pytest.raises(ClientError, match="is not running"):
        await demo.suspend()


async def test_ranks_that_were_scaled_away_are_not_shown(runs):
    demo = await runs.submit(job(worker=role(2, LIVE)))
    await demo.wait("running", timeout_seconds=60)
    await demo.scale(1)

    async def has_one_rank() -> bool:
        return [pod.metadata.name for pod in await demo.pods()] == ["job-worker-0"]

    await eventually_async(has_one_rank)
    await demo.stop()
    await demo.wait(timeout_seconds=60)
    assert await has_one_rank()
    assert len(demo.run.read_record().pods) == 2


async def test_a_run_that_has_just_ended_is_deleted_when_its_runner_is_done(runs):
    demo = await runs.submit(job(worker=role(1)))
    await demo.wait(timeout_seconds=60)
    async for _ in demo.watch():
        pass
    lock = demo.run.lock()
    deleting = asyncio.create_task(demo.delete())
    await asyncio.wait({deleting}, timeout=0.5)
    assert not deleting.done()
    os.close(lock)
    assert await deleting == "deleted"


async def test_lines_of_a_pod_that_is_not_recorded_yet_are_shown(runs):
    demo = await runs.submit(job(worker=role(1, "echo hello")))
    await demo.wait(timeout_seconds=60)
    record = demo.run.read_record()
    demo.run.write_record(msgspec.structs.replace(record, pods=()))
    assert [f"{line.rank}: {line.text}" async for line in demo.lines()] == ["worker-0: hello"]


async def test_what_was_written_before_a_restart(runs):
    script = "echo attempt $PADDLEJOB_ATTEMPT; test $PADDLEJOB_ATTEMPT = 1 || sh -c 'kill -9 $PPID'"
    no_delay = {"delaySeconds": 0, "maxDelaySeconds": 0}
    demo = await runs.submit(job(worker=role(1, script), restartPolicy=no_delay))
    await demo.wait(timeout_seconds=60)
    found = [(line.attempt, line.text) async for line in demo.lines(LogQuery(previous=True))]
    assert found == [(0, "attempt 0")]


async def test_what_a_laptop_cannot_do_is_said_in_one_sentence(runs):
    demo = await runs.submit(job(worker=role(1)))
    await demo.wait(timeout_seconds=60)
    with pytest.raises(UnsupportedError, match="no labels or namespaces"):
        await runs.list(selector="a=b")
    with pytest.raises(UnsupportedError, match="a client dry run checks the same"):
        await runs.submit(job(), dry_run=True)


async def test_bad_input_is_named(runs):
    with pytest.raises(InvalidJobError, match=r"spec\.worker\.replicas: Invalid value: 0"):
        await runs.submit(job(worker=role(0)))
    volumes = [{"name": "v", "hostPath": {"path": "/does/not/exist", "type": "Directory"}}]
    with pytest.raises(InvalidJobError, match=r"hostPath\.path is /does/not/exist, which does not exist"):
        await runs.submit(job(worker=role(1, volumes=volumes)))
    with pytest.raises(NoSuchJobError, match="there are no runs"):
        await runs.get("nothing")


async def test_all_runs_are_listed_again_when_one_changes_and_the_others_stay_the_same_objects(runs):
    listings = runs.listings()
    assert (await anext(listings)).jobs == ()
    first = await runs.submit(job("first", worker=role(1, "echo epoch 1/1 step 3/4 loss: 0.5")))
    await first.wait(timeout_seconds=60)
    seen = await _until(listings, lambda jobs: jobs and jobs[0].state.status.phase.is_terminal)
    assert seen[0].state.status.progress.percent == 75
    second = await runs.submit(job("second", worker=role(1, LIVE)))
    both = await _until(listings, lambda jobs: len(jobs) == 2)
    assert both[1] is seen[0]
    async with contextlib.aclosing(second.looks()) as looks:
        async for look in looks:
            if look.state.status.phase == "Running":
                assert [pod.metadata.name for pod in look.pods] == ["second-worker-0"]
                break
    await first.delete()
    assert [each.name for each in await _until(listings, lambda jobs: len(jobs) == 1)] == [second.name]
    await listings.aclose()


async def test_events_of_a_run_have_their_times(runs):
    demo = await runs.submit(job(worker=role(1, "true")))
    await demo.wait(timeout_seconds=60)
    times = [each.time for each in await demo.events()]
    assert times
    assert times == sorted(times)


async def _until(listings, fits):
    async with asyncio.timeout(60):
        async for listing in listings:
            if fits(listing.jobs):
                return listing.jobs
    raise AssertionError("the listings ended")
