"""What the operator knows and answers about the programs of supervised pods."""

from __future__ import annotations

from paddlejob.operator.reports import attendance
from simkube.build import JobBuilder, job
from simkube.kubelet import outcomes
from tests.operator.in_place_stage import InPlaceStage, failing
from tests.support.simulated import simulated

CRASH = outcomes.crash(137, after_seconds=20)


def collective(workers: int = 2, **spec) -> JobBuilder:
    pod = {"restartPolicy": "Never"}
    return job().worker(workers, pod=pod).spec(**({"restartPolicy": {"delaySeconds": 0}} | spec))


@simulated
async def test_a_program_that_ends_concerns_only_its_own_pod(monkeypatch):
    orders = []

    def order_of(*state):
        orders.append(state)
        return attendance_order_of(*state)

    attendance_order_of = attendance.order_of
    stage = InPlaceStage(failing(("demo-worker-7", 0, CRASH)))
    async with stage.running():
        stage.submit(collective(60))
        await stage.until_all_run(0)
        monkeypatch.setattr(attendance, "order_of", order_of)
        await stage.until_all_run(1)
    assert len(orders) < 60 * 10


@simulated
async def test_the_output_of_an_earlier_attempt_is_no_evidence():
    """A container has one log for all of its programs."""
    failures = (("demo-worker-1", 0, outcomes.crash(1, after_seconds=20)), ("demo-worker-1", 1, CRASH))
    stage = InPlaceStage(failing(*failures))
    policy = {"delaySeconds": 0, "retryableExitCodes": [1]}
    async with stage.running():
        stage.submit(collective(restartPolicy=policy))
        await stage.until_all_run(0)
        logs = stage.server.container_logs
        logs.write(stage.pods()["demo-worker-1"], b"There are NAN or INF")
        await stage.until_all_run(1)
        # The supervisor begins the output of an attempt, perhaps behind an unfinished line.
        logs.write(stage.pods()["demo-worker-1"], b"unfinished paddlejob: attempt 1 starts in place")
        logs.write(stage.pods()["demo-worker-1"], b"step 1")
        await stage.until(lambda: stage.status().get("attempt") == 2 or stage.status()["phase"] == "Failed")
        failure = stage.status()["lastFailure"]
        assert (stage.status()["phase"], failure["message"]) == (
            "Restarting",
            "worker-1 exited with code 137: step 1",
        )


@simulated
async def test_the_kept_pods_of_a_finished_job_take_no_place_of_others():
    stage = InPlaceStage(failing(("demo-worker-1", 0, outcomes.crash(1, after_seconds=20))))
    async with stage.running():
        stage.submit(collective(4, cleanPodPolicy="Never"))
        await stage.until_phase("Failed")
        await stage.until(lambda: {pod["status"]["phase"] for pod in stage.pods().values()} == {"Failed"})
        state = stage.operator.controller.state
        await stage.until(lambda: not state.supervised.total())


@simulated
async def test_a_program_that_cannot_be_restarted_in_place_ends_its_container_at_once(monkeypatch):
    monkeypatch.setattr(attendance, "MAX_ATTENDING", 0)
    stage = InPlaceStage(failing(("demo-worker-1", 0, CRASH)))
    async with stage.running():
        stage.submit(collective())
        await stage.until(lambda: any(run.ended for run in stage.supervision.runs))
        await stage.until(lambda: stage.status().get("attempt") == 1, within_seconds=10)
        assert stage.status()["lastFailure"]["exitCode"] == 137
