"""Following logs: before the first pod, over restarts and attempts, to the end of the job."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from client.scene import Scene, play, texts
from paddlejob.client.errors import ClientError
from paddlejob.client.logs.container_log import MAX_LINE_BYTES, ContainerLog, ContainerView, Source
from paddlejob.client.logs.model import LogItem, LogQuery
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport import Transport
from simkube.build import job
from simkube.kubelet.outcomes import Exit, Unschedulable

FOLLOW = LogQuery(follow=True)


def test_following_begins_before_the_first_pod_and_ends_with_the_job():
    async def act(scene: Scene) -> None:
        for rank in range(2):
            scene.fates.set(f"demo-worker-{rank}", Unschedulable(30, Exit(0, 5)))
        demo = await scene.submitted(job().worker(2))
        following = asyncio.create_task(texts(demo, FOLLOW))
        await scene.runs("demo-worker-0", "demo-worker-1")
        scene.write("demo-worker-0", "hello", "world")
        scene.write("demo-worker-1", "here")
        found = await following
        lines = [line for line in found if not line.startswith("---")]
        assert sorted(lines) == ["worker-0: hello", "worker-0: world", "worker-1: here"]
        assert any("is Pending" in line for line in found)
        assert (await demo.refresh()).status.phase == "Completed"

    play(act)


def test_waiting_says_each_reason_once():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Unschedulable(600, Exit(0, 5)))
        demo = await scene.submitted(job().worker(1))
        found = await texts(demo, FOLLOW)
        news = [line for line in found if line.startswith("--- demo is")]
        assert news
        assert len(news) == len(set(news))

    play(act)


def test_following_crosses_an_attempt_with_a_marker():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(137, 3, reason="OOMKilled"), Exit(0, 3))
        scene.fates.set("demo-worker-1", Exit(0, 60), Exit(0, 3))
        demo = await scene.submitted(job().worker(2))
        following = asyncio.create_task(texts(demo, FOLLOW))
        await scene.runs("demo-worker-0", "demo-worker-1")
        scene.write("demo-worker-0", "first try")
        await scene.until(lambda: _attempt(scene, 1), "attempt 1")
        await scene.runs("demo-worker-0", "demo-worker-1")
        scene.write("demo-worker-0", "second try")
        found = await following
        marker = next(line for line in found if line.startswith("--- attempt 1"))
        assert "worker-0 exited with code 137 (OOMKilled)" in marker
        order = [found.index(line) for line in ("worker-0: first try", marker, "worker-0: second try")]
        assert order == sorted(order)

    play(act)


def test_following_crosses_a_restart_in_place():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(1, 3), Exit(0, 3))
        demo = await scene.submitted(job().worker(1, pod={"restartPolicy": "OnFailure"}))
        following = asyncio.create_task(texts(demo, FOLLOW))
        await scene.runs("demo-worker-0")
        scene.write("demo-worker-0", "before")
        await scene.until(lambda: _restarted(scene), "restarted")
        await scene.runs("demo-worker-0")
        scene.write("demo-worker-0", "after")
        found = [line for line in await following if "demo is" not in line]
        assert found == ["worker-0: before", "--- worker-0 restarted: exited with code 1", "worker-0: after"]

    play(act)


def test_the_instance_between_two_looks_is_shown():
    """The server keeps one instance before the present one; a client that was cut off has seen neither."""

    async def act(scene: Scene) -> None:
        pod = "demo-worker-0"
        scene.fates.set(pod, Exit(1, 3), Exit(2, 3), Exit(0, 100))
        await scene.submitted(job().worker(1, pod={"restartPolicy": "OnFailure"}))
        await scene.runs(pod)
        scene.write(pod, "first")
        view, found = ContainerView(has_started=True), []

        async def emit(item: LogItem) -> None:
            found.extend(line.text for line in item.lines())

        source = Source("default", pod, "paddle", "worker-0", 0)
        log = ContainerLog(scene.cluster.client, source, emit=emit, view=lambda: view)
        reading = asyncio.create_task(log.run())
        await scene.until(lambda: _is(found == ["first"]), "read")
        for restarts, text in ((1, "second"), (2, "third")):
            await scene.until(lambda restarts=restarts: _restarted(scene, restarts), "restarted")
            await scene.runs(pod)
            scene.write(pod, text)
        view = ContainerView(restarts=2, has_started=True, is_over=True, ending="exited with code 2")
        log.wake()
        await reading
        assert found == [
            "first",
            "worker-0 restarted",
            "second",
            "worker-0 restarted: exited with code 2",
            "third",
        ]

    play(act)


@pytest.mark.parametrize("query", [LogQuery(follow=True, tail=3), LogQuery(follow=True, since_seconds=0.5)])
def test_lines_that_are_not_wanted_do_not_come_after_a_broken_connection(query):
    async def act(scene: Scene) -> None:
        scene.hold("demo-worker-0")
        demo = await scene.submitted(job().worker(1))
        await scene.runs("demo-worker-0")
        for number in range(30):
            scene.write("demo-worker-0", f"old {number}")
            await asyncio.sleep(0.1)
        following = asyncio.create_task(texts(demo, query))
        await scene.until(lambda: _is(scene.server.container_logs.opened), "followed")
        await asyncio.sleep(0.1)
        scene.server.container_logs.cut()
        scene.write("demo-worker-0", "new")
        await scene.until(lambda: _is(scene.server.container_logs.opened > 1), "followed again")
        scene.let_go("demo-worker-0")
        found = [line.removeprefix("worker-0: ") for line in await following if line.startswith("worker-0")]
        first = int(found[0].removeprefix("old "))
        assert first > 0
        assert found == [*(f"old {number}" for number in range(first, 30)), "new"]

    play(act)


LONG = "x" * (MAX_LINE_BYTES - len("2026-01-01T00:00:00.000000000Z "))


@pytest.mark.parametrize("rest", ["9999-12-31T23:59:59Z end", "2026-99-99T99:99:99Z end", "end"])
def test_the_rest_of_a_long_line_is_not_taken_for_a_time(rest):
    async def act(scene: Scene) -> None:
        scene.hold("demo-worker-0")
        demo = await scene.submitted(job().worker(1))
        following = asyncio.create_task(texts(demo, FOLLOW))
        await scene.runs("demo-worker-0")
        scene.write("demo-worker-0", LONG + rest)
        await asyncio.sleep(0.1)
        scene.server.container_logs.cut()
        scene.write("demo-worker-0", "after")
        await asyncio.sleep(20)
        scene.let_go("demo-worker-0")
        found = [line.removeprefix("worker-0: ") for line in await following if line.startswith("worker-0")]
        assert found == [LONG, rest, "after"]

    play(act)


def test_following_ends_when_a_server_outlives_the_job():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(0, 5))
        demo = await scene.submitted(job().ps(1).worker(1).spec(cleanPodPolicy="Never"))
        following = asyncio.create_task(texts(demo, FOLLOW))
        await scene.runs("demo-ps-0", "demo-worker-0")
        scene.write("demo-ps-0", "serving")
        assert "ps-0: serving" in await following

    play(act)


class SlowLogs:
    """A transport whose logs begin to come after a while, as on a loaded node."""

    def __init__(self, inner: Transport) -> None:
        self.request = inner.request
        self._inner = inner

    @contextlib.asynccontextmanager
    async def stream(self, path: str, **options):
        if path.endswith("/log"):
            await asyncio.sleep(2.0)
        async with self._inner.stream(path, **options) as stream:
            yield stream


def test_the_last_lines_are_read_from_a_slow_node_too():
    async def act(scene: Scene) -> None:
        scene.hold("demo-worker-0")
        demo = await scene.submitted(job().ps(1).worker(1).spec(cleanPodPolicy="Never"))
        following = asyncio.create_task(texts(demo, LogQuery(follow=True)))
        await scene.runs("demo-ps-0", "demo-worker-0")
        scene.write("demo-ps-0", "serving")
        scene.let_go("demo-worker-0")
        found = await following
        assert "ps-0: serving" in found
        assert [line for line in found if "completely" in line] == []

    play(act, around_user=SlowLogs)


@pytest.mark.parametrize("query", [LogQuery(), LogQuery(rank="0"), FOLLOW])
def test_logs_that_were_deleted_with_their_pods_are_not_taken_for_silence(query):
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Unschedulable(30, Exit(0, 3)))
        demo = await scene.submitted(job().worker(1))
        if not query.follow:
            assert (await texts(demo, query))[0].startswith("--- demo has no pods now: ")
        await demo.wait()
        await scene.until(lambda: _is_gone(scene, "demo-worker-0"), "gone")
        (line,) = await texts(demo, query)
        assert (
            line == "--- the logs of demo were deleted with its pods; spec.cleanPodPolicy: Never keeps them"
        )

    play(act)


def test_following_ends_when_the_job_is_deleted():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        following = asyncio.create_task(texts(demo, FOLLOW))
        await scene.runs("demo-worker-0")
        scene.write("demo-worker-0", "training")
        await demo.delete()
        found = await following
        assert "worker-0: training" in found
        assert "--- demo was deleted" in found

    play(act)


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        ("0", {"worker-0: w0"}),
        ("ps-1", {"ps-1: p1"}),
        ("ps", {"ps-0: p0", "ps-1: p1"}),
        ("all", {"worker-0: w0", "worker-1: w1", "ps-0: p0", "ps-1: p1"}),
    ],
)
def test_ranks_are_chosen(rank: str, expected: set[str]):
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().ps(2).worker(2))
        pods = [f"demo-{role}-{index}" for role in ("ps", "worker") for index in range(2)]
        await scene.runs(*pods)
        for pod in pods:
            scene.write(pod, f"{pod[5]}{pod[-1]}")
        assert set(await texts(demo, LogQuery(rank=rank))) == expected

    play(act)


def test_an_unknown_rank_is_named_with_those_there_are():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(2))
        with pytest.raises(ClientError, match="demo has no rank 7; choose all or one of worker-0, worker-1"):
            await texts(demo, LogQuery(rank="7"))

    play(act)


def test_more_ranks_than_connections_are_refused():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(3))
        await scene.runs(*(f"demo-worker-{index}" for index in range(3)))
        for follow in (False, True):
            with pytest.raises(ClientError, match=r"more than 2 logs .*choose a rank or a role$"):
                await texts(demo, LogQuery(follow=follow, max_requests=2))

    play(act)


def test_history_is_in_order_of_time_over_all_ranks():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(2))
        await scene.runs("demo-worker-0", "demo-worker-1")
        for number in range(6):
            await asyncio.sleep(1)
            scene.write(f"demo-worker-{number % 2}", f"line {number}")
        found = await texts(demo, LogQuery())
        assert found == [f"worker-{number % 2}: line {number}" for number in range(6)]
        assert await texts(demo, LogQuery(tail=1)) == found[-2:]
        assert await texts(demo, LogQuery(since_seconds=1.5)) == found[-2:]

    play(act)


def test_previous_shows_the_instance_before_the_last_restart():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(1, 3), Exit(0, 300))
        demo = await scene.submitted(job().worker(2, pod={"restartPolicy": "OnFailure"}))
        await scene.runs("demo-worker-0", "demo-worker-1")
        scene.write("demo-worker-0", "first life")
        await scene.until(lambda: _restarted(scene), "restarted")
        scene.write("demo-worker-0", "second life")
        assert await texts(demo, LogQuery(previous=True)) == ["worker-0: first life"]

    play(act)


async def _is_gone(scene: Scene, pod: str) -> bool:
    return scene.server.get(PODS, "default", pod) is None


async def _attempt(scene: Scene, number: int) -> bool:
    return (await scene.status()).get("attempt", 0) >= number


async def _is(condition: object) -> bool:
    return bool(condition)


async def _restarted(scene: Scene, times: int = 1) -> bool:
    pod = await scene.client.get(PODS, "default", "demo-worker-0")
    status = pod["status"].get("containerStatuses", [{}])[0]
    return status.get("restartCount", 0) >= times and "running" in status["state"]
