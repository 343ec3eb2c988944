"""Logs of deleted pods: the operator's record replaces them, and every reader says so."""

from __future__ import annotations

import pytest

from client.scene import Scene, play, texts
from paddlejob.client.logs.model import LogQuery
from paddlejob.history.record import RECORD_KEY
from paddlejob.kube.resource import CONFIG_MAPS
from paddlejob.operator.settings import HistorySettings
from simkube.build import job
from simkube.kubelet.outcomes import Exit

TRACEBACK = ("Traceback (most recent call last):", "ValueError: bad shape")
FIRST = "2030-01-01T00:00:00Z a time that the program wrote"
NOTE = "pod demo-worker-1 was deleted; its last lines are from the operator's record"

LOST = "pod demo-worker-1 was deleted with its log; spec.cleanPodPolicy: Never keeps failed pods"


async def failed(scene: Scene, *, history: bool = True, policy: str = "Always"):
    """Return a job whose worker-1 failed, and whose pods were deleted unless the policy keeps them."""
    await scene.stop_operator()
    scene.history = HistorySettings() if history else None
    scene.start_operator()
    scene.hold("demo-worker-1", 3, "ValueError: bad shape")
    demo = await scene.submitted(job().worker(2).spec(backoffLimit=0, cleanPodPolicy=policy))
    await scene.runs("demo-worker-0", "demo-worker-1")
    scene.write("demo-worker-1", FIRST, *TRACEBACK)
    scene.let_go("demo-worker-1")
    await demo.wait(timeout_seconds=60)
    return demo


async def pods_gone(scene: Scene) -> None:
    async def none() -> bool:
        return not await scene.names()

    await scene.until(none, "the pods are deleted")


def test_the_first_error_of_a_deleted_pod_is_read_from_the_record():
    async def act(scene: Scene) -> None:
        # The record is written after the job's end, and is awaited.
        demo = await failed(scene)
        await pods_gone(scene)
        found = await demo.first_error()
        assert (found.rank, found.lines, found.note) == ("worker-1", TRACEBACK, NOTE)

    play(act)


def test_logs_of_deleted_pods_are_read_from_the_record():
    async def act(scene: Scene) -> None:
        demo = await failed(scene)
        await pods_gone(scene)
        whole = [
            "--- 2 pods were deleted; the last lines are from the operator's record",
            f"worker-1: {FIRST}",
            *(f"worker-1: {line}" for line in TRACEBACK),
        ]
        shown = await texts(demo, LogQuery())
        assert shown == whole
        assert await texts(demo, LogQuery(follow=True)) == whole
        one = [
            "--- 1 pod was deleted; the last lines are from the operator's record",
            f"worker-1: {TRACEBACK[1]}",
        ]
        assert await texts(demo, LogQuery(rank="1", tail=1)) == one
        lost = ["--- the logs of demo were deleted with its pods; spec.cleanPodPolicy: Never keeps them"]
        for query in (
            LogQuery(previous=True),
            LogQuery(container="sidecar"),
            LogQuery(recorded=False),
            LogQuery(tail=0),
        ):
            assert await texts(demo, query) == lost
        await scene.until(lambda: _is_older(scene, demo), "the end is long ago")
        assert await texts(demo, LogQuery(since_seconds=10)) == lost

    play(act)


async def _is_older(scene: Scene, demo) -> bool:
    return (scene.client.server_now() - demo.state.status.completion_time).total_seconds() > 30


def test_the_log_of_a_pod_that_exists_comes_from_the_pod():
    async def act(scene: Scene) -> None:
        demo = await failed(scene, policy="Never")
        found = await demo.first_error()
        assert (found.lines, found.note) == (TRACEBACK, "")
        assert not [line for line in await texts(demo, LogQuery()) if line.startswith("---")]

    play(act)


def test_the_explanation_of_a_deleted_pod_shows_the_recorded_traceback():
    async def act(scene: Scene) -> None:
        demo = await failed(scene)
        await pods_gone(scene)
        found = await demo.explain()
        assert found.log == TRACEBACK
        assert NOTE in found.findings[0].details

    play(act)


@pytest.mark.parametrize("history", [True, False])
def test_without_a_record_that_decodes_the_log_is_lost(history):
    async def act(scene: Scene) -> None:
        demo = await failed(scene, history=history)
        await pods_gone(scene)
        if history:
            await demo.first_error()
            name = f"demo-history-{demo.state.metadata.uid[:8]}"
            await scene.client.patch(CONFIG_MAPS, "default", name, {"binaryData": {RECORD_KEY: "AAAA"}})
        found = await demo.first_error()
        assert (found.lines, found.note) == ((), LOST)
        assert LOST in (await demo.explain()).findings[0].details

    play(act)


def test_a_rank_that_wrote_nothing_is_said_to_be_silent():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(3, 1))
        demo = await scene.submitted(job().worker(1).spec(backoffLimit=0, cleanPodPolicy="Never"))
        await demo.wait(timeout_seconds=60)
        found = await demo.first_error()
        assert (found.lines, found.note) == ((), "worker-0 wrote nothing to its log")

    play(act)
