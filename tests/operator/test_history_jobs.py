"""What an operator on an in-memory API server records of jobs, and how that outlives them."""

from __future__ import annotations

import asyncio

import msgspec

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import Phase
from paddlejob.history import compose
from paddlejob.history.record import object_key
from paddlejob.operator.history import CATCH_UP
from paddlejob.operator.settings import HistorySettings
from paddlejob.training.findings import Hang
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.operator.history_stage import Kept, play


def test_a_failed_job_can_be_looked_into_when_job_and_pods_are_gone():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-1", 1, message="ValueError: no data")
        await stage.submit(job().worker(2))
        await stage.phase("Running")
        stage.write(
            "demo-worker-1", "loading data", "Traceback (most recent call last):", "ValueError: no data"
        )
        stage.let_go("demo-worker-1")
        await stage.recorded("Failed")
        await stage.deleted()

        record = await stage.record()
        assert record.summary.message == "worker-1 exited with code 1: ValueError: no data"
        assert record.summary.ended is not None
        (attempt,) = record.attempts
        assert attempt.failure is not None
        assert attempt.failure.pod == "demo-worker-1"
        first = attempt.ranks[0]
        assert (first.rank, first.exit_code, first.from_log) == ("worker-1", 1, True)
        assert first.text.splitlines() == [
            "loading data",
            "Traceback (most recent call last):",
            "ValueError: no data",
        ]
        assert [each.phase for each in record.timeline][-2:] == ["Running", "Failed"]
        assert [each.name for each in await stage.cluster.history()] == ["demo"]

    play(act)


def test_stacks_of_a_hung_job_are_recorded():
    async def act(stage: Kept) -> None:
        await stage.submit(job().worker(2).spec(hangPolicy="Restart"))
        await stage.phase("Running")
        stage.write("demo-worker-0", "step 9")
        [running] = stage.running.controller.state.jobs
        stacks = (("demo-worker-1 (rank 1)", "in lock"), ("demo-worker-0 (rank 0)", "in wait"))
        hang = Hang(0, 9, 600, ("demo-worker-1 (rank 1) on a",), "no step for 10m (step 9)", stacks=stacks)
        stage.running.controller.state.note(running.metadata.key, Hang, hang)
        (attempt,) = (await stage.restarted()).attempts
        assert (attempt.reason, [each.rank for each in attempt.ranks]) == ("Hung", ["worker-1", "worker-0"])
        assert attempt.ranks[0].text == "stack of demo-worker-1 (rank 1):\nin lock"
        assert attempt.ranks[1].text == "step 9\n\nstack of demo-worker-0 (rank 0):\nin wait"
        assert [(each.state, each.exit_code) for each in attempt.ranks] == [("running", 0)] * 2

    play(act)


def test_where_the_ranks_of_a_hung_job_are_is_kept_when_it_is_deleted():
    async def act(stage: Kept) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        [running] = stage.running.controller.state.jobs
        stacks = (("demo-worker-0 (rank 0)", "in lock"),)
        hang = Hang(0, 9, 600, (), "no step for 10m (step 9)", stacks=stacks)
        stage.running.controller.state.note(running.metadata.key, Hang, hang)
        (attempt,) = (await stage.recorded("Running")).attempts
        assert (attempt.result, attempt.reason) == ("Running", "Hung")
        assert attempt.ranks[0].text == "stack of demo-worker-0 (rank 0):\nin lock"
        # Another operator does not know the stacks.
        await stage.stop_operator()
        stage.start_operator()
        await stage.phase("Running")
        await stage.client.delete(PADDLE_JOBS, stage.namespace, "demo")
        (attempt,) = (await stage.recorded("Deleted")).attempts
        assert attempt.result == "Deleted"
        assert attempt.ranks[0].text == "stack of demo-worker-0 (rank 0):\nin lock"

    play(act)


def test_every_restart_is_recorded_with_the_changes():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 137)
        await stage.submit(job().worker(2, image="paddle:1"))
        await stage.phase("Running")
        template = job().worker(2, image="paddle:2").manifest["spec"]["worker"]["template"]
        await stage.edit(worker={"template": template})
        stage.write("demo-worker-0", "out of memory")
        stage.let_go("demo-worker-0")
        stage.hold("demo-worker-0", 1)
        await stage.restarted()
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        first, second = record.attempts
        assert (first.attempt, first.result, first.ranks[0].text) == (0, "Restarting", "out of memory")
        assert first.ranks[0].exit_code == 137
        assert not first.changes
        assert (second.attempt, second.result) == (1, "Failed")
        changed = {each.name: (each.before, each.after) for each in second.changes}
        assert changed["worker.containers.paddle.image"] == ("paddle:1", "paddle:2")

    play(act)


