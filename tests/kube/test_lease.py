from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta

import pytest

from kube.lease_scene import CutOffTransport, Scene, play, seconds, stop
from paddlejob.kube.client import Client
from paddlejob.kube.errors import TransportError
from paddlejob.kube.lease import LeaderElector, LeaseLostError, LeaseTiming
from paddlejob.kube.resource import LEASES
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer, SimulatedTransport


def test_a_missing_lease_is_created_like_client_go():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        one.run()
        await one.started.wait()
        assert one.elector.is_leader
        assert one.elector.holder == "one"
        assert scene.spec() == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-01-01T00:00:00.000000Z",
            "renewTime": "2030-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        }

    play(scenario)


def test_a_leader_renews_and_touches_nothing_else():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        one.run()
        await asyncio.sleep(7)
        metadata = {"labels": {"team": "a"}}
        scene.server.patch(LEASES, "system", "paddlejob", {"metadata": metadata})
        await asyncio.sleep(4)
        assert scene.spec()["renewTime"] == "2030-01-01T00:00:10.000000Z"
        assert scene.spec()["acquireTime"] == "2030-01-01T00:00:00.000000Z"
        assert scene.spec()["leaseTransitions"] == 0
        lease = scene.server.get(LEASES, "system", "paddlejob")
        assert lease is not None
        assert lease["metadata"]["labels"] == {"team": "a"}

    play(scenario)


def test_a_renewal_is_one_request():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        one.run()
        await asyncio.sleep(101)
        requests = scene.server.log.requests
        assert requests["update", "leases"] == 50
        assert requests["get", "leases"] == 1

    play(scenario)


