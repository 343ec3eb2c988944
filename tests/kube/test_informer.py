from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec
import pytest

from kube.informer_scene import (
    SIZED,
    Scene,
    Settings,
    Sized,
    byte_by_byte,
    cut_after,
    play,
    seconds,
    silent,
    sized,
    with_crlf_and_empty_lines,
)
from paddlejob.kube import informer as informer_module
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.errors import ResponseTooLargeError, TransportError
from paddlejob.kube.informer import Informer
from paddlejob.kube.resource import CONFIG_MAPS
from paddlejob.kube.transport import Response


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
def test_the_cache_follows_the_server(streaming_list: bool):
    async def scenario(scene: Scene) -> None:
        scene.put("a", size="1")
        async with scene.running():
            await scene.informer.synced.wait()
            assert scene.cached() == {"a": {"size": "1"}}
            scene.put("a", size="2")
            scene.put("b", size="3")
            await scene.settled()
            assert scene.cached() == {"a": {"size": "2"}, "b": {"size": "3"}}
            scene.delete("a")
            await scene.settled()
            assert scene.cached() == {"b": {"size": "3"}}

    play(scenario, streaming_list=streaming_list)


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
def test_everything_is_listed_again_though_a_watch_is_silent(streaming_list: bool):
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        if streaming_list:
            scene.transport.streams = [silent]
        async with scene.running():
            await (scene.informer.synced.wait() if not streaming_list else asyncio.sleep(1))
            scene.put("b")
            scene.informer.relist()
            assert not scene.informer.synced.is_set()
            await scene.informer.synced.wait()
            assert set(scene.cached()) == {"a", "b"}
            assert not scene.informer.last_error

    play(scenario, streaming_list=streaming_list)


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
def test_existing_objects_are_initial(streaming_list: bool):
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        async with scene.running():
            await scene.informer.synced.wait()
            scene.put("b")
            scene.put("b", size="2")
            scene.delete("b")
            await scene.settled()
        later = [(None, "b", False), ("b", "b", False), ("b", None, False)]
        assert scene.told == [(None, "a", True), *later]

    play(scenario, streaming_list=streaming_list)


def test_the_cache_has_a_change_before_the_callback():
    async def scenario(scene: Scene) -> None:
        sizes: list[int] = []
        scene.changed = lambda old, new, *, initial: sizes.append(len(scene.cache))
        scene.informer = scene.make(CONFIG_MAPS, Settings, scene.cache)
        scene.put("a")
        scene.put("b")
        async with scene.running():
            await scene.informer.synced.wait()
        assert sizes == [2, 2]

    play(scenario)


def test_a_list_of_many_pages_is_complete(monkeypatch):
    monkeypatch.setattr(informer_module, "PAGE_SIZE", 3)

    async def scenario(scene: Scene) -> None:
        for number in range(10):
            scene.put(f"map-{number}")
        async with scene.running():
            await scene.informer.synced.wait()
        assert len(scene.cache) == 10
        assert [query.get("limit") for query in scene.transport.queries[1:5]] == ["3"] * 4

    play(scenario, streaming_list=False)


def test_pages_that_are_too_large_become_smaller(monkeypatch):
    monkeypatch.setattr(informer_module, "PAGE_SIZE", 40)

    async def scenario(scene: Scene) -> None:
        for number in range(10):
            scene.put(f"map-{number}")
        scene.transport.pages = [ResponseTooLargeError("too large")] * 2
        async with scene.running():
            await scene.informer.synced.wait()
        assert len(scene.cache) == 10
        limits = [query["limit"] for query in scene.transport.queries if "limit" in query]
        assert limits == ["40", "10", "2", "2", "2", "2", "2"]

    play(scenario, streaming_list=False)


