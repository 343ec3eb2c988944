"""Objects that do not fit their type: left out or made the best of, and never in the way of others."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kube.deep_json import DEPTHS, DeepTransport, deep
from kube.informer_scene import SIZED, Scene, Sized, SizedSpec, play, sized
from paddlejob.api.meta import ObjectKey
from paddlejob.kube.cache import Cache
from paddlejob.kube.errors import TransportError


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
def test_an_undecodable_object_affects_nothing_else(streaming_list: bool, caplog):
    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        informer = scene.make(SIZED, Sized, cache)
        scene.server.create(SIZED, sized("good", 1))
        scene.server.create(SIZED, sized("bad", "large"))
        async with scene.running(informer):
            await informer.synced.wait()
            scene.server.create(SIZED, sized("worse", None))
            await cache.wait_for_version(str(scene.server.version))
            assert [found.metadata.name for found in cache] == ["good"]
        assert informer.undecodable == 2

    play(scenario, streaming_list=streaming_list)
    reports = [record.getMessage() for record in caplog.records if "is ignored" in record.getMessage()]
    assert [report.split()[1] for report in reports] == ["default/bad", "default/worse"]


def test_an_object_that_stops_decoding_is_removed_and_may_return():
    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        informer = scene.make(SIZED, Sized, cache)
        scene.server.create(SIZED, sized("a", 1))
        async with scene.running(informer):
            await informer.synced.wait()
            scene.server.patch(SIZED, "default", "a", {"spec": {"size": "large"}})
            await cache.wait_for_version(str(scene.server.version))
            assert ObjectKey("default", "a") not in cache
            assert informer.undecodable == 1
            scene.server.patch(SIZED, "default", "a", {"spec": {"size": 2}})
            await cache.wait_for_version(str(scene.server.version))
        assert scene.told == [(None, "a", True), ("a", None, False), (None, "a", False)]
        assert informer.undecodable == 0

    play(scenario)


@pytest.mark.parametrize("in_a_gap", [False, True], ids=["seen", "in-a-gap"])
def test_the_end_of_an_object_that_did_not_decode_is_seen(in_a_gap: bool):
    async def scenario(scene: Scene) -> None:
        informer = scene.make(SIZED, Sized, Cache())
        scene.server.create(SIZED, sized("bad", "large"))
        scene.server.create(SIZED, sized("still-bad", "large"))
        async with scene.running(informer):
            await informer.synced.wait()
            assert informer.undecodable == 2
            if in_a_gap:
                scene.transport.streams = [TransportError("reset")]
                scene.server.drop_watches()
                await asyncio.sleep(0.1)
            scene.server.delete(SIZED, "default", "bad")
            if in_a_gap:
                scene.server.compact()
            await informer.cache.wait_for_version(str(scene.server.version))
        assert informer.undecodable == 1

    play(scenario)


def on_decode_error(encoded: msgspec.Raw, metadata, message: str) -> Sized:
    assert "size" in message or "nested more than" in message
    assert metadata.name.encode() in bytes(encoded)
    return Sized(metadata, SizedSpec(0))


def test_the_substitute_of_an_undecodable_object_is_cached():
    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        informer = scene.make(SIZED, Sized, cache, on_decode_error=on_decode_error)
        scene.server.create(SIZED, sized("listed", "large"))
        async with scene.running(informer):
            await informer.synced.wait()
            scene.server.create(SIZED, sized("watched", "large"))
            await cache.wait_for_version(str(scene.server.version))
            assert [found.metadata.name for found in cache] == ["listed", "watched"]
            scene.server.delete(SIZED, "default", "listed")
            await cache.wait_for_version(str(scene.server.version))
        assert scene.told == [(None, "listed", True), (None, "watched", False), ("listed", None, False)]
        assert informer.undecodable == 0

    play(scenario)


@pytest.mark.parametrize("handled", [True, False], ids=["handled", "ignored"])
@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
@pytest.mark.parametrize("levels", DEPTHS)
def test_a_deeply_nested_object_affects_nothing_else(levels, streaming_list, handled):
    """Its name and version are known all the same: the watch goes on from there, without another list."""

    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        scene.transport = DeepTransport(scene.server, "informer", None)
        options = {"on_decode_error": on_decode_error} if handled else {}
        informer = scene.make(SIZED, Sized, cache, **options)
        scene.server.create(SIZED, sized("listed", 1) | {"extra": deep(levels)})
        scene.server.create(SIZED, sized("good", 1))
        async with scene.running(informer):
            await informer.synced.wait()
            scene.server.create(SIZED, sized("watched", 1) | {"extra": deep(levels)})
            scene.server.patch(SIZED, "default", "good", {"spec": {"size": 2}})
            await cache.wait_for_version(str(scene.server.version))
            sizes = {found.metadata.name: found.spec.size for found in cache}
            # Sized has no field for the extra part; whoever asks to be told of errors wants all or nothing.
            assert sizes == {"listed": int(not handled), "good": 2, "watched": int(not handled)}
            scene.server.delete(SIZED, "default", "listed")
            scene.server.patch(SIZED, "default", "watched", {"extra": None})
            await cache.wait_for_version(str(scene.server.version))
            assert {found.metadata.name: found.spec.size for found in cache} == {"good": 2, "watched": 1}
        assert (informer.lists, informer.undecodable, informer.last_error) == (1, 0, "")

    play(scenario, streaming_list=streaming_list)


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
def test_a_skipped_object_is_removed_and_may_return(streaming_list):
    def decode(encoded: msgspec.Raw) -> Sized | None:
        found = msgspec.json.decode(encoded, type=Sized)
        return found if found.spec.size < 10 else None

    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        informer = scene.make(SIZED, Sized, cache, decode=decode)
        scene.server.create(SIZED, sized("large", 10))
        scene.server.create(SIZED, sized("grows", 1))
        async with scene.running(informer):
            await informer.synced.wait()
            assert [found.metadata.name for found in cache] == ["grows"]
            scene.server.patch(SIZED, "default", "grows", {"spec": {"size": 10}})
            scene.server.patch(SIZED, "default", "large", {"spec": {"size": 1}})
            await cache.wait_for_version(str(scene.server.version))
            assert [found.metadata.name for found in cache] == ["large"]
        assert scene.told == [(None, "grows", True), ("grows", None, False), (None, "large", False)]
        assert informer.undecodable == 0

    play(scenario, streaming_list=streaming_list)
