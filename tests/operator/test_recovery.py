"""The ledger of a recovery in the status: what it contains, and that it costs no write."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from paddlejob.api.meta import ObjectKey
from paddlejob.api.v1 import TrainingProgress
from paddlejob.client.cluster import Cluster
from paddlejob.kube.client import Client
from paddlejob.operator.reports.writer import WRITE_SECONDS
from paddlejob.training.reports import Startup
from paddlejob.training.steps import Origin
from simkube.build import JobBuilder, job
from simkube.kubelet import outcomes
from tests.operator.in_place_stage import InPlaceStage, failing
from tests.operator.progress_stage import Read, line, play
from tests.operator.test_in_place import collective, servers
from tests.support.simulated import simulated

CRASH = outcomes.crash(137, after_seconds=60)
MEASURED = ("detectSeconds", "decideSeconds", "stopSeconds", "placeSeconds")
PARTS = (*MEASURED, *(f"{name}Seconds" for name in ("start", "import", "join", "load", "repeat")))


def staged(who: str = "demo-worker-1", outcome: outcomes.Outcome = CRASH) -> InPlaceStage:
    return InPlaceStage(failing((who, 0, outcome), seconds=900), writes_progress=True)


def report(stage: InPlaceStage, step: int, *, attempt: int, startup: Startup | None = None) -> None:
    """Let worker 0 report its step since its start; it resumes from a checkpoint at step 80."""
    state, progress = stage.operator.controller.state, stage.operator.progress
    known = TrainingProgress(step=step, saved_step=80 if not attempt else 0)
    origin = Origin(resumed=attempt > 0)
    progress.writer.add_report(state.job(ObjectKey("default", "demo")), attempt, known, origin, startup)


def ledger(stage: InPlaceStage) -> dict:
    return stage.status().get("lastRecovery") or {}


def histogram(stage: InPlaceStage, kind: str) -> tuple[float | None, float | None]:
    registry = stage.operator.controller.metrics.registry
    return tuple(
        registry.get_sample_value(f"paddlejob_recovery_seconds_{part}", {"kind": kind})
        for part in ("count", "sum")
    )


CASES = {
    "a collective job": (collective(), "demo-worker-1"),
    "a parameter server": (servers(), "demo-ps-1"),
    "pods that are called by name": (collective(intranet="Service"), "demo-worker-1"),
}


@pytest.mark.parametrize(("of", "who"), CASES.values(), ids=CASES)
@simulated
async def test_the_parts_sum_up_to_the_total_without_a_write_of_their_own(of: JobBuilder, who: str):
    stage = staged(who)
    clock = asyncio.get_running_loop().time
    async with stage.running():
        stage.submit(of)
        await stage.until_all_run(0)
        report(stage, 100, attempt=0)
        await asyncio.sleep(2 * WRITE_SECONDS)
        before = len(stage.writes())
        await stage.until_all_run(1)
        began = max(run.started for run in stage.runs(1) if run.pod == "demo-worker-0")
        failed = min(run.ended for run in stage.runs(0))
        writes = Counter(write.resource for write in stage.writes()[before:])
        assert (writes["paddlejobs"], writes["configmaps"]) == (2, 1)
        assert ledger(stage).keys() == {"attempt", "kind", "detectSeconds"}
        await asyncio.sleep(began + 4.0 - clock())
        report(stage, 1, attempt=1, startup=Startup(clock() - began, 1.0, 0.5, 2.0))
        await asyncio.sleep(2)
        assert ledger(stage).keys() == {"attempt", "kind", *PARTS} - {"repeatSeconds"}, "steps are repeated"
        assert histogram(stage, "InPlace") == (None, None)
        await asyncio.sleep(8)
        report(stage, 41, attempt=1, startup=Startup(clock() - began, 1.0, 0.5, 2.0))
        await asyncio.sleep(2 * WRITE_SECONDS)
        found = ledger(stage)
        # 20 of the steps until the second report were made before: half of the time between the reports.
        assert found["repeatSeconds"] == pytest.approx(5, abs=0.3)
        assert (found["importSeconds"], found["joinSeconds"], found["loadSeconds"]) == (1.0, 0.5, 2.0)
        assert found["totalSeconds"] == pytest.approx(sum(found[part] for part in PARTS), abs=0.01)
        assert found["totalSeconds"] == pytest.approx(began + 3.5 + found["repeatSeconds"] - failed, abs=0.4)
        assert (found["attempt"], found["kind"]) == (1, "InPlace")
        assert histogram(stage, "InPlace") == (1, found["totalSeconds"])
        report(stage, 60, attempt=1)
        await asyncio.sleep(2 * WRITE_SECONDS)
        assert (ledger(stage), histogram(stage, "InPlace")[0]) == (found, 1)


@simulated
async def test_a_pod_that_is_replaced_makes_it_mixed():
    stage = staged(outcome=outcomes.reboot(after_seconds=60))
    async with stage.running():
        stage.submit(collective())
        await stage.until_all_run(0)
        await stage.until_all_run(1, within_seconds=900)
        report(stage, 1, attempt=1)
        await asyncio.sleep(WRITE_SECONDS)
        found = ledger(stage)
        assert found["kind"] == "Mixed"
        assert found["placeSeconds"] > 0
        assert found["totalSeconds"] >= sum(found.get(part, 0.0) for part in PARTS) - 0.01


@simulated
async def test_a_supervisor_that_does_not_answer_makes_it_mixed():
    stage = staged()
    async with stage.running():
        stage.submit(collective())
        await stage.until_all_run(0)
        stage.switchboard.muted.add("demo-worker-2")
        await stage.until(lambda: stage.status().get("attempt") == 1)
        assert ledger(stage)["kind"] == "InPlace"
        stage.switchboard.muted.clear()
        stage.switchboard.muted.add("demo-worker-2")
        await asyncio.sleep(30)
        stage.switchboard.muted.clear()
        await stage.until_all_run(1, within_seconds=900)
        report(stage, 1, attempt=1)
        await asyncio.sleep(WRITE_SECONDS)
        assert (ledger(stage)["kind"], ledger(stage)["stopSeconds"] >= 15) == ("Mixed", True)


@simulated
async def test_another_operator_completes_what_can_still_be_known():
    stage = staged()
    async with stage.running():
        stage.submit(collective())
        await stage.until_all_run(0)
        await stage.until_all_run(1)
        began = max(run.started for run in stage.runs(1))
        stage.kill_operator()
        stage.start_operator()
        await asyncio.sleep(10)
        age = asyncio.get_running_loop().time() - began
        report(stage, 1, attempt=1, startup=Startup(age, 1.0, 0.5, 2.0))
        await asyncio.sleep(WRITE_SECONDS)
        found = ledger(stage)
        assert found.keys() == {"attempt", "kind", "detectSeconds", "totalSeconds"} | {
            f"{part}Seconds" for part in ("import", "join", "load", "repeat")
        }
        assert found["totalSeconds"] == pytest.approx(began + 3.5 - stage.runs(0)[1].ended, abs=2)


def test_new_pods_and_progress_from_the_log():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", outcomes.crash(137, after_seconds=60))
        await stage.submit(job().worker(2).spec(restartPolicy={"delaySeconds": 7}))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(20))
        await stage.reaches(20)
        await stage.phase("Restarting")
        stage.fates.set("demo-worker-0", outcomes.RunForever())
        await stage.phase("Running")
        await asyncio.sleep(30)
        stage.write("demo-worker-0", line(19))
        await asyncio.sleep(30)
        assert "totalSeconds" not in (await stage.status())["lastRecovery"]
        stage.write("demo-worker-0", line(21))
        await stage.reaches(21)
        found = (await stage.status())["lastRecovery"]
        assert found["kind"] == "Recreate"
        assert found.keys() == {"attempt", "kind", "totalSeconds", *MEASURED}
        assert 0 < found["placeSeconds"] < 60 < found["totalSeconds"]

    play(act)


@simulated
async def test_the_record_has_the_end_of_each_program_and_the_ledger():
    stage = InPlaceStage(
        failing(("demo-worker-1", 0, CRASH), ("demo-worker-0", 1, CRASH), seconds=900),
        writes_progress=True,
        keeps_records=True,
    )
    async with stage.running():
        stage.submit(collective())
        await stage.until_all_run(0)
        await stage.until_all_run(1)
        report(stage, 1, attempt=1)
        await asyncio.sleep(WRITE_SECONDS)
        known = ledger(stage)
        await stage.until_all_run(2)
        await asyncio.sleep(30)
        reader = Cluster(Client(stage.server.transport("user"), rng=stage.rng), "default")
        record = await reader.record("demo")
    first, second = record.attempts[:2]
    assert [(each.rank, each.exit_code) for each in first.ranks] == [("worker-1", 137)]
    assert [(each.rank, each.exit_code) for each in second.ranks] == [("worker-0", 137)]
    assert first.recovery is None
    assert msgspec.to_builtins(second.recovery) == known