def test_only_selected_objects_are_watched():
    async def scenario(scene: Scene) -> None:
        informer = scene.make(
            CONFIG_MAPS, Settings, scene.cache, label_selector="size=1", namespace="default"
        )
        scene.put("a", size="1")
        scene.put("b", size="2")
        async with scene.running(informer):
            await informer.synced.wait()
            assert list(scene.cached()) == ["a"]
            scene.put("a", size="2")
            scene.put("b", size="1")
            await scene.settled()
            assert list(scene.cached()) == ["b"]

    play(scenario)


def test_the_server_is_asked_for_bookmarks_and_an_end_after_five_to_ten_minutes():
    async def scenario(scene: Scene) -> None:
        async with scene.running():
            await asyncio.sleep(86400)
        first, *later = scene.transport.queries
        assert first["sendInitialEvents"] == "true"
        assert first["resourceVersionMatch"] == "NotOlderThan"
        assert "resourceVersion" not in first
        assert all("sendInitialEvents" not in query for query in later)
        assert all(query["allowWatchBookmarks"] == "true" for query in scene.transport.queries)
        lengths = {int(query["timeoutSeconds"]) for query in scene.transport.queries}
        assert len(lengths) > 50
        assert min(lengths) >= 300
        assert max(lengths) <= 600
        assert scene.informer.lists == 1

    play(scenario)


def test_a_quiet_watch_stays_fresh():
    async def scenario(scene: Scene) -> None:
        assert scene.informer.age_seconds() == 0
        async with scene.running():
            for _ in range(1000):
                await asyncio.sleep(7)
                assert scene.informer.age_seconds() <= 60

    play(scenario)


def test_a_half_open_connection_is_noticed_and_nothing_is_missed():
    async def scenario(scene: Scene) -> None:
        scene.transport.streams = [None, silent]
        async with scene.running():
            await scene.informer.synced.wait()
            scene.server.drop_watches()
            await asyncio.sleep(20)
            scene.put("a")
            await scene.settled()
            assert seconds() < 100
            assert scene.informer.lists == 1

    play(scenario)


def test_a_server_that_does_not_answer_at_all_makes_the_watch_old():
    async def scenario(scene: Scene) -> None:
        async with scene.running():
            await scene.informer.synced.wait()
            scene.transport.streams = [TransportError("no route to host")] * 10_000
            scene.server.drop_watches()
            await asyncio.sleep(600)
            assert scene.informer.age_seconds() >= 590
            assert scene.informer.last_error == "no route to host"
            scene.transport.streams = []
            await asyncio.sleep(31)
            assert scene.informer.age_seconds() <= 31
            scene.put("a")
            await scene.settled()
            assert scene.informer.last_error == ""

    play(scenario)


@pytest.mark.parametrize("expired_as_status", [True, False], ids=["as-http-status", "as-error-event"])
def test_changes_in_a_gap_are_notified_after_a_new_list(expired_as_status: bool):
    async def scenario(scene: Scene) -> None:
        scene.put("kept")
        scene.put("changed")
        scene.put("deleted")
        async with scene.running():
            await scene.informer.synced.wait()
            scene.told.clear()
            scene.transport.streams = [TransportError("reset")]
            scene.server.drop_watches()
            await asyncio.sleep(0.1)
            scene.put("changed", size="2")
            scene.put("came")
            scene.delete("deleted")
            scene.server.compact()
            await scene.settled()
        assert sorted(scene.cached()) == ["came", "changed", "kept"]
        assert sorted(scene.told, key=str) == [
            ("changed", "changed", False),
            ("deleted", None, False),
            (None, "came", False),
        ]
        assert scene.informer.lists == 2

    play(scenario, expired_as_status=expired_as_status)


def test_an_object_recreated_in_a_gap_is_a_removal_and_an_addition():
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        async with scene.running():
            await scene.informer.synced.wait()
            scene.told.clear()
            scene.transport.streams = [TransportError("reset")]
            scene.server.drop_watches()
            await asyncio.sleep(0.1)
            scene.delete("a")
            scene.put("a")
            scene.server.compact()
            await scene.settled()
        assert scene.told == [("a", None, False), (None, "a", False)]

    play(scenario)


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_line_cut_in_the_middle_is_not_believed(cut: int):
    async def scenario(scene: Scene) -> None:
        for number in range(5):
            scene.put(f"map-{number}")
        scene.transport.streams = [cut_after(cut)]
        async with scene.running():
            await scene.informer.synced.wait()
        assert len(scene.cache) == 5

    play(scenario)


