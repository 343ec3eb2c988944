"""Objects that do not fit their type: left out, told, and never in the way of others."""

from __future__ import annotations

import asyncio

import pytest

from kube.informer_scene import SIZED, Scene, Sized, play, sized
from paddlejob.api.meta import ObjectKey
from paddlejob.kube.cache import Cache
from paddlejob.kube.errors import TransportError


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
def test_an_object_that_does_not_decode_concerns_nobody_else(streaming_list: bool):
    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        informer = scene.make(SIZED, Sized, cache)
        scene.server.create(SIZED, sized("good", 1))
        scene.server.create(SIZED, sized("bad", "large"))
        async with scene.running(informer):
            await informer.synced.wait()
            scene.server.create(SIZED, sized("worse", None))
            await cache.reached(str(scene.server.version))
            assert [found.metadata.name for found in cache] == ["good"]
        assert [report.split(":")[0] for report in scene.undecodable] == ["bad", "worse"]
        assert informer.undecodable == 2

    play(scenario, streaming_list=streaming_list)


def test_an_object_that_stops_decoding_goes_and_may_come_back():
    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        informer = scene.make(SIZED, Sized, cache)
        scene.server.create(SIZED, sized("a", 1))
        async with scene.running(informer):
            await informer.synced.wait()
            scene.server.patch(SIZED, "default", "a", {"spec": {"size": "large"}})
            await cache.reached(str(scene.server.version))
            assert ObjectKey("default", "a") not in cache
            scene.server.patch(SIZED, "default", "a", {"spec": {"size": 2}})
            await cache.reached(str(scene.server.version))
        assert scene.told == [(None, "a", True), ("a", None, False), (None, "a", False)]
        assert [report.split(":")[0] for report in scene.undecodable] == ["a", "a is gone"]

    play(scenario)


@pytest.mark.parametrize("in_a_gap", [False, True], ids=["seen", "in-a-gap"])
def test_the_end_of_an_object_that_did_not_decode_is_told(in_a_gap: bool):
    async def scenario(scene: Scene) -> None:
        informer = scene.make(SIZED, Sized, Cache())
        scene.server.create(SIZED, sized("bad", "large"))
        scene.server.create(SIZED, sized("still-bad", "large"))
        async with scene.running(informer):
            await informer.synced.wait()
            if in_a_gap:
                scene.transport.streams = [TransportError("reset")]
                scene.server.drop_watches()
                await asyncio.sleep(0.1)
            scene.server.delete(SIZED, "default", "bad")
            if in_a_gap:
                scene.server.compact()
            await informer.cache.reached(str(scene.server.version))
        assert scene.undecodable[2:] == ["bad is gone"]

    play(scenario)
