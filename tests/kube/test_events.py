from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import pytest

from paddlejob.api.meta import ObjectMeta
from paddlejob.kube.client import Client
from paddlejob.kube.errors import TransportError
from paddlejob.kube.events import EventLimits, EventRecorder, ObjectReference, timestamp, truncate_message
from paddlejob.kube.resource import EVENTS, PODS
from paddlejob.kube.transport import Response
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer, SimulatedTransport

POD = ObjectReference.to(PODS, ObjectMeta("worker-0", "default", "uid-0", "7"))


class FailingTransport(SimulatedTransport):
    """Fails as the test says: a Response or an exception instead of an answer; LOST after it took effect."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, "recorder", None)
        self.failures: list[Response | Exception] = []
        self.requests = 0

    async def request(self, method, path, **options):
        self.requests += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure is LOST:
            await super().request(method, path, **options)
        if isinstance(failure, Exception):
            raise failure
        return failure or await super().request(method, path, **options)


LOST = TransportError("the answer was lost")
HANGS = 10**9


def refusal(code: int) -> Response:
    return Response(code, msgspec.json.encode({"kind": "Status", "code": code, "message": "no"}))


class Scene:
    def __init__(self, limits: EventLimits) -> None:
        self.server = ApiServer()
        self.transport = FailingTransport(self.server)
        self.recorder = EventRecorder(
            Client(self.transport),
            "paddlejob",
            rng=random.Random(0),
            now=virtual_loop.now,
            limits=limits,
        )

    def record(self, message: str = "it started", *, reason: str = "Started", about=POD) -> None:
        self.recorder.record(about, "Normal", reason, message)

    def events(self) -> list[dict]:
        return self.server.objects(EVENTS)

    def counts(self) -> dict[str, int]:
        return {event["message"]: event["count"] for event in self.events()}


def play(scenario: Callable[[Scene], Awaitable[None]], **limits: object) -> None:
    async def main() -> None:
        await scenario(Scene(EventLimits(**limits)))

    virtual_loop.run(main())


def test_the_body_of_an_event():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            scene.record("pod worker-0 started")
            await asyncio.sleep(1)
        [event] = scene.events()
        assert event["metadata"]["namespace"] == "default"
        assert event["metadata"]["name"].startswith("worker-0.")
        expected = {
            "type": "Normal",
            "reason": "Started",
            "message": "pod worker-0 started",
            "count": 1,
            "firstTimestamp": "2030-01-01T00:00:00Z",
            "lastTimestamp": "2030-01-01T00:00:00Z",
            "source": {"component": "paddlejob"},
            "reportingComponent": "paddlejob",
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "default",
                "name": "worker-0",
                "uid": "uid-0",
            },
        }
        assert {name: event[name] for name in expected} == expected

    play(scenario)


def test_events_of_cluster_scoped_objects_are_in_default():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            scene.record(about=ObjectReference("v1", "Node", name="node-1"))
        assert scene.events()[0]["metadata"]["namespace"] == "default"

    play(scenario)


def test_recording_does_not_wait_for_the_server():
    async def scenario(scene: Scene) -> None:
        scene.transport.failures = [TransportError("refused")] * 100
        async with scene.recorder:
            scene.record()
            assert scene.transport.requests == 0

    play(scenario)


def test_the_same_again_is_counted_and_written_once_in_ten_seconds():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            for _ in range(100):
                scene.record()
                await asyncio.sleep(0.25)
            await asyncio.sleep(10)
            assert scene.counts() == {"it started": 100}
            assert scene.events()[0]["lastTimestamp"] == "2030-01-01T00:00:24Z"
            assert scene.transport.requests <= 4

    play(scenario)


def test_a_repeat_while_the_first_is_being_written_waits_too():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            scene.record()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            scene.record()
            await asyncio.sleep(5)
            assert scene.counts() == {"it started": 1}
            await asyncio.sleep(6)
            assert scene.counts() == {"it started": 2}

    play(scenario)


@pytest.mark.parametrize(
    "other",
    [
        {"reason": "Stopped"},
        {"message": "it stopped"},
        {"about": ObjectReference("v1", "Pod", "default", "worker-1", "uid-1")},
        {"about": ObjectReference("v1", "Pod", "default", "worker-0", "uid-of-a-namesake")},
    ],
    ids=["reason", "message", "object", "namesake"],
)
def test_events_are_distinguished_by(other: dict):
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            scene.record()
            scene.record(**other)
        assert [event["count"] for event in scene.events()] == [1, 1]

    play(scenario)


def test_an_event_that_never_stops_is_never_forgotten():
    """Days of it, with failures in between, are one Event with the right count."""

    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            for hour in range(100):
                scene.transport.failures = [TransportError("refused")] * (hour % 4)
                scene.record()
                await asyncio.sleep(3600)
                assert scene.counts() == {"it started": hour + 1}
        assert scene.recorder.dropped == 0
        assert scene.recorder._queue._failures == {}

    play(scenario)


@pytest.mark.parametrize(
    "failure",
    [TransportError("refused"), refusal(500), refusal(503), refusal(429)],
    ids=["no-connection", "error", "unavailable", "too-many"],
)
def test_a_passing_failure_is_retried(failure: Response | Exception):
    async def scenario(scene: Scene) -> None:
        scene.transport.failures = [failure] * 3
        async with scene.recorder:
            scene.record()
            await asyncio.sleep(60)
            assert scene.counts() == {"it started": 1}
            assert scene.recorder.dropped == 0

    play(scenario)


def test_repeats_do_not_hurry_a_retry():
    async def scenario(scene: Scene) -> None:
        scene.transport.failures = [TransportError("refused")] * 3
        async with scene.recorder:
            for _ in range(100):
                scene.record()
                await asyncio.sleep(0.01)
            assert scene.transport.requests <= 2
            await asyncio.sleep(60)
        assert scene.counts() == {"it started": 100}

    play(scenario)


def test_a_permanent_failure_drops_and_counts_the_event(caplog: pytest.LogCaptureFixture):
    async def scenario(scene: Scene) -> None:
        scene.transport.failures = [TransportError("refused")] * 5
        async with scene.recorder:
            scene.record()
            await asyncio.sleep(600)
            assert (scene.recorder.dropped, scene.transport.requests) == (1, 5)
            scene.record()
            await asyncio.sleep(1)
        assert scene.counts() == {"it started": 1}

    play(scenario)
    assert "dropped event Started about Pod/worker-0: refused" in caplog.text


@pytest.mark.parametrize("code", [403, 404, 422])
def test_a_refusal_is_not_retried(code: int):
    async def scenario(scene: Scene) -> None:
        scene.transport.failures = [refusal(code)]
        async with scene.recorder:
            scene.record()
            scene.record(reason="Other")
            await asyncio.sleep(600)
            assert (scene.recorder.dropped, len(scene.events())) == (1, 1)

    play(scenario)


def test_an_event_with_a_lost_response_is_not_written_twice():
    async def scenario(scene: Scene) -> None:
        scene.transport.failures = [LOST]
        async with scene.recorder:
            scene.record()
            await asyncio.sleep(30)
            assert scene.counts() == {"it started": 1}

    play(scenario)


def test_an_event_that_the_server_deleted_is_created_again():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            scene.record()
            await asyncio.sleep(3600)
            scene.server.delete(EVENTS, "default", scene.events()[0]["metadata"]["name"])
            scene.record()
            await asyncio.sleep(1)
        assert scene.counts() == {"it started": 2}

    play(scenario)


def test_leaving_writes_the_remaining_events():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            scene.record()
            await asyncio.sleep(1)
            for _ in range(4):
                scene.record()
            scene.record("it stopped")
        assert scene.counts() == {"it started": 5, "it stopped": 1}

    play(scenario)


def test_leaving_does_not_wait_for_ever():
    async def scenario(scene: Scene) -> None:
        scene.transport._latency_seconds = (HANGS, HANGS)
        async with scene.recorder:
            scene.record()
            scene.record("it stopped")
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() == 1 + 5
        assert scene.recorder.dropped == 2

    play(scenario)


def test_recording_after_the_end_does_nothing():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            pass
        scene.record()
        assert scene.events() == []

    play(scenario)


def test_an_unexpected_error_does_not_stop_the_writer(caplog: pytest.LogCaptureFixture):
    async def scenario(scene: Scene) -> None:
        scene.transport.failures = [ZeroDivisionError()]
        async with scene.recorder:
            scene.record()
            await asyncio.sleep(1)
            scene.record("it stopped")
            await asyncio.sleep(1)
            assert "it stopped" in scene.counts()

    play(scenario)
    assert "cannot write an event" in caplog.text


@pytest.mark.parametrize("length", [1, 236, 240, 253])
def test_an_event_name_is_valid_for_any_object_name(length: int):
    async def scenario(scene: Scene) -> None:
        name = ("a." * length)[: length - 1] + "a"
        async with scene.recorder:
            scene.record(about=ObjectReference("v1", "Pod", "default", name))
        assert len(scene.events()[0]["metadata"]["name"]) <= 253

    play(scenario)


@pytest.mark.parametrize(
    ("message", "expected_bytes"),
    [("short", 5), ("x" * 1024, 1024), ("x" * 1025, 1024), ("训" * 400, 1023), ("\ud800", 1)],
    ids=["short", "exact", "one-too-long", "chinese", "no-text"],
)
def test_a_message_is_cut_to_the_limit_of_the_server(message: str, expected_bytes: int):
    assert len(truncate_message(message).encode()) == expected_bytes


def test_dates_are_written_in_utc():
    assert timestamp(datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)) == "2030-01-02T03:04:05Z"


def test_an_event_is_not_forgotten_before_it_is_written():
    async def scenario(scene: Scene) -> None:
        for number in range(20):
            scene.record(about=ObjectReference("v1", "Pod", "default", f"pod-{number}"))
        assert scene.recorder.dropped == 10
        async with scene.recorder:
            await asyncio.sleep(1)
        assert [event["metadata"]["name"].split(".")[0] for event in scene.events()] == [
            f"pod-{number}" for number in range(10)
        ]
        assert scene.recorder.dropped == 10

    play(scenario, remembered=10)


def test_a_recorder_remembers_a_bounded_number_of_events():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            for number in range(50):
                scene.record(about=ObjectReference("v1", "Pod", "default", f"pod-{number}"))
                await asyncio.sleep(1)
            assert len(scene.recorder._series) == 5
        assert len(scene.events()) == 50

    play(scenario, remembered=5)


def test_a_repeated_event_is_remembered_longer():
    async def scenario(scene: Scene) -> None:
        async with scene.recorder:
            for number in range(20):
                scene.record()
                scene.record(about=ObjectReference("v1", "Pod", "default", f"pod-{number}"))
                await asyncio.sleep(11)
        repeated = [event for event in scene.events() if event["involvedObject"]["name"] == "worker-0"]
        assert [event["count"] for event in repeated] == [20]

    play(scenario, remembered=3)


def about(namespace: str, number: int = 0) -> ObjectReference:
    return ObjectReference("v1", "Pod", namespace, f"pod-{number}")


REFUSING = {
    "429": lambda faults: faults.throttled.add(("noisy", "events")),
    "10 s of admission": lambda faults: faults.slow_webhooks.update({("noisy", "events"): 10.0}),
    "a timeout": lambda faults: faults.slow_webhooks.update({("noisy", "events"): 60.0}),
}


@pytest.mark.parametrize("refuse", REFUSING.values(), ids=REFUSING.keys())
def test_events_of_one_namespace_do_not_delay_those_of_another(refuse):
    async def scenario(scene: Scene) -> None:
        refuse(scene.server.tenant_faults)
        async with scene.recorder:
            for number in range(200):
                scene.record(about=about("noisy", number))
            await asyncio.sleep(1)
            for number in range(50):
                scene.record(about=about("quiet", number))
            await asyncio.sleep(1)
            assert len(scene.server.objects(EVENTS, "quiet")) == 50

    play(scenario)


def test_a_namespace_with_too_many_events_drops_only_its_own():
    async def scenario(scene: Scene) -> None:
        scene.server.tenant_faults.throttled.add(("noisy", "events"))
        async with scene.recorder:
            for number in range(20):
                scene.record(about=about("noisy", number))
            for number in range(4):
                scene.record(about=about("quiet", number))
            assert scene.recorder.dropped == 14
            await asyncio.sleep(1)
        assert len(scene.server.objects(EVENTS, "quiet")) == 4

    play(scenario, remembered=10)


def test_leaving_writes_the_rest_although_one_namespace_is_slow():
    async def scenario(scene: Scene) -> None:
        scene.server.tenant_faults.slow_webhooks["noisy", "events"] = 10.0
        async with scene.recorder:
            for number in range(20):
                scene.record(about=about("noisy", number))
            await asyncio.sleep(1)
            scene.record(about=about("quiet"))
        assert len(scene.server.objects(EVENTS, "quiet")) == 1

    play(scenario)