@pytest.mark.parametrize("framing", [byte_by_byte, with_crlf_and_empty_lines])
def test_lines_may_arrive_in_any_pieces(framing: Callable[..., object]):
    async def scenario(scene: Scene) -> None:
        scene.put("a", size="1")
        scene.transport.streams = [framing]
        async with scene.running():
            await scene.informer.synced.wait()
            scene.put("b")
            await scene.settled()
            assert sorted(scene.cached()) == ["a", "b"]

    play(scenario)


def test_a_last_line_without_its_end_counts_when_the_stream_ends_in_good_order():
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        [stored] = scene.server.objects(CONFIG_MAPS)
        line = msgspec.json.encode({"type": "MODIFIED", "object": stored})
        async with scene.running():
            await scene.informer.synced.wait()
            scene.transport.streams = [Response(200, line)]
            scene.server.drop_watches()
            await asyncio.sleep(5)
        assert list(scene.cached()) == ["a"]
        assert scene.informer.lists == 1

    play(scenario)


def test_an_object_deleted_during_a_streamed_list_never_appears():
    async def scenario(scene: Scene) -> None:
        scene.put("a")
        scene.put("b")
        first, second = (msgspec.json.encode(each) for each in scene.server.objects(CONFIG_MAPS))
        bookmark = {
            "metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
        }
        events = [
            b'{"type":"ADDED","object":%s}' % first,
            b'{"type":"ADDED","object":%s}' % second,
            b'{"type":"DELETED","object":%s}' % first,
            b'{"type":"NOVEL","object":{}}',
            b'{"type":"BOOKMARK","object":%s}' % msgspec.json.encode(bookmark),
        ]
        scene.transport.streams = [Response(200, b"\n".join(events))]
        async with scene.running():
            await scene.informer.synced.wait()
            assert scene.told == [(None, "b", True)]

    play(scenario)


def test_metadata_with_a_date_beyond_python_leaves_out_one_object_only():
    async def scenario(scene: Scene) -> None:
        scene.put("good")
        [stored] = scene.server.objects(CONFIG_MAPS)
        metadata = {"name": "bad", "namespace": "default", "resourceVersion": "2"}
        distant = {"metadata": {**metadata, "deletionTimestamp": "33658-09-27T01:46:39Z"}}
        good = {"metadata": {**stored["metadata"], "resourceVersion": "3"}, "data": {"seen": "after"}}
        events = [
            {"type": "ADDED", "object": distant},
            {"type": "MODIFIED", "object": good},
            {"type": "DELETED", "object": distant},
        ]
        async with scene.running():
            await asyncio.sleep(2)
            scene.transport.streams = [Response(200, b"\n".join(map(msgspec.json.encode, events))), silent]
            scene.server.drop_watches()
            await asyncio.sleep(0.1)
            assert scene.cached() == {"good": {"seen": "after"}}
            assert scene.informer.undecodable == 0

    play(scenario)


def test_an_informer_works_without_callbacks():
    async def scenario(scene: Scene) -> None:
        cache: Cache[Sized] = Cache()
        client = Client(scene.transport)
        informer = Informer(client, SIZED, type=Sized, cache=cache, rng=random.Random(0))
        scene.server.create(SIZED, sized("good", 1))
        scene.server.create(SIZED, sized("bad", "large"))
        async with scene.running(informer):
            await informer.synced.wait()
            scene.server.delete(SIZED, "default", "bad")
            await cache.wait_for_version(str(scene.server.version))
        assert (len(cache), informer.undecodable, informer.resource) == (1, 0, SIZED)

    play(scenario)
