"""What an informer survives: garbage, refusals, callbacks that fail, a server that was restored."""

from __future__ import annotations

import asyncio
import random

import pytest

from kube.informer_scene import (
    Scene,
    Settings,
    byte_by_byte,
    cut_after,
    error_event,
    head,
    play,
    refusal,
    seconds,
    silent,
)
from paddlejob.kube.cache import Cache
from paddlejob.kube.errors import TransportError
from paddlejob.kube.resource import CONFIG_MAPS, Resource
from paddlejob.kube.transport import Response
from simkube.apiserver.rules.kinds import custom_resource


def test_garbage_is_a_broken_stream():
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.transport.streams = [Response(200, b"<html>welcome to the proxy</html>\n")]
        async with scene.running():
            await scene.informer.synced.wait()
            assert list(scene.cached()) == ["a"]

    play(scenario)


@pytest.mark.parametrize(
    "accident",
    [
        TransportError("refused"),
        refusal(403),
        refusal(404),
        refusal(429, **{"retry-after": "7"}),
        refusal(503),
        error_event(500),
        error_event(410),
    ],
    ids=["no-connection", "forbidden", "not-found", "too-many", "unavailable", "error-event", "gone-event"],
)
def test_any_accident_at_the_start_is_survived(accident: Response | Exception):
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.transport.streams = [accident] * 2
        async with scene.running():
            await scene.informer.synced.wait()
            assert list(scene.cached()) == ["a"]
            assert scene.informer.last_error == ""

    play(scenario)


def test_retry_after_is_waited_for():
    async def scenario(scene: Scene) -> None:
        scene.transport.streams = [refusal(429, **{"retry-after": "45"})]
        async with scene.running():
            await scene.informer.synced.wait()
        assert 45 <= seconds() < 47

    play(scenario)


def test_a_page_that_fails_is_asked_for_again():
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.transport.pages = [refusal(500), Response(200, b"not json")]
        async with scene.running():
            await scene.informer.synced.wait()
        assert list(scene.cached()) == ["a"]

    play(scenario, streaming_list=False)


def test_a_definition_may_be_installed_later(caplog: pytest.LogCaptureFixture):
    async def scenario(scene: Scene) -> None:
        other = Resource("example.org", "v1", "laters", "Later")
        cache: Cache[Settings] = Cache()
        informer = scene.make(other, Settings, cache)
        async with scene.running(informer):
            await asyncio.sleep(300)
            assert "install its definition" in informer.last_error
            scene.server.register(custom_resource(other))
            scene.server.create(other, head(other, "a"))
            await informer.synced.wait()
            assert len(cache) == 1

    play(scenario)
    assert sum("install its definition" in record.message for record in caplog.records) == 1


def test_a_failing_callback_affects_nothing_else(caplog: pytest.LogCaptureFixture):
    async def scenario(scene: Scene) -> None:
        def failing(old, new, *, initial: bool) -> None:
            scene.told.append((None, new.metadata.name, initial))
            raise ZeroDivisionError

        scene.changed = failing
        scene.informer = scene.make(CONFIG_MAPS, Settings, scene.cache)
        scene.put("a")
        async with scene.running():
            await scene.informer.synced.wait()
            scene.put("b")
            await scene.settled()
        assert [name for _, name, _ in scene.told] == ["a", "b"]
        assert scene.informer.callback_errors == 2

    play(scenario)
    assert "a callback for configmaps failed" in caplog.text


def test_a_restored_server_is_listed_again():
    """Its versions start over, so a watch from the lost future would stay silent forever."""

    async def scenario(scene: Scene) -> None:
        for number in range(50):
            scene.put(f"lost-{number}")
        async with scene.running():
            await scene.informer.synced.wait()
            restored = Scene()
            restored.put("saved")
            scene.transport.server = restored.server
            scene.transport.streams = [silent] * 8
            scene.server.drop_watches()
            await asyncio.sleep(3600)
            assert list(scene.cached()) == ["saved"]

    play(scenario)


def test_run_can_be_run_again():
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        async with scene.running():
            await scene.informer.synced.wait()
        scene.delete("a")
        scene.put("b")
        async with scene.running():
            await scene.settled()
            assert list(scene.cached()) == ["b"]

    play(scenario)


@pytest.mark.parametrize("seed", range(40))
def test_the_cache_converges_to_the_server_after_any_faults(seed: int):
    async def scenario(scene: Scene) -> None:
        rng = random.Random(seed)
        async with scene.running():
            for _ in range(60):
                misbehave(scene, rng)
                await asyncio.sleep(rng.expovariate(0.2))
            scene.transport.streams.clear()
            scene.transport.pages.clear()
            scene.put("last")
            await scene.settled()
            stored = {each["metadata"]["name"]: each["data"] for each in scene.server.objects(CONFIG_MAPS)}
            assert scene.cached() == stored

    rng = random.Random(seed)
    play(
        scenario,
        streaming_list=rng.random() < 0.6,
        expired_as_status=rng.random() < 0.5,
        history_limit=rng.choice([5, 10_000]),
    )


def misbehave(scene: Scene, rng: random.Random) -> None:
    name = rng.choice("abcdef")
    accidents = [TransportError("reset"), refusal(500), refusal(429), error_event(410), error_event(500)]
    spoilers = [silent, cut_after(rng.randint(1, 400)), byte_by_byte, *accidents]
    match rng.randrange(6):
        case 0 | 1:
            scene.put(name, size=str(rng.random()))
        case 2 if scene.server.get(CONFIG_MAPS, "default", name):
            scene.delete(name)
        case 3:
            scene.server.drop_watches()
        case 4:
            scene.transport.streams.append(rng.choice(spoilers))
            scene.transport.pages += [rng.choice(accidents[:3])] if rng.random() < 0.3 else []
        case 5:
            scene.server.compact()
