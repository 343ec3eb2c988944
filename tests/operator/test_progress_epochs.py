"""Programs that print the step of an epoch and no number of epochs, as an operator sees them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey
from paddlejob.kube.resource import PODS
from paddlejob.operator.reports.writer import WRITE_SECONDS
from paddlejob.training.steps import declared_total
from simkube.build import job
from simkube.kubelet.outcomes import Exit, RunForever
from tests.operator.progress_stage import Read, play

TOTALS = ("percent", "steps", "eta")


async def run(stage: Read, attempt: int) -> None:
    """Wait until an attempt runs, which aborts when it is let go."""
    stage.hold("demo-worker-0", 134)

    async def has_begun() -> bool:
        status = await stage.status()
        return status.get("attempt", 0) == attempt and status.get("phase") == "Running"

    await stage.until(has_begun, f"attempt {attempt} runs")


async def train(stage: Read, epoch: int, *steps: int) -> None:
    for step in steps:
        stage.write("demo-worker-0", f"epoch {epoch} step {step}/62 loss 0.5")
        await asyncio.sleep(30)


def test_every_epoch_is_progress_although_the_total_is_unknown():
    async def act(stage: Read) -> None:
        policy = {"noProgressLimit": 1, "delaySeconds": 1}
        await stage.submit(job().worker(1).spec(backoffLimit=1, restartPolicy=policy, cleanPodPolicy="Never"))
        for attempt in range(4):
            await run(stage, attempt)
            # The attempt resumes in the epoch in which the one before failed.
            await train(stage, attempt + 1, *((20, 40) if attempt == 0 else (60, 62)))
            await train(stage, attempt + 2, 20, 40)
            progress = await stage.reaches(62 * (attempt + 1) + 40)
            assert not any(progress.get(name) for name in TOTALS)
            assert progress.get("lostSteps", 0) == 0
            assert (await stage.status()).get("consecutiveRestarts", 0) <= 1
            stage.let_go("demo-worker-0")
        await run(stage, 4)
        status = await stage.status()
        assert (status["progressMark"], status["restarts"]) == ({"epoch": 5, "step": 288}, 4)
        assert status["goodput"]["repeatingSeconds"] < 60

    play(act)


def test_an_annotation_declares_the_total():
    async def act(stage: Read) -> None:
        stage.hold("demo-worker-0")
        await stage.submit(declaring("124"))
        await stage.phase("Running")
        await train(stage, 1, 31, 62)
        progress = await stage.reaches(62)
        assert [progress[name] for name in TOTALS] == [50, 124, "60s"]
        # A total that is exceeded was wrong.
        await train(stage, 3, 31)
        progress = await stage.reaches(155)
        assert not any(progress.get(name) for name in TOTALS)

    play(act)


@pytest.mark.parametrize("total", ["", "0", "-5", "many", "٣", "9" * 16])
def test_another_annotation_declares_nothing(total):
    assert declared_total(declaring(total).build()) is None


def declaring(total: str):
    return job().worker(1).metadata(annotations={names.ANNOTATION_TOTAL_STEPS: total})


def test_the_recorder_counts_towards_a_declared_total_also_after_a_restart():
    async def act(stage: Read) -> None:
        await stage.submit(declaring("500"))
        await stage.phase("Running")
        stage.report(100, saved_step=100, throughput="2 steps/s")
        progress = await stage.reaches(100)
        assert [progress[name] for name in TOTALS] == [20, 500, "3m20s"]
        # The program has resumed, and counts from 0.
        pod = stage.running.controller.state.pods.get(ObjectKey("default", "demo-worker-0"))
        again = msgspec.structs.replace(
            pod.metadata, labels={**pod.metadata.labels, names.LABEL_ATTEMPT: "1"}
        )
        pod = msgspec.structs.replace(pod, metadata=again)
        stage.report(50, resumed=True, throughput="2 steps/s", pod=pod)
        progress = await stage.reaches(150)
        assert [progress[name] for name in TOTALS] == [30, 500, "2m55s"]

    play(act)


def test_another_operator_counts_on_from_the_status():
    async def act(stage: Read) -> None:
        stage.hold("demo-worker-0")
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        for line in ("epoch: 0, batch_id: 0", "epoch: 0, batch_id: 900", "epoch: 1, batch_id: 300"):
            stage.write("demo-worker-0", f"{line}, loss is: 0.5")
            await asyncio.sleep(WRITE_SECONDS)
        await stage.reaches(1200)
        await stage.stop_operator()
        stage.write("demo-worker-0", *["saving"] * 60)
        stage.start_operator()
        for line in ("epoch: 1, batch_id: 900", "epoch: 2, batch_id: 100"):
            stage.write("demo-worker-0", f"{line}, loss is: 0.5")
            await asyncio.sleep(WRITE_SECONDS)
        progress = await stage.reaches(1900)
        assert (progress["epoch"], progress["epochStep"]) == (2, 100)

    play(act)


@pytest.mark.parametrize(("code", "percent"), [(0, 100), (1, 50)])
def test_an_ended_job_has_no_remaining_time(code, percent):
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", Exit(code, 30.0))
        await stage.submit(job().worker(1).spec(restartPolicy={"permanentExitCodes": [1]}))
        await stage.phase("Running")
        stage.write("demo-worker-0", "step 50/100 loss 0.5 eta: 1:00:00")
        assert (await stage.reaches(50))["eta"] == "60m"
        status = await stage.phase("Failed" if code else "Completed")
        assert (status["progress"]["percent"], status["progress"].get("eta")) == (percent, None)
        await asyncio.sleep(4 * WRITE_SECONDS)
        assert (await stage.progress()).get("eta") is None

    play(act)


def test_a_container_that_was_restarted_in_its_pod_begins_no_second_pass():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", Exit(134, 30.0), Exit(0, 60.0))
        await stage.submit(job().worker(1, pod={"restartPolicy": "OnFailure"}))
        await stage.phase("Running")
        stage.write("demo-worker-0", "step 62/62 loss 0.5")
        await stage.reaches(62)
        await asyncio.sleep(35)
        stage.write("demo-worker-0", "step 5/62 loss 0.4")
        await asyncio.sleep(WRITE_SECONDS + 5)
        progress = await stage.progress()
        assert (progress["step"], progress.get("attemptStep"), progress["loss"]) == (62, 5, "0.4")

    play(act)


def test_a_restart_of_a_sidecar_does_not_restart_the_count():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", RunForever(), Exit(1, 60.0), RunForever())
        of = job().worker(1, pod={"restartPolicy": "OnFailure"})
        template = of.manifest["spec"]["worker"]["template"]
        template["spec"]["containers"].append({"name": "sidecar", "image": "sidecar"})
        await stage.submit(of)
        await stage.phase("Running")
        stage.write("demo-worker-0", "Total optimization steps = 100", "global_step: 10, loss: 0.5")
        assert (await stage.reaches(10))["steps"] == 100

        async def has_restarted() -> bool:
            statuses = stage.server.get(PODS, "default", "demo-worker-0")["status"]["containerStatuses"]
            return [each["restartCount"] for each in statuses] == [0, 1]

        await stage.until(has_restarted, "the sidecar has restarted")
        await asyncio.sleep(WRITE_SECONDS)
        stage.write("demo-worker-0", "global_step: 20, loss: 0.5")
        assert (await stage.reaches(20))["steps"] == 100

    play(act)