def test_a_second_candidate_waits_while_the_first_renews():
    async def scenario(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        one.run()
        await one.started.wait()
        two.run()
        await asyncio.sleep(3600)
        assert one.elector.is_leader
        assert not two.started.is_set()
        assert two.elector.holder == "one"

    play(scenario)


def test_a_silent_leader_stops_before_another_starts():
    async def scenario(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        running = one.run()
        await one.started.wait()
        two.run()
        await asyncio.sleep(61)
        one.transport.is_cut = True
        with pytest.raises(LeaseLostError, match="one has lost lease system/paddlejob"):
            await running
        assert one.stopped_at == pytest.approx(70)
        assert not one.elector.is_leader
        await two.started.wait()
        assert 75 <= seconds() < 82
        assert scene.spec()["leaseTransitions"] == 1
        assert scene.spec()["holderIdentity"] == "two"

    play(scenario)


def test_a_released_lease_is_acquired_within_a_few_seconds():
    async def scenario(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        running = one.run()
        await one.started.wait()
        two.run()
        await asyncio.sleep(60)
        await stop(running)
        assert scene.spec()["holderIdentity"] == ""
        await two.started.wait()
        assert seconds() < 65

    play(scenario)


def test_a_short_interruption_is_survived():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        running = one.run()
        for _ in range(20):
            await asyncio.sleep(21)
            one.transport.is_cut = True
            await asyncio.sleep(5)
            one.transport.is_cut = False
        assert not running.done()
        assert one.elector.is_leader

    play(scenario)


@pytest.mark.parametrize("offset", [timedelta(days=-1), timedelta(days=1)], ids=["behind", "ahead"])
def test_dates_in_the_record_are_not_believed(offset: timedelta):
    async def scenario(scene: Scene) -> None:
        date = (virtual_loop.now() + offset).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        scene.put(holderIdentity="gone", leaseDurationSeconds=15, renewTime=date, acquireTime=date)
        one = scene.candidate()
        one.run()
        await one.started.wait()
        assert 15 <= seconds() < 21

    play(scenario)


@pytest.mark.parametrize(
    ("spec", "least", "most"),
    [
        ({"holderIdentity": "gone", "leaseDurationSeconds": 60}, 60, 65),
        ({"holderIdentity": "gone"}, 15, 20),
        ({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4}, 0, 0),
        ({"leaseDurationSeconds": 1, "leaseTransitions": 4}, 0, 0),
        ({}, 0, 0),
    ],
    ids=["its-own-duration", "no-duration", "given-back", "given-back-without-holder", "empty"],
)
def test_the_record_of_another_is_respected(spec: dict, least: float, most: float):
    async def scenario(scene: Scene) -> None:
        scene.put(**spec)
        one = scene.candidate()
        one.run()
        await one.started.wait()
        assert least <= seconds() <= most
        assert scene.spec()["leaseTransitions"] == spec.get("leaseTransitions", 0) + 1

    play(scenario)


def test_a_foreign_field_of_the_record_survives():
    async def scenario(scene: Scene) -> None:
        scene.put(holderIdentity="", strategy="OldestEmulationVersion")
        one = scene.candidate()
        one.run()
        await one.started.wait()
        assert scene.spec()["strategy"] == "OldestEmulationVersion"

    play(scenario)


def test_a_deleted_lease_is_created_again():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        running = one.run()
        await one.started.wait()
        scene.server.delete(LEASES, "system", "paddlejob")
        await asyncio.sleep(5)
        assert not running.done()
        assert scene.spec()["holderIdentity"] == "one"

    play(scenario)


@pytest.mark.parametrize("thief", ["two", ""], ids=["given-to-another", "taken-from-everybody"])
def test_a_lease_changed_by_hand_is_lost_at_the_next_renewal(thief: str):
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        running = one.run()
        await one.started.wait()
        scene.change(holderIdentity=thief)
        with pytest.raises(LeaseLostError):
            await running
        assert seconds() <= 2
        assert scene.spec()["holderIdentity"] == thief

    play(scenario)


def test_an_acquisition_with_a_lost_response_is_detected():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        send = one.transport.request

        async def lose_the_answer(*arguments, **options):
            await send(*arguments, **options)
            if arguments[0] == "POST":
                one.transport.request = send
                raise TransportError("reset")
            return await send(*arguments, **options)

        one.transport.request = lose_the_answer
        one.run()
        await one.started.wait()
        assert 2 <= seconds() <= 5
        assert scene.spec()["leaseTransitions"] == 0

    play(scenario)


def test_a_request_that_hangs_leaves_time_for_another():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        running = one.run()
        await one.started.wait()
        send = one.transport.request

        async def hang_once(*arguments, **options):
            one.transport.request = send
            await asyncio.Event().wait()

        one.transport.request = hang_once
        await asyncio.sleep(30)
        assert not running.done()

    play(scenario)


def test_a_renewal_counts_from_when_it_was_sent_not_from_its_answer():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        running = one.run()
        await asyncio.sleep(9)
        send = one.transport.request

        async def answer_slowly(*arguments, **options):
            one.transport.is_cut, one.transport.request = True, send
            answer = await SimulatedTransport.request(one.transport, *arguments, **options)
            await asyncio.sleep(4)
            return answer

        one.transport.request = answer_slowly
        with pytest.raises(LeaseLostError):
            await running
        assert one.stopped_at == pytest.approx(10 + 10)

    play(scenario)


def test_the_result_of_the_work_is_returned_and_the_lease_given_back():
    async def scenario(scene: Scene) -> None:
        async def work() -> str:
            await asyncio.sleep(30)
            return "done"

        assert await scene.candidate().elector.run(work) == "done"
        assert scene.spec()["holderIdentity"] == ""

    play(scenario)


def test_an_error_of_the_work_is_raised_and_the_lease_given_back(caplog: pytest.LogCaptureFixture):
    async def scenario(scene: Scene) -> None:
        async def work() -> None:
            await asyncio.sleep(30)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await scene.candidate().elector.run(work)
        assert scene.spec()["holderIdentity"] == ""

    play(scenario)


def test_when_cancelled_the_work_ends_under_the_lease():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        leading: list[bool] = []

        async def work() -> None:
            one.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(60)
                leading.append(one.elector.is_leader)

        running = one.run(work)
        await one.started.wait()
        await stop(running)
        assert leading == [True]
        assert not one.elector.is_leader
        assert scene.spec()["holderIdentity"] == ""

    play(scenario)


def test_a_candidate_that_is_cancelled_leaves_no_trace():
    async def scenario(scene: Scene) -> None:
        scene.put(holderIdentity="two", leaseDurationSeconds=15)
        one = scene.candidate()
        running = one.run()
        await asyncio.sleep(5)
        await stop(running)
        assert scene.spec()["holderIdentity"] == "two"

    play(scenario)


def test_a_lease_that_cannot_be_given_back_does_not_keep_the_process():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        running = one.run()
        await one.started.wait()
        one.transport.is_cut = True
        await stop(running)
        assert seconds() <= 5

    play(scenario)


def test_work_that_does_not_stop_is_reported_before_another_may_start():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()

        async def stubborn() -> None:
            one.started.set()
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(30)
                    return

        running = one.run(stubborn)
        await one.started.wait()
        one.transport.is_cut = True
        with pytest.raises(LeaseLostError):
            await running
        assert one.stuck_at == [15]

    play(scenario)


def test_an_error_while_stopping_is_logged(caplog: pytest.LogCaptureFixture):
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()

        async def work() -> None:
            one.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise ZeroDivisionError

        running = one.run(work)
        await one.started.wait()
        one.transport.is_cut = True
        with pytest.raises(LeaseLostError):
            await running

    play(scenario)
    assert "leader-work ended with an error" in caplog.text


def test_a_leader_that_has_lost_may_stand_again():
    async def scenario(scene: Scene) -> None:
        one = scene.candidate()
        running = one.run()
        await one.started.wait()
        one.transport.is_cut = True
        with pytest.raises(LeaseLostError):
            await running
        one.transport.is_cut = False
        one.started.clear()
        one.run()
        await one.started.wait()
        assert one.elector.is_leader

    play(scenario)


@pytest.mark.parametrize(
    "timing",
    [
        {"lease_duration_seconds": 10},
        {"renew_deadline_seconds": 2},
        {"retry_period_seconds": 0},
        {"lease_duration_seconds": 5, "renew_deadline_seconds": 6},
    ],
)
def test_timing_without_a_margin_is_refused(timing: dict):
    with pytest.raises(ValueError, match="lease duration > renew deadline > retry period"):
        LeaseTiming(**timing)


def test_by_default_stubborn_work_ends_the_process(monkeypatch):
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    elector = LeaderElector(
        Client(CutOffTransport(ApiServer(), "one", None)),
        namespace="system",
        name="paddlejob",
        identity="one",
        rng=random.Random(0),
        now=virtual_loop.now,
    )
    elector._on_stuck()
    assert codes == [1]
