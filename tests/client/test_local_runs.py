"""Runs on this machine behind the same interface as jobs on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from pathlib import Path

import msgspec
import pytest

from local.jobs import LAUNCHER, config_map, job, role
from paddlejob.api.v1 import PaddleJob
from paddlejob.client.errors import (
    ClientError,
    GoalMissedError,
    InvalidJobError,
    NoSuchJobError,
    UnsupportedError,
)
from paddlejob.client.job import describe
from paddlejob.client.local_runs import LocalRuns
from paddlejob.client.logs.model import LogQuery
from paddlejob.dashboard.rows import row_of
from paddlejob.local.sandbox.supervisor import STAMP_FORMAT
from paddlejob.local.store import run_directory
from paddlejob.local.store.run_directory import RunDirectory, RunRecord
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
    assert (seen[0].state.status.progress.step, seen[0].state.status.progress.percent) == (3, 100)
    second = await runs.submit(job("second", worker=role(1, LIVE)))
    both = await _until(listings, lambda jobs: len(jobs) == 2)
    assert both[1] is seen[0]
    async with contextlib.aclosing(second.watch_with_pods()) as updates:
        async for current in updates:
            if current.state.status.phase == "Running":
                assert [pod.metadata.name for pod in current.pods] == ["second-worker-0"]
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


NAMES = {
    "the name of a run": ("{old}", "old"),
    "the name with its kind": ("paddlejob/{old}", "old"),
    "a job with several runs": ("job", "new"),
    "the newest of all": ("@latest", "other"),
    "the beginning of a name": ("oth", "there is no run oth; the newest are {other}, {new}, {old}"),
    "no name": ("", "'' is not the name of a run"),
    "another kind": ("pod/job", "pod is not a kind of job"),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.values(), ids=NAMES)
async def test_a_run_is_found_by_its_name_or_as_the_newest_of_its_job(tmp_path, name, expected):
    found = {key: recorded(tmp_path, job_name) for key, job_name in RUN_JOBS.items()}
    names = {key: run.name for key, run in found.items()}
    runs = LocalRuns(tmp_path)
    if expected in names:
        assert (await runs.get(name.format(**names))).name == names[expected]
    else:
        with pytest.raises(ClientError, match=expected.format(**names)):
            await runs.get(name.format(**names))


RUN_JOBS = {"old": "job", "new": "job", "other": "other"}


def recorded(runs: Path, job_name: str, result: str = "", log: str = "", **status: object) -> RunDirectory:
    """Make the directory of a run that is over."""
    run = run_directory.create(runs, job_name)
    (run.path / "job.yaml").write_text("{}")
    written = job(job_name, worker=role(2))
    written["status"] = {"phase": "Running", "worker": {"ready": "2/2", "running": 2}, **status}
    run.write_record(RunRecord(job=msgspec.convert(written, PaddleJob), result=result))
    (run.path / "logs" / f"{job_name}-worker-0").mkdir()
    run.log(f"{job_name}-worker-0", "main").write_text(log)
    return run


UNFINISHED = {
    "Stopped": "it was stopped",
    "Interrupted": "it was interrupted",
    "": "its runner was killed",
}


@pytest.mark.parametrize(("result", "message"), UNFINISHED.items(), ids=lambda each: each or "Lost")
async def test_a_run_that_ended_before_its_job_keeps_its_phase(tmp_path, result, message):
    run = recorded(tmp_path, "job", result, "epoch 1/1 step 3/4 loss 0.5\n")
    runs, phase = LocalRuns(tmp_path), result or "Lost"
    [demo] = await runs.list()
    assert (demo.name, demo.phase, demo.result) == (run.name, phase, "epoch 1/1 step 3/4 loss 0.5")
    assert describe(await demo.wait()) == f"{phase}: {message}"
    assert row_of(demo)["phase"] == phase
    [summary] = await runs.history()
    assert summary.result == phase
    explained = await demo.explain()
    assert (explained.phase, explained.summary) == (phase, message)
    assert f"paddlejob retry {run.name}" in str(explained)
    status = demo.state.status
    assert (status.worker.ready, status.worker.failed) == ("0/2", 0)
    assert (status.progress.percent, status.progress.loss, status.progress.eta) == (75, "0.5", "")


async def test_a_run_that_was_killed_before_its_first_record_is_lost_and_can_be_deleted(tmp_path):
    run = run_directory.create(tmp_path, "job")
    (run.path / "job.yaml").touch()
    runs = LocalRuns(tmp_path)
    [demo] = await runs.list()
    assert (demo.phase, demo.state.status.message) == ("Lost", "its runner was killed")
    assert await demo.delete() == "deleted"
    assert await runs.list() == []


async def test_a_failed_run_counts_no_running_pods(tmp_path):
    recorded(tmp_path, "job", "Failed", phase="Failed", message="worker-1 exited with code 3")
    [demo] = await LocalRuns(tmp_path).list()
    assert (demo.phase, demo.result) == ("Failed", "worker-1 exited with code 3")
    assert demo.state.status.worker.ready == "0/2"


async def test_an_epoch_that_began_long_ago_counts(tmp_path):
    steps = "".join(f"step {step}/938 - loss: 0.5 - 13ms/step\n" for step in range(1, 470))
    recorded(tmp_path, "job", log=f"Epoch 1/10\n{steps}Epoch 3/10\n{steps}")
    [demo] = await LocalRuns(tmp_path).list()
    progress = demo.state.status.progress
    assert (progress.step, progress.steps, progress.percent) == (2 * 938 + 469, 9380, 25)


async def test_the_eta_follows_from_the_times_of_the_log(tmp_path):
    run = recorded(tmp_path, "job", log="step 10/100 loss 0.5\nstep 20/100 loss 0.4\n")
    now, size = time.time(), len("step 10/100 loss 0.5\n")
    stamps = ((now - 60, size), (now - 50, 2 * size))
    run.log("job-worker-0", "main").with_suffix(".times").write_bytes(
        b"".join(struct.pack(STAMP_FORMAT, *stamp) for stamp in stamps)
    )
    lock = run.lock()
    try:
        [demo] = await LocalRuns(tmp_path).list()
    finally:
        os.close(lock)
    progress = demo.state.status.progress
    assert (demo.phase, progress.percent, progress.loss) == ("Running", 20, "0.4")
    assert progress.eta in ("29s", "30s")


async def test_a_number_is_the_rank_of_a_process_if_a_pod_has_several(runs):
    demo = await runs.submit(job(worker=role(2, f"{LAUNCHER}{LIVE}")))

    async def has_processes() -> bool:
        progress = (await demo.refresh()).status.progress
        return progress is not None and progress.processes == 2

    await demo.wait("running", timeout_seconds=60)
    await eventually_async(has_processes)

    async def lines(rank: str, **options) -> list[str]:
        query = LogQuery(rank=rank, **options)
        return [f"{line.rank}: {line.text}" async for line in demo.lines(query)]

    following = asyncio.create_task(lines("3", follow=True))
    assert await lines("3", tail=1) == ["worker-1 rank 3: hello from 1 of 1"]
    with pytest.raises(ClientError, match="rank 3 writes to a file, which has no times"):
        await lines("3", since_seconds=60.0)
    assert (await lines("2", tail=1)) == ["worker-1: up"]
    assert dict(await demo.environment("3")) == {"PADDLE_TRAINER_ID": "3"}
    assert (await demo.environment("worker-1"))["PADDLE_TRAINER_ID"] == "1"
    found = [(each.pod, each.rank, each.last_line) for each in await demo.processes()]
    assert found[1:3] == [("worker-0", 1, "hello from 1 of 0"), ("worker-1", 2, "hello from 0 of 1")]
    assert [each.rank for each in await demo.processes("3")] == [3]
    with pytest.raises(ClientError, match="has no rank 4; choose all, a rank from 0 to 3 or one of"):
        await lines("4")
    await demo.stop()
    await demo.wait(timeout_seconds=60)
    assert await following == await lines("3") == ["worker-1 rank 3: hello from 1 of 1"]


async def test_the_last_lines_of_a_process_include_a_bar_and_a_line_without_an_end(runs):
    bar = "printf 'one\\n10%%\\r20%%\\nend' >\"$PADDLE_LOG_DIR/workerlog.1\""
    demo = await runs.submit(job(worker=role(1, f"{LAUNCHER}{bar}")))
    await demo.wait(timeout_seconds=60)
    for tail, lines in ((1, ["end"]), (2, ["10%\r20%", "end"]), (None, ["one", "10%\r20%", "end"])):
        found = [line.text async for line in demo.lines(LogQuery(rank="1", tail=tail))]
        assert found == lines


async def test_a_number_is_a_pod_if_the_launcher_found_no_cards(runs):
    launch = (
        'mkdir -p "$PADDLE_LOG_DIR"; cd "$PADDLE_LOG_DIR"; touch workerlog.0 workerlog.0.bak; echo step 1/2'
    )
    declared = f"{launch}; : python -m paddle.distributed.launch --devices 0,1"
    demo = await runs.submit(job(worker=role(2, declared)))
    await demo.wait(timeout_seconds=60)
    lines = [f"{line.rank}: {line.text}" async for line in demo.lines(LogQuery(rank="1"))]
    assert lines == ["worker-1: step 1/2"]


async def test_a_process_that_the_launcher_has_not_started_has_no_log(runs):
    marked = f"{LIVE}; : python -m paddle.distributed.launch --nproc_per_node 2"
    demo = await runs.submit(job(worker=role(1, marked)))
    await demo.wait("running", timeout_seconds=60)
    with pytest.raises(ClientError, match="worker-0 rank 1 has no log file: Paddle's launcher has not"):
        _ = [line async for line in demo.lines(LogQuery(rank="1"))]
    with pytest.raises(ClientError, match="--rank worker-0 shows the environment of its container"):
        await demo.environment("1")
    assert await demo.processes() == []
