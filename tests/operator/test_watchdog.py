"""Ranks that make no progress, or make it slowly, as a watchdog over their reports sees them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from paddlejob.core.pod_set import attempt_of
from paddlejob.kube.resource import EVENTS
from paddlejob.operator.reports.rank_registry import SILENT_SECONDS, RankRegistry
from paddlejob.operator.reports.watchdog import Watchdog
from paddlejob.training.hangs import HangLimits
from paddlejob.training.reports import Report
from simkube import virtual_loop
from simkube.build import job
from tests.operator.progress_stage import Read, play

LIMITS = HangLimits(floor_seconds=60, ceiling_seconds=600)
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
STACK = 'Thread 0x0 (most recent call first):\n  File "/app/train.py", line 60 in backward\n'


class Ranks:
    """What the ranks of a job report while a watchdog looks on."""

    def __init__(self, stage: Read) -> None:
        self.stage = stage
        self.controller = stage.running.controller
        self.registry = RankRegistry()
        self.watchdog = Watchdog(
            self.controller.state, self.registry, self.controller.record_event, LIMITS, straggler_seconds=60.0
        )
        self.asked: set[str] = set()

    async def report(self, step: int, *, silent: str = "", waiting: bool = True) -> None:
        clock = asyncio.get_running_loop().time()
        for pod in self.controller.state.pods:
            name = pod.metadata.name
            if name == silent:
                continue
            [job] = self.controller.state.jobs
            phase = "training" if step else "starting"
            report = Report(rank=int(name[-1]), step=step, phase=phase, waiting=waiting)
            self.registry.add_report(job.metadata.key, pod, report, clock, attempt=attempt_of(pod))
            if self.watchdog.wants_stacks(job.metadata.key):
                self.asked.add(name)
                where = msgspec.structs.replace(report, stacks=STACK)
                self.registry.add_report(job.metadata.key, pod, where, clock, attempt=attempt_of(pod))
        await asyncio.sleep(5)

    def watch(self) -> None:
        self._watching = asyncio.create_task(self.watchdog.run())

    async def restart(self) -> Ranks:
        """Let another operator take over; return what the ranks report to it."""
        self._watching.cancel()
        await self.stage.stop_operator()
        self.stage.start_operator()
        ranks = Ranks(self.stage)
        ranks.registry.since = virtual_loop.now()
        ranks.watch()
        await ranks.controller.wait_until_synced()
        return ranks

    async def told(self) -> int:
        """Count the events of hangs."""
        listed = await self.stage.client.list(EVENTS, self.stage.namespace, type=dict)
        return sum(each.get("count", 1) for each in listed.items if each["reason"] == "Hung")


def watched(act, **spec) -> None:
    async def main(stage: Read) -> None:
        await stage.submit(job().worker(3).spec(**spec))
        await stage.phase("Running")
        ranks = Ranks(stage)
        ranks.watch()
        for step in range(1, 10):
            await ranks.report(step)
        await act(stage, ranks)

    play(main)


def test_a_hang_is_reported_with_the_unreachable_rank(caplog):
    async def act(stage: Read, ranks: Ranks) -> None:
        for _ in range(30):
            await ranks.report(9, silent="demo-worker-1")
        await stage.says("demo-worker-1 (rank 1)")
        assert "no step for" in (await stage.status())["message"]
        assert "Hung" in await stage.reasons()
        assert ranks.asked == {"demo-worker-0", "demo-worker-2"}
        assert f"stack of demo-worker-0 (rank 0), demo-worker-2 (rank 2):\n{STACK}" in caplog.text
        await ranks.report(10)
        await stage.says("3 workers running")
        for _ in range(5):
            await ranks.report(11)
        assert "no step" not in (await stage.status())["message"]

    watched(act)


def test_a_rank_that_is_out_of_reach_is_named_however_long_the_others_wait(monkeypatch):
    """Time-outs are longer than reports are remembered of ranks that nobody waits for."""

    async def act(stage: Read, ranks: Ranks) -> None:
        for _ in range(int(SILENT_SECONDS / 5) + 60):
            await ranks.report(9, silent="demo-worker-1")
        await stage.says("demo-worker-1 (rank 1)")

    monkeypatch.setitem(globals(), "LIMITS", HangLimits(floor_seconds=SILENT_SECONDS + 60))
    watched(act)


def test_a_job_with_only_silent_ranks_is_reported_and_not_restarted():
    async def act(stage: Read, ranks: Ranks) -> None:
        await asyncio.sleep(1200)
        assert "Hung" in await stage.reasons()
        status = await stage.status()
        assert status["message"].endswith("all 3 ranks are stopped or cannot reach the operator")
        assert "no report for 85s" in status["message"]
        assert status.get("attempt", 0) == 0
        await ranks.report(10)
        await stage.says("3 workers running")

    watched(act, hangPolicy="Restart")


def test_a_job_that_reports_again_and_hangs_is_restarted():
    async def act(stage: Read, ranks: Ranks) -> None:
        await asyncio.sleep(1200)
        assert "no report" in (await stage.status())["message"]
        for _ in range(10):
            await ranks.report(9)
        assert len(ranks.asked) == 3
        assert (await stage.status())["lastFailure"]["message"].startswith(
            "no step for 20m (step 9): all 3 ranks"
        )

    watched(act, hangPolicy="Restart")


def test_a_hang_stays_on_record_when_another_operator_takes_over():
    async def act(stage: Read, ranks: Ranks) -> None:
        for _ in range(30):
            await ranks.report(9, silent="demo-worker-1")
        before = await stage.status()
        assert (before["phase"], before["reason"]) == ("Running", "Hung")
        for _ in range(2):
            ranks = await ranks.restart()
            for _ in range(30):
                await ranks.report(9, silent="demo-worker-1")
                status = await stage.status()
                assert (status["reason"], status["message"]) == ("Hung", before["message"])
        assert status["goodput"] == before["goodput"]
        assert await ranks.told() == 1
        for _ in range(3):
            await ranks.report(10)
        status = await stage.status()
        assert (status["reason"], status["message"]) == ("PodsRunning", "3 workers running")

    watched(act)


def test_a_pause_that_another_operator_has_learned_restarts_no_job():
    async def act(stage: Read, ranks: Ranks) -> None:
        for step in range(9, 15):
            for _ in range(10):
                await ranks.report(step)
        # Five times 50 seconds are allowed now, which the next operator does not know.
        ranks = await ranks.restart()
        for _ in range(30):
            await ranks.report(14)
        status = await stage.status()
        assert (status.get("attempt", 0), status["reason"]) == (0, "Hung")
        for _ in range(3):
            await ranks.report(15)
        assert (await stage.status())["reason"] == "PodsRunning"
        # No pause is allowed for longer than 600 seconds.
        for _ in range(int(LIMITS.ceiling_seconds) // 5 + 5):
            await ranks.report(15)
            if (await stage.status()).get("attempt", 0):
                break
        status = await stage.status()
        assert (status["attempt"], status["lastFailure"]["reason"]) == (1, "Hung")

    watched(act, hangPolicy="Restart")


def test_ranks_that_wait_for_one_that_has_not_begun_name_it():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(3))
        await stage.phase("Running")
        ranks = Ranks(stage)
        ranks.watch()
        for _ in range(100):
            await ranks.report(0, silent="demo-worker-2")
        node = (await stage.pod("demo-worker-2"))["spec"]["nodeName"]
        await stage.says(f"demo-worker-2 on {node} has not started training")

    play(act)


def test_a_job_that_hangs_is_restarted_once_where_it_asks_for_that():
    async def act(stage: Read, ranks: Ranks) -> None:
        for _ in range(30):
            await ranks.report(9, silent="demo-worker-1")
            if (await stage.status()).get("attempt"):
                break
        status = await stage.phase("Running")
        assert (status["attempt"], status["lastFailure"]["reason"]) == (1, "Hung")
        assert status["lastFailure"]["pod"] == "demo-worker-1"
        for step in range(1, 30):
            await ranks.report(step)
        assert (await stage.status())["attempt"] == 1

    watched(act, hangPolicy="Restart")


async def train_unevenly(
    ranks: Ranks, *, seconds: int, slow: str, waiting: bool = True, slow_stage: int = 0
) -> None:
    """Let all ranks make four steps a second, one of them with more work of its own.

    Where they do not wait for each other, the slow one makes fewer steps.
    """
    [found] = ranks.controller.state.jobs
    for number in range(seconds // 5):
        for pod in ranks.controller.state.pods:
            is_slow = pod.metadata.name == slow
            times = (4.9, 0.1) if is_slow else (1.0, 4.0) if waiting else (4.0, 1.0)
            report = Report(
                rank=int(pod.metadata.name[-1]),
                step=10 + (20 if waiting or not is_slow else 5) * number,
                phase="training",
                own_seconds=times[0] * number,
                waiting_seconds=times[1] * number,
                stage=slow_stage if is_slow else 0,
            )
            now = asyncio.get_running_loop().time()
            ranks.registry.add_report(found.metadata.key, pod, report, now, attempt=attempt_of(pod))
        await asyncio.sleep(5)


async def stragglers_told(stage: Read) -> list[dict]:
    listed = await stage.client.list(EVENTS, stage.namespace, type=dict)
    return [each for each in listed.items if each["reason"] == "Straggler" and each["type"] == "Warning"]


def test_a_straggler_is_reported_once_with_its_node():
    async def act(stage: Read, ranks: Ranks) -> None:
        await train_unevenly(ranks, seconds=200, slow="demo-worker-2")
        told = await stragglers_told(stage)
        assert [each.get("count", 1) for each in told] == [1]
        node = (await stage.pod("demo-worker-2"))["spec"]["nodeName"]
        assert told[0]["message"].startswith(f"demo-worker-2 (rank 2) on {node} computes for ")
        status = await stage.status()
        assert status["message"] == f"3 workers running; {told[0]['message']}"
        assert status.get("attempt", 0) == 0
        await train_unevenly(ranks, seconds=60, slow="")
        assert (await stage.status())["message"] == "3 workers running"

    watched(act)


@pytest.mark.parametrize("how", [{"waiting": False}, {"slow_stage": 1}], ids=["asynchronous", "pipeline"])
def test_ranks_that_are_not_comparable_have_no_straggler(how):
    async def act(stage: Read, ranks: Ranks) -> None:
        await train_unevenly(ranks, seconds=600, slow="demo-worker-2", **how)
        assert await stragglers_told(stage) == []
        status = await stage.status()
        assert (status["message"], status.get("attempt", 0)) == ("3 workers running", 0)

    watched(act, stragglerPolicy="Replace")


def test_a_straggler_is_replaced_once_where_its_job_asks_for_that():
    async def act(stage: Read, ranks: Ranks) -> None:
        node = (await stage.pod("demo-worker-2"))["spec"]["nodeName"]
        await train_unevenly(ranks, seconds=120, slow="demo-worker-2")
        await stage.phase("Running")
        status = await stage.status()
        assert (status["attempt"], status["restarts"], status["suspectNodes"]) == (1, 1, [node])
        assert status["lastFailure"]["pod"] == "demo-worker-2"
        assert status["lastFailure"]["reason"] == "Straggler"
        [avoided] = (await stage.pod("demo-worker-2"))["spec"]["affinity"]["nodeAffinity"][PREFERRED]
        assert avoided["preference"]["matchFields"][0]["values"] == [node]
        # Slow again: then it is not for its node.
        await train_unevenly(ranks, seconds=200, slow="demo-worker-2")
        status = await stage.status()
        assert (status["phase"], status["attempt"]) == ("Running", 1)
        assert "demo-worker-2 (rank 2)" in status["message"]

    watched(act, stragglerPolicy="Replace")
