"""Restarts in place with a simulated kubelet and simulated supervisors, under virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Env
from paddlejob.kube.resource import PODS
from paddlejob.training.findings import Hang, Slowdown
from simkube.build import JobBuilder, job
from simkube.kubelet import outcomes
from simkube.switchboard import LineFaults
from tests.operator.in_place_stage import InPlaceStage, failing
from tests.support.programs import broken_rules
from tests.support.simulated import simulated

KEY = ObjectKey("default", "demo")
NEVER = {"restartPolicy": "Never"}
CRASH = outcomes.crash(137, after_seconds=20)
PROMPT = {"restartPolicy": {"delaySeconds": 0}}


def collective(workers: int = 3, **spec) -> JobBuilder:
    return job().worker(workers, pod=NEVER).spec(**(PROMPT | spec))


def servers(**spec) -> JobBuilder:
    return job().ps(2, pod=NEVER).worker(2, pod=NEVER).spec(**(PROMPT | spec))


def check(stage: InPlaceStage) -> None:
    """Check what holds for every history."""
    assert broken_rules(stage.supervision.runs) == []


CASES = {
    "a rank of a collective job": (collective(), "demo-worker-1"),
    "the first rank": (collective(), "demo-worker-0"),
    "pods that are called by name": (collective(intranet="Service"), "demo-worker-1"),
    "a server": (servers(), "demo-ps-1"),
    "a server that is called by name": (servers(intranet="Service"), "demo-ps-1"),
    "a worker with gloo": (servers(withGloo=1), "demo-worker-1"),
    "a heter worker": (job().ps(1).worker(2).heter(1).spec(**PROMPT), "demo-heter-0"),
}


@pytest.mark.parametrize(("of", "who"), CASES.values(), ids=CASES)
@simulated
async def test_a_failure_restarts_all_programs_and_no_pod(of, who):
    stage = InPlaceStage(failing((who, 0, CRASH)))
    async with stage.running():
        stage.submit(of)
        await stage.until_all_run(0)
        uids, ports, before = stage.uids(), stage.config()[Env.PADDLE_PORT], len(stage.writes())
        await stage.until_all_run(1, within_seconds=40)
        writes = stage.writes()[before:]
        assert (stage.uids(), stage.restart_counts()) == (uids, {0})
        found = Counter(write.resource for write in writes)
        assert found == {"paddlejobs": 2, "configmaps": 1}
        assert stage.config()[Env.PADDLE_PORT] > ports
        first, second = stage.runs(0), stage.runs(1)
        assert {run.pod for run in first} == {run.pod for run in second} == uids.keys()
        seconds = max(run.started for run in second) - min(run.ended for run in first)
        assert seconds < 2
        status = stage.status()
        assert (status["restarts"], status["lastFailure"]["exitCode"]) == (1, 137)
        assert (status["attempt"], status["processAttempt"], status.get("baseAttempt", 0)) == (1, 1, 0)
        await stage.until_phase("Completed")
    check(stage)


@pytest.mark.slow
@simulated
async def test_500_pods_need_no_more_writes_than_three():
    stage = InPlaceStage(
        failing(("demo-worker-7", 0, outcomes.crash(137, after_seconds=200)), seconds=900), fast=True
    )
    async with stage.running():
        stage.submit(collective(500))
        await stage.until_all_run(0, within_seconds=600)
        before, began = len(stage.writes()), asyncio.get_running_loop().time()
        await stage.until(lambda: stage.status().get("attempt") == 1)
        await stage.until_all_run(1)
        writes = stage.writes()[before:]
        assert stage.restart_counts() == {0}
        assert Counter(write.resource for write in writes)["configmaps"] == 1
        assert len(writes) <= 10, writes
        assert asyncio.get_running_loop().time() - began < 300
    check(stage)


@simulated
async def test_a_hang_restarts_all_programs():
    stage = InPlaceStage(failing(seconds=300))
    async with stage.running():
        stage.submit(collective(hangPolicy="Restart"))
        await stage.until_all_run(0)
        uids = stage.uids()
        found = Hang(0, 100, 300, ("demo-worker-1 on node-0",), "no step for 5m")
        stage.operator.controller.state.note(KEY, Hang, found)
        await stage.until(lambda: stage.status().get("attempt") == 1)
        stage.operator.controller.state.note(KEY, Hang, None)
        await stage.until_all_run(1)
        assert (stage.uids(), stage.status()["lastFailure"]["reason"]) == (uids, "Hung")
    check(stage)


@simulated
async def test_a_straggler_gets_a_new_pod_and_the_others_stay():
    stage = InPlaceStage(failing(seconds=300))
    async with stage.running():
        stage.submit(collective(stragglerPolicy="Replace"))
        await stage.until_all_run(0)
        uids = stage.uids()
        found = Slowdown(0, "demo-worker-1", "worker-1 is slow", is_lasting=True)
        stage.operator.controller.state.note(KEY, Slowdown, found)
        await stage.until(lambda: stage.status().get("attempt") == 1)
        stage.operator.controller.state.note(KEY, Slowdown, None)
        await stage.until_all_run(1)
        changed = {name for name, uid in stage.uids().items() if uid != uids[name]}
        assert changed == {"demo-worker-1"}
    check(stage)


LOST = {
    "its container ends": outcomes.reboot(after_seconds=20),
    "it is evicted": outcomes.Evict(after_seconds=20),
    "its node is lost": outcomes.LoseNode(after_seconds=20),
}


@pytest.mark.parametrize("outcome", LOST.values(), ids=LOST)
@pytest.mark.parametrize("intranet", ["PodIP", "Service"])
@simulated
async def test_a_lost_pod_is_replaced_alone(outcome, intranet):
    stage = InPlaceStage(failing(("demo-worker-1", 0, outcome), seconds=900))
    async with stage.running():
        stage.submit(collective(intranet=intranet))
        await stage.until_all_run(0)
        uids = stage.uids()
        await stage.until_all_run(1, within_seconds=900)
        changed = {name for name, uid in stage.uids().items() if uid != uids[name]}
        assert changed == {"demo-worker-1"}
        assert stage.status().get("baseAttempt", 0) == 0
        await stage.until_phase("Completed", within_seconds=1800)
    check(stage)


@simulated
async def test_a_pod_that_a_user_deletes_is_replaced_alone():
    stage = InPlaceStage(failing())
    async with stage.running():
        stage.submit(collective())
        await stage.until_all_run(0)
        uids = stage.uids()
        stage.server.delete(PODS, "default", "demo-worker-2", identity="user")
        await stage.until_all_run(1)
        assert {name for name, uid in stage.uids().items() if uid != uids[name]} == {"demo-worker-2"}
        await stage.until_phase("Completed")
    check(stage)


@simulated
async def test_a_pod_that_is_being_replaced_is_not_told_to_run():
    stage = InPlaceStage(failing(("demo-worker-1", 0, CRASH), ("demo-worker-1", 1, CRASH)))
    async with stage.running():
        stage.submit(collective(intranet="Service"))
        await stage.until_all_run(1)
        await stage.until(lambda: stage.config().get(Env.PROCESS_ATTEMPT) == "2")
        # Its kubelet is slow, and its supervisor asks before it gets SIGTERM.
        state = stage.operator.controller.state
        old = state.pods.get(ObjectKey("default", "demo-worker-1"))
        assert old.metadata.deletion_timestamp is not None
        report = {"attempt": 1, "state": "down", "code": 137, "number": 1000}
        body = msgspec.json.encode(report)
        assert await stage.operator.supervisors.attend(state.job(KEY), old, body) == {}
        await stage.until_phase("Completed")
    check(stage)


@simulated
async def test_the_third_restart_in_a_row_recreates_all_pods():
    crash = outcomes.crash(137, after_seconds=5)
    stage = InPlaceStage(
        failing(("demo-worker-0", 0, crash), ("demo-worker-1", 1, crash), ("demo-worker-2", 2, crash))
    )
    async with stage.running():
        stage.submit(collective())
        await stage.until_all_run(0)
        uids = stage.uids()
        await stage.until_all_run(2)
        assert stage.uids() == uids
        await stage.until_all_run(3)
        assert not set(stage.uids().values()) & set(uids.values())
        status = stage.status()
        assert (status["restarts"], status["baseAttempt"], status["processAttempt"]) == (3, 3, 2)
    check(stage)


MOMENTS = [float(moment) for moment in range(0, 30, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("away", [0.5, 10, 50])
@pytest.mark.parametrize(
    "of", [collective(), servers(), collective(intranet="Service")], ids=["PodIP", "PS", "Service"]
)
def test_an_operator_that_is_killed_at_any_point_of_the_restart(of, away):
    @simulated
    async def history(moment: float) -> None:
        stage = InPlaceStage(failing(("demo-worker-1", 0, CRASH)), faults=LineFaults())
        async with stage.running():
            stage.submit(of)
            await stage.until_all_run(0)
            await stage.until(lambda: any(run.ended for run in stage.supervision.runs))
            await asyncio.sleep(moment / 10)
            stage.kill_operator()
            await asyncio.sleep(away)
            stage.start_operator()
            await stage.until_phase("Completed", within_seconds=900)
        check(stage)
        status = stage.status()
        assert (status["restarts"], status["lastFailure"]["exitCode"]) == (1, 137)

    for moment in MOMENTS:
        history(moment)


@pytest.mark.slow
@pytest.mark.parametrize("away", [5, 1000])
@pytest.mark.parametrize("who", ["demo-worker-0", "demo-worker-1"])
@pytest.mark.parametrize(
    "of", [collective(), servers(), collective(intranet="Service")], ids=["PodIP", "PS", "Service"]
)
def test_a_supervisor_that_turns_mute_at_any_point_of_the_restart(of, who, away):
    @simulated
    async def history(moment: float) -> None:
        stage = InPlaceStage(failing(("demo-worker-1", 0, CRASH)))
        async with stage.running():
            stage.submit(of)
            await stage.until_all_run(0)
            await asyncio.sleep(20 + moment / 10)
            stage.switchboard.muted.add(who)
            await asyncio.sleep(away)
            stage.switchboard.muted.clear()
            await stage.until_phase("Completed", within_seconds=900)
        check(stage)
        assert stage.status()["restarts"] in (1, 2)

    for moment in MOMENTS:
        history(moment)


@pytest.mark.slow
@pytest.mark.parametrize("of", [collective(), servers()], ids=["PodIP", "PS"])
def test_a_supervisor_that_dies_at_any_point_of_the_restart(of):
    @simulated
    async def history(moment: float) -> None:
        def dies(pod) -> float | None:
            is_first = pod["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] == "0"
            return 19.8 + moment / 10 if is_first and pod["metadata"]["name"] == "demo-worker-0" else None

        stage = InPlaceStage(failing(("demo-worker-1", 0, CRASH)), dies_after=dies)
        async with stage.running():
            stage.submit(of)
            await stage.until_phase("Completed", within_seconds=900)
        check(stage)
        assert stage.status()["restarts"] in (1, 2)

    for moment in MOMENTS:
        history(moment)


@pytest.mark.parametrize("seed", range(10))
def test_lost_repeated_and_late_messages_change_nothing(seed):
    @simulated
    async def history() -> None:
        stage = InPlaceStage(
            failing(("demo-worker-1", 0, CRASH), ("demo-worker-0", 1, CRASH)),
            seed=seed,
            faults=LineFaults(lost=0.1, repeated=0.3, late=0.1),
        )
        async with stage.running():
            stage.submit(collective() if seed % 2 else servers())
            await stage.until_phase("Completed", within_seconds=900)
        check(stage)

    history()


def crash(code: int) -> outcomes.Exit:
    return outcomes.crash(code, after_seconds=20)


SCRIPTS = {
    "no failure": (),
    "a kill": (("demo-worker-1", 0, crash(137)),),
    "out of memory": (("demo-worker-1", 0, outcomes.run_out_of_memory(after_seconds=20)),),
    "a permanent error": (("demo-worker-1", 0, crash(1)),),
    "a planned exit": (("demo-worker-1", 0, crash(101)),),
    "an abort, then a kill of another": (("demo-worker-1", 0, crash(134)), ("demo-worker-0", 1, crash(137))),
    "all at once": tuple((f"demo-worker-{index}", 0, crash(137)) for index in range(3)),
    "more than allowed": tuple(("demo-worker-1", attempt, crash(137)) for attempt in range(4)),
    "a permanent error after a restart": (
        ("demo-worker-1", 0, crash(137)),
        ("demo-worker-2", 1, crash(2)),
    ),
    "the container ends": (("demo-worker-1", 0, outcomes.reboot(after_seconds=20)),),
    "an eviction": (("demo-worker-1", 0, outcomes.Evict(after_seconds=20)),),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_verdict_is_the_same_as_with_new_pods(script):
    found = {}

    @simulated
    async def history(*, in_place: bool) -> None:
        policy = {"restartPolicy": {"delaySeconds": 0, "inPlace": in_place}}
        stage = InPlaceStage(failing(*script))
        async with stage.running():
            stage.submit(collective(**policy, backoffLimit=2))
            await stage.until(
                lambda: stage.status().get("phase") in ("Completed", "Failed"), within_seconds=900
            )
        check(stage)
        status = stage.status()
        failure = status.get("lastFailure", {})
        found[in_place] = (
            *(status["phase"], status["reason"], status.get("restarts", 0), status.get("attempt", 0)),
            *(failure.get("exitCode"), failure.get("reason"), failure.get("pod"), failure.get("counted")),
        )

    for in_place in (True, False):
        history(in_place=in_place)
    assert found[True] == found[False]
