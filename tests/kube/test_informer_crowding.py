"""Of a namespace with too many objects, an informer caches as many as its limit allows."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from kube.informer_scene import SIZED, Scene, Settings, Sized, play, sized
from paddlejob.kube import informer as informer_module
from paddlejob.kube.cache import Cache
from paddlejob.kube.informer import CROWDED_SECONDS
from paddlejob.kube.resource import CONFIG_MAPS

LISTS = pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])


def limited(scene: Scene, limit: int = 3, **options) -> None:
    scene.informer = scene.make(CONFIG_MAPS, Settings, scene.cache, max_in_namespace=limit, **options)


def put_elsewhere(scene: Scene, name: str) -> None:
    scene.server.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "elsewhere"}, "data": {}})


@LISTS
def test_objects_above_the_limit_are_ignored_until_others_are_deleted(streaming_list: bool, caplog):
    async def scenario(scene: Scene) -> None:
        limited(scene)
        for number in range(5):
            scene.put(f"map-{number}")
        async with scene.running():
            await scene.informer.synced.wait()
            assert set(scene.cached()) == {"map-0", "map-1", "map-2"}
            scene.put("another")
            scene.put("map-4", size="1")
            put_elsewhere(scene, "map-9")
            scene.put("map-1", size="1")
            await scene.settled()
            assert set(scene.cached()) == {"map-0", "map-1", "map-2", "map-9"}
            assert scene.cached()["map-1"] == {"size": "1"}
            for name in ("map-0", "map-1"):
                scene.delete(name)
            await scene.settled()
            lists = scene.informer.lists
            await asyncio.sleep(CROWDED_SECONDS + 10)
            await scene.settled()
            assert scene.informer.lists == lists + 1
            assert len(scene.cached()) == 4
            assert {"map-2", "map-9"} < set(scene.cached())
            assert scene.informer.synced.is_set()

    caplog.set_level(logging.WARNING)
    play(scenario, streaming_list=streaming_list)
    told = [each.getMessage() for each in caplog.records if "more than" in each.getMessage()]
    sentence = "namespace default has more than 3 configmaps: the others are ignored until some are deleted"
    assert told == [sentence] * 2


@LISTS
def test_cached_objects_stay_cached_when_all_are_listed_again(streaming_list: bool):
    async def scenario(scene: Scene) -> None:
        limited(scene)
        for name in ("x", "y", "z"):
            scene.put(name)
        async with scene.running():
            await scene.informer.synced.wait()
            scene.put("a")
            scene.put("z", size="1")
            scene.informer.relist()
            await scene.informer.synced.wait()
            assert set(scene.cached()) == {"x", "y", "z"}
            assert (None, "a", False) not in scene.told

    play(scenario, streaming_list=streaming_list)


@LISTS
def test_a_crowded_namespace_is_listed_once_a_minute_at_most(streaming_list: bool):
    async def scenario(scene: Scene) -> None:
        limited(scene)
        async with scene.running():
            await scene.informer.synced.wait()
            began = scene.informer.lists
            for number in range(300):
                scene.put(f"map-{number}")
                if number > 10:
                    scene.delete(f"map-{number - 10}")
                await asyncio.sleep(2)
            await asyncio.sleep(2 * CROWDED_SECONDS)
            assert 5 <= scene.informer.lists - began <= 720 / CROWDED_SECONDS
            assert len(scene.cached()) == 3
            assert not scene.informer.last_error

    play(scenario, streaming_list=streaming_list)


def test_objects_that_do_not_decode_are_counted_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(informer_module, "MAX_UNDECODABLE", 3)

    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        informer = scene.make(SIZED, Sized, cache)
        for number in range(5):
            scene.server.create(SIZED, sized(f"bad-{number}", "no number"))
        scene.server.create(SIZED, sized("good", 3))
        async with scene.running(informer):
            await informer.synced.wait()
            assert [each.metadata.name for each in cache] == ["good"]
            assert informer.undecodable == 3
            scene.server.delete(SIZED, "default", "bad-0")
            scene.server.create(SIZED, sized("bad-9", "no number"))
            await asyncio.sleep(1)
            assert informer.undecodable == 3

    play(scenario)


def test_a_decoder_that_skips_objects_makes_no_namespace_crowded():
    settings = msgspec.json.Decoder(Settings)

    def decode(encoded: msgspec.Raw) -> Settings | None:
        found = settings.decode(encoded)
        return found if found.data.get("size") else None

    async def scenario(scene: Scene) -> None:
        limited(scene, decode=decode)
        for number in range(5):
            scene.put(f"map-{number}")
        scene.put("map-9", size="1")
        async with scene.running():
            await scene.informer.synced.wait()
            assert set(scene.cached()) == {"map-9"}

    play(scenario)


def finished(settings: Settings) -> bool:
    return settings.data.get("size") == "finished"


@LISTS
def test_retired_objects_keep_no_other_out_and_the_oldest_are_dropped(streaming_list: bool, caplog):
    async def scenario(scene: Scene) -> None:
        limited(scene, is_retired=finished)
        for name in ("a", "b", "c", "d"):
            scene.put(name, size="finished")
        scene.put("x")
        async with scene.running():
            await scene.informer.synced.wait()
            assert set(scene.cached()) == {"a", "b", "c", "x"}
            scene.put("y")
            scene.put("z")
            scene.put("ignored")
            await scene.settled()
            assert set(scene.cached()) == {"a", "b", "c", "x", "y", "z"}
            scene.put("y", size="finished")
            await scene.settled()
            assert set(scene.cached()) == {"b", "c", "x", "y", "z"}
            assert scene.told[-1] == ("a", None, False)
            # A retired object made room for the one that was ignored.
            await asyncio.sleep(CROWDED_SECONDS + 10)
            await scene.settled()
            assert set(scene.cached()) == {"b", "c", "ignored", "x", "y", "z"}
            scene.delete("b")
            await asyncio.sleep(CROWDED_SECONDS + 10)
            await scene.settled()
            assert set(scene.cached()) == {"a", "c", "ignored", "x", "y", "z"}

    caplog.set_level(logging.WARNING)
    play(scenario, streaming_list=streaming_list)
    told = {
        each.getMessage().partition(":")[0] for each in caplog.records if "more than" in each.getMessage()
    }
    crowded = "namespace default has more than 3 "
    assert told == {f"{crowded}configmaps", f"{crowded}finished configmaps"}