def test_the_curve_follows_the_progress_in_the_log():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 0)
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Running")
        for step in (10, 20, 30):
            stage.write("demo-worker-0", f"epoch 1 step {step}/62 loss {1 / step:.3f}")
            await asyncio.sleep(40)
        stage.write("demo-worker-0", "epoch 1 step 62/62 loss 0.001")
        stage.let_go("demo-worker-0")
        await stage.recorded("Completed")
        await asyncio.sleep(120)
        record = await stage.record()
        assert [(each.step, each.loss) for each in record.curve] == [
            (10, "0.1"),
            (20, "0.05"),
            (30, "0.033"),
            (62, "0.001"),
        ]

    play(act)


def test_the_record_of_a_job_that_has_ended_is_not_written_again():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 0)
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Running")
        stage.write("demo-worker-0", "epoch 1 step 62/62 loss 0.001")
        await asyncio.sleep(40)
        stage.let_go("demo-worker-0")
        await stage.recorded("Completed")
        await asyncio.sleep(120)
        written = stage.record_writes()
        assert 1 <= len(written) <= 2
        await asyncio.sleep(3600)
        assert stage.record_writes() == written

    play(act)


def test_a_job_that_is_deleted_while_it_runs_is_recorded_as_deleted():
    async def act(stage: Kept) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        await stage.deleted()
        record = await stage.recorded("Deleted")
        assert record.summary.message.startswith("deleted while it was ")
        assert record.attempts[-1].result == "Deleted"

    play(act)


def test_a_job_deleted_after_its_pods_is_recorded_with_its_last_phase():
    async def act(stage: Kept) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        await stage.client.delete(PADDLE_JOBS, "default", "demo", propagation="Foreground")
        record = await stage.recorded("Deleted")
        assert record.summary.message == "deleted while it was Running"
        assert "Terminating" in {each.phase for each in record.timeline}

    play(act)


def test_a_job_that_is_deleted_while_no_operator_runs_is_recorded_by_the_next():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 137)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        await stage.restarted()
        await stage.stop_operator()
        await stage.deleted()
        stage.start_operator()
        record = await stage.recorded("Deleted")
        assert [(each.attempt, each.result) for each in record.attempts] == [
            (0, "Restarting"),
            (1, "Deleted"),
        ]
        assert record.summary.failure is not None

    play(act)


def test_an_end_that_no_record_was_written_of_is_made_up_by_the_next_operator():
    async def act(stage: Kept) -> None:
        stage.settings = None
        await stage.stop_operator()
        stage.start_operator()
        stage.fates.set("demo-worker-0", Exit(1, message="boom"))
        stage.fates.set("old-worker-0", Exit(1, message="boom"))
        await stage.submit(job("old").worker(1))
        await stage.phase("Failed", "old")
        await stage.stop_operator()
        await asyncio.sleep(CATCH_UP.total_seconds())
        stage.start_operator()
        await stage.submit(job().worker(1))
        await stage.phase("Failed")
        await stage.stop_operator()
        stage.settings = HistorySettings()
        stage.start_operator()
        record = await stage.recorded("Failed")
        assert record.attempts[0].failure is not None
        assert record.attempts[0].failure.message == "worker-0 exited with code 1: boom"
        assert [each.name for each in await stage.stored()] == ["demo"]

    play(act)


def test_a_mistake_in_a_record_does_not_hold_up_the_job(monkeypatch):
    def broken(*_) -> None:
        raise ValueError("a bug")

    async def act(stage: Kept) -> None:
        monkeypatch.setattr(compose, "rank_end", broken)
        stage.fates.set("demo-worker-0", Exit(137, 1), Exit(0, 1))
        await stage.submit(job().worker(1))
        await stage.phase("Completed")
        record = await stage.recorded("Completed")
        assert record.summary.restarts == 1

    play(act)


def test_a_late_response_to_an_earlier_write_does_not_open_the_record_again():
    async def act(stage: Kept) -> None:
        stage.fates.set("demo-worker-0", Exit(0, 10))
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        [running] = stage.running.controller.state.jobs
        await stage.recorded("Completed")
        keeper = stage.running.controller.history
        assert keeper is not None
        late = msgspec.structs.replace(running.status, phase=Phase.RESTARTING, attempt=1)
        await keeper.on_status(running, late)
        await asyncio.sleep(60)
        assert [each.result for each in await stage.stored()] == ["Completed"]

    play(act)


def test_two_jobs_of_one_name_have_a_record_each_and_the_newest_is_meant():
    async def act(stage: Kept) -> None:
        for code in (1, 2):
            stage.fates.set("demo-worker-0", Exit(code, 1))
            await stage.submit(job().worker(1))
            await stage.phase("Failed")
            await stage.recorded("Failed")
            await stage.deleted()
            await asyncio.sleep(10)
        newest, oldest = await stage.cluster.history(name="demo")
        assert (await stage.record()).summary == newest
        assert "code 2" in newest.message
        assert (await stage.record(object_key(oldest).name)).summary == oldest

    play(act)
