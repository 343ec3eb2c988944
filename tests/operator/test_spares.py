"""Spares take the ranks of lost workers, under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Env
from paddlejob.kube.resource import PODS
from paddlejob.training.findings import Slowdown
from simkube.build import JobBuilder, job
from simkube.kubelet import outcomes
from simkube.kubelet.program import ProgramRun
from simkube.switchboard import LineFaults
from tests.operator.in_place_stage import InPlaceStage, failing
from tests.support.programs import broken_rules
from tests.support.simulated import simulated

KEY = ObjectKey("default", "demo")
LOST = {
    "it is evicted": outcomes.Evict(after_seconds=20),
    "its node is lost": outcomes.LoseNode(after_seconds=20),
}


def collective(workers: int = 3, spares: int = 1, **spec) -> JobBuilder:
    policy = {"restartPolicy": {"delaySeconds": 0}}
    return job().worker(workers, pod={"restartPolicy": "Never"}).spec(**(policy | spec), spares=spares)


def ranks(runs: list[ProgramRun]) -> dict[str, str]:
    return {run.pod: run.environment[Env.TRAINER_ID] for run in runs}


async def all_run(
    stage: InPlaceStage, attempt: int, workers: int = 3, *, within_seconds: float = 900
) -> None:
    """Wait until every rank runs in an attempt and a spare is ready."""

    def condition() -> bool:
        living = stage.living()
        is_complete = len(living) == workers and set(living.values()) == {attempt}
        status = stage.status()
        return is_complete and status.get("phase") == "Running" and status.get("spares") == "1/1"

    await stage.until(condition, within_seconds=900)


def check(stage: InPlaceStage) -> None:
    assert broken_rules(stage.supervision.runs) == []


@simulated
async def test_a_spare_waits_and_does_not_count():
    stage = InPlaceStage(failing())
    async with stage.running():
        stage.submit(collective())
        await all_run(stage, 0)
        assert set(stage.pods()) == {f"demo-worker-{index}" for index in range(4)}
        assert "demo-worker-3" not in stage.living()
        status = stage.status()
        assert (status["worker"]["ready"], status["worker"]["replicas"]) == ("3/3", 3)
        await stage.until_phase("Completed")
    assert {run.pod for run in stage.supervision.runs} == {f"demo-worker-{index}" for index in range(3)}
    check(stage)


@pytest.mark.parametrize("who", ["demo-worker-1", "demo-worker-0"])
@pytest.mark.parametrize("outcome", LOST.values(), ids=LOST)
@simulated
async def test_a_spare_takes_the_rank_of_a_lost_pod(outcome, who):
    stage = InPlaceStage(failing((who, 0, outcome), seconds=900))
    async with stage.running():
        stage.submit(collective())
        await all_run(stage, 0)
        uids = stage.uids()
        await all_run(stage, 1)
        changed = {name for name, uid in stage.uids().items() if uid != uids[name]}
        assert changed == {who}, "the next spare"
        rank = who[-1]
        assert stage.status()["movedRanks"] == f"{rank}:3"
        assert names.ANNOTATION_SPARE in stage.pods()[who]["metadata"]["annotations"]
        found = ranks(stage.runs(1))
        assert found == {
            f"demo-worker-{index}": str(index) for index in range(3) if f"demo-worker-{index}" != who
        } | {"demo-worker-3": rank}
        for run in stage.runs(1):
            endpoints = run.environment[Env.TRAINER_ENDPOINTS].split(",")
            assert run.environment[Env.CURRENT_ENDPOINT] == endpoints[int(run.environment[Env.TRAINER_ID])]
        await stage.until_phase("Completed", within_seconds=1800)
    check(stage)


@simulated
async def test_a_former_spare_restarts_in_place_with_its_rank():
    crash = outcomes.crash(137, after_seconds=20)
    lost = outcomes.Evict(after_seconds=20)
    stage = InPlaceStage(failing(("demo-worker-1", 0, lost), ("demo-worker-3", 0, crash), seconds=900))
    async with stage.running():
        stage.submit(collective())
        await all_run(stage, 0)
        await all_run(stage, 1)
        uids = stage.uids()
        await all_run(stage, 2)
        assert stage.uids() == uids
        assert ranks(stage.runs(2)) == {"demo-worker-0": "0", "demo-worker-2": "2", "demo-worker-3": "1"}
        for run in stage.runs(2):
            endpoints = run.environment[Env.TRAINER_ENDPOINTS].split(",")
            assert run.environment[Env.CURRENT_ENDPOINT] == endpoints[int(run.environment[Env.TRAINER_ID])]
        await stage.until_phase("Completed", within_seconds=1800)
    check(stage)


@simulated
async def test_the_next_spare_takes_the_next_rank():
    lost = outcomes.Evict(after_seconds=20)
    stage = InPlaceStage(failing(("demo-worker-1", 0, lost), ("demo-worker-3", 0, lost), seconds=900))
    async with stage.running():
        stage.submit(collective())
        await all_run(stage, 0)
        await all_run(stage, 2)
        assert ranks(stage.runs(2)) == {f"demo-worker-{index}": str(index) for index in range(3)}
        assert stage.status().get("movedRanks", "") == ""
        await stage.until_phase("Completed", within_seconds=1800)
    check(stage)


@simulated
async def test_a_straggler_gives_its_rank_to_a_spare():
    stage = InPlaceStage(failing(seconds=900))
    async with stage.running():
        stage.submit(collective(stragglerPolicy="Replace"))
        await all_run(stage, 0)
        found = Slowdown(0, "demo-worker-1", "worker-1 is slow", is_lasting=True)
        stage.operator.controller.state.note(KEY, Slowdown, found)
        await stage.until(lambda: stage.status().get("attempt") == 1)
        stage.operator.controller.state.note(KEY, Slowdown, None)
        await stage.until(lambda: len(stage.runs(1)) == 3)
        status = stage.status()
        on_suspect = stage.pods()["demo-worker-3"]["spec"]["nodeName"] in status["suspectNodes"]
        assert (status.get("movedRanks", "") == "1:3") is not on_suspect
    check(stage)


@simulated
async def test_a_lost_spare_is_created_again_and_disturbs_nobody():
    stage = InPlaceStage(failing(seconds=900))
    async with stage.running():
        stage.submit(collective())
        await all_run(stage, 0)
        uids = stage.uids()
        stage.server.delete(PODS, "default", "demo-worker-3", identity="user")
        await stage.until(
            lambda: stage.uids().get("demo-worker-3", uids["demo-worker-3"]) != uids["demo-worker-3"]
        )
        await all_run(stage, 0)
        assert stage.uids()["demo-worker-3"] != uids["demo-worker-3"]
        assert stage.status().get("attempt", 0) == 0
    check(stage)


@simulated
async def test_without_a_ready_spare_the_pod_is_created_again():
    stage = InPlaceStage(failing(("demo-worker-1", 0, outcomes.reboot(after_seconds=20)), seconds=900))
    async with stage.running():
        stage.submit(collective())
        await all_run(stage, 0)
        stage.server.delete(PODS, "default", "demo-worker-3", identity="user")
        stage.server.delete(PODS, "default", "demo-worker-1", identity="user")
        await all_run(stage, 1)
        assert stage.status().get("movedRanks", "") in ("", "1:3")
        assert sorted(ranks(stage.runs(1)).values()) == ["0", "1", "2"]
    check(stage)


@pytest.mark.parametrize("away", [0.5, 10, 50])
def test_an_operator_that_is_killed_at_any_point_of_a_takeover(away):
    @simulated
    async def history(moment: float) -> None:
        stage = InPlaceStage(
            failing(("demo-worker-1", 0, outcomes.Evict(after_seconds=20)), seconds=60), faults=LineFaults()
        )
        async with stage.running():
            stage.submit(collective())
            await all_run(stage, 0)
            await stage.until(lambda: any(run.ended for run in stage.supervision.runs))
            await asyncio.sleep(moment / 10)
            stage.kill_operator()
            await asyncio.sleep(away)
            stage.start_operator()
            await stage.until_phase("Completed", within_seconds=900)
        check(stage)

    for moment in range(0, 40, 5):
        history(moment)
