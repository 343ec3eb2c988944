"""What the operator knows and answers about the programs of supervised pods."""

from __future__ import annotations

import asyncio
import ssl

from paddlejob.operator.reports import attendance, intake
from paddlejob.operator.reports.certificate import _make
from paddlejob.operator.reports.intake import Answer, Call
from paddlejob.operator.reports.tokens import PodIdentity
from simkube.build import JobBuilder, job
from simkube.kubelet import outcomes
from tests.operator.in_place_stage import InPlaceStage, failing
from tests.support.simulated import simulated
from tests.support.waiting import eventually_async

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


async def test_pods_behind_one_address_do_not_keep_reports_out():
    """With SNAT or a mesh, many pods share a source address."""
    certificate = await _make("127.0.0.1")
    waiting: list[asyncio.Event] = []

    async def admit(token: str, _: str) -> PodIdentity:
        return PodIdentity("team", token, token)

    async def attend(call: Call) -> Answer:
        if call.may_wait:
            waiting.append(asyncio.Event())
            await waiting[-1].wait()
        return Answer(200, {"nextSeconds": 5.0})

    async def report(_: Call) -> Answer:
        return Answer(200, {"nextSeconds": 5.0})

    async def ask(port: int, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        head = f"POST {path} HTTP/1.1\r\nAuthorization: Bearer a\r\nContent-Length: 2\r\n\r\n{{}}"
        writer.write(head.encode())
        line = await reader.readline()
        writer.transport.abort()
        return line

    client = ssl.create_default_context(cadata=certificate.certificate)
    client.check_hostname = False
    routes = {"/v1/attend": attend, "/v1/report": report}
    pods = 3 * intake.LIMITS.per_source
    async with intake.serve("127.0.0.1:0", certificate.server_context(), admit, routes) as port:
        asking: list[asyncio.Task[bytes]] = []
        for number in range(1, pods + 1):
            asking.append(asyncio.create_task(ask(port, "/v1/attend")))
            await eventually_async(lambda: len(waiting) + sum(each.done() for each in asking) == number)  # noqa: B023
        assert len(waiting) == intake.LIMITS.per_source
        assert await ask(port, "/v1/report") == b"HTTP/1.1 200 OK\r\n"
        for each in waiting:
            each.set()
        assert set(await asyncio.gather(*asking)) == {b"HTTP/1.1 200 OK\r\n"}
