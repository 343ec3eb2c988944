from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from paddlejob.api.meta import ObjectKey, ObjectMeta, OwnerReference
from paddlejob.api.pod import Pod, PodStatus, share_parts
from paddlejob.kube.cache import Cache, Change
from simkube import virtual_loop


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def thing(name: str, version: int = 1, *, uid: str = "", team: str = "blue") -> Thing:
    return Thing(
        ObjectMeta(
            name=name,
            namespace="default",
            uid=uid or f"uid-{name}",
            resource_version=str(version),
            labels={"team": team},
        )
    )


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def by_team(observed: Thing) -> tuple[str, ...]:
    return (observed.metadata.labels["team"],)


@pytest.fixture
def cache() -> Cache[Thing]:
    return Cache({"team": by_team})


def names(things: tuple[Thing, ...]) -> list[str]:
    return [found.metadata.name for found in things]


def test_an_object_is_found_by_key_and_by_index(cache: Cache[Thing]):
    cache.apply(thing("a"))
    assert cache.get(key("a")) == thing("a")
    assert key("a") in cache
    assert names(cache.find("team", "blue")) == ["a"]


def test_an_index_is_read_from_either_end(cache: Cache[Thing]):
    for name in ("a", "b", "c"):
        cache.apply(thing(name))
    assert names(tuple(cache.newest_first("team", "blue"))) == ["c", "b", "a"]
    assert names(tuple(cache.newest_first("team", "red"))) == []


def test_an_unknown_index_is_a_programming_error(cache: Cache[Thing]):
    with pytest.raises(KeyError):
        cache.find("colour", "blue")


def test_apply_returns_the_change(cache: Cache[Thing]):
    assert cache.apply(thing("a", 1)) == (Change(None, thing("a", 1)),)
    assert cache.apply(thing("a", 2)) == (Change(thing("a", 1), thing("a", 2)),)


def test_the_version_already_known_is_no_change(cache: Cache[Thing]):
    cache.apply(thing("a", 1))
    assert cache.apply(thing("a", 1)) == ()


def test_a_recreated_object_is_a_removal_and_an_addition(cache: Cache[Thing]):
    first, second = thing("a", 1, uid="first"), thing("a", 2, uid="second")
    cache.apply(first)
    assert cache.apply(second) == (Change(first, None), Change(None, second))
    assert names(cache.find("team", "blue")) == ["a"]


def test_an_index_follows_the_object(cache: Cache[Thing]):
    cache.apply(thing("a", 1, team="blue"))
    cache.apply(thing("a", 2, team="red"))
    assert cache.find("team", "blue") == ()
    assert names(cache.find("team", "red")) == ["a"]


def test_an_index_may_file_an_object_under_many_values_or_none():
    cache: Cache[Thing] = Cache({"letter": lambda observed: observed.metadata.labels["team"]})
    cache.apply(thing("a", 1, team="blue"))
    cache.apply(thing("a", 2, team="bob"))
    assert [len(cache.find("letter", letter)) for letter in "blueo"] == [1, 0, 0, 0, 1]
    cache.apply(thing("a", 3, team=""))
    assert [len(cache.find("letter", letter)) for letter in "blueo"] == [0, 0, 0, 0, 0]


def test_find_keeps_the_order_of_arrival(cache: Cache[Thing]):
    for name in "cab":
        cache.apply(thing(name))
    cache.apply(thing("c", 9))
    assert names(cache.find("team", "blue")) == ["c", "a", "b"]


def test_remove_returns_the_removed_object(cache: Cache[Thing]):
    cache.apply(thing("a"))
    assert cache.remove(key("a"), "2") == (Change(thing("a"), None),)
    assert cache.remove(key("a"), "3") == ()
    assert len(cache) == 0
    assert cache.find("team", "blue") == ()


def test_replace_gives_the_differences_only(cache: Cache[Thing]):
    for name in "abc":
        cache.apply(thing(name, 1))
    changes = cache.replace([thing("a", 1), thing("b", 5), thing("d", 6)], "7")
    assert changes == (
        Change(thing("b", 1), thing("b", 5)),
        Change(None, thing("d", 6)),
        Change(thing("c", 1), None),
    )
    assert sorted(names(tuple(cache))) == ["a", "b", "d"]


def test_replace_may_go_back_in_time(cache: Cache[Thing]):
    cache.apply(thing("a", 90))
    cache.replace([thing("a", 10)], "10")
    assert cache.last_resource_version == "10"
    assert cache.get(key("a")) == thing("a", 10)


def test_the_last_version_follows_events_deletions_and_bookmarks(cache: Cache[Thing]):
    seen = [cache.last_resource_version]
    cache.apply(thing("a", 3))
    seen.append(cache.last_resource_version)
    cache.remove(key("a"), "5")
    seen.append(cache.last_resource_version)
    cache.advance("8")
    assert [*seen, cache.last_resource_version] == ["", "3", "5", "8"]


@pytest.mark.parametrize(
    ("known", "wanted", "reached"),
    [
        ("9", "10", False),
        ("10", "10", True),
        ("100", "99", True),
        ("", "1", False),
        ("", "opaque", False),
        ("opaque", "1", True),
        ("5", "opaque", True),
    ],
)
def test_versions_are_compared_as_numbers_or_not_at_all(known: str, wanted: str, reached: bool):
    cache: Cache[Thing] = Cache()
    cache.advance(known)
    assert cache.has_reached(wanted) is reached


async def test_wait_for_version_returns_when_the_version_is_reached(cache: Cache[Thing]):
    waiting = asyncio.create_task(cache.wait_for_version("5"))
    await asyncio.sleep(0)
    cache.advance("4")
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.advance("5")
    await waiting


async def test_a_reached_version_stays_reached_if_more_changes_precede_the_wakeup(cache: Cache[Thing]):
    waiting = asyncio.create_task(cache.wait_for_version("5"))
    await asyncio.sleep(0)
    cache.advance("5")
    cache.advance("6")
    await waiting


async def test_wait_for_returns_immediately_if_the_predicate_holds(cache: Cache[Thing]):
    await cache.wait_for(lambda: len(cache) == 0)


async def test_replace_wakes_waiters_only_when_it_is_complete(cache: Cache[Thing]):
    sizes: list[int] = []

    def has_both() -> bool:
        sizes.append(len(cache))
        return len(cache) == 2

    waiting = asyncio.create_task(cache.wait_for(has_both))
    await asyncio.sleep(0)
    cache.replace([thing("a"), thing("b")], "2")
    await waiting
    assert sizes == [0, 2]


async def test_a_failing_predicate_fails_only_its_waiter(cache: Cache[Thing]):
    failing = asyncio.create_task(cache.wait_for(lambda: len(cache) > 0 and 1 // 0 == 0))
    other = asyncio.create_task(cache.wait_for(lambda: len(cache) > 0))
    await asyncio.sleep(0)
    cache.apply(thing("a"))
    await other
    with pytest.raises(ZeroDivisionError):
        await failing


def test_a_cancelled_wait_leaves_nothing_behind(cache: Cache[Thing]):
    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await cache.wait_for_version("9")

    virtual_loop.run(impatient())
    assert cache._waiters == []


def test_equal_parts_of_many_objects_are_one_in_memory(cache: Cache[Thing]):
    owner = {"uid": "u", "name": "job", "kind": "Job", "apiVersion": "v1", "controller": True}
    for name in "ab":
        metadata = {
            "name": name,
            "namespace": "a-long-namespace",
            "labels": {"team": "a team of many"},
            "annotations": {"note": "the same for all"},
            "ownerReferences": [owner],
        }
        cache.apply(msgspec.json.decode(msgspec.json.encode({"metadata": metadata}), type=Thing))
    first, second = (found.metadata for found in cache)
    assert first.namespace is second.namespace
    assert first.labels["team"] is second.labels["team"]
    assert first.annotations["note"] is second.annotations["note"]
    assert first.owner_references is second.owner_references
    assert first.owner_references == (
        OwnerReference(api_version="v1", kind="Job", name="job", uid="u", controller=True),
    )


def test_pods_share_their_conditions_and_those_of_one_second_their_containers():
    def pod(name: str, address: str, second: int) -> Pod:
        moment = f"2026-01-01T00:00:0{second}Z"
        running = {"name": "paddle", "state": {"running": {"startedAt": moment}}}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": moment}
        status = {"phase": "Running", "podIP": address, "conditions": [ready], "containerStatuses": [running]}
        body = {"metadata": {"name": name}, "spec": {"nodeName": "node-1"}, "status": status}
        return msgspec.json.decode(msgspec.json.encode(body), type=Pod)

    pods: Cache[Pod] = Cache(share_parts=share_parts)
    for each in (pod("a", "10.0.0.1", 1), pod("b", "10.0.0.2", 1), pod("c", "10.0.0.3", 2)):
        pods.apply(each)
    first, second, later = pods
    assert first.spec is second.spec is later.spec
    assert first.status.phase is later.status.phase
    assert first.status.conditions is later.status.conditions
    assert first.status.container_statuses[0] is second.status.container_statuses[0]
    assert later.status.container_statuses[0] != first.status.container_statuses[0]
    assert [each.status.pod_ip for each in pods] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_the_shared_default_status_is_not_changed():
    pods: Cache[Pod] = Cache(share_parts=share_parts)
    pods.apply(msgspec.json.decode(b'{"metadata": {"name": "a"}}', type=Pod))
    assert Pod(ObjectMeta("b")).status is next(iter(pods)).status
    assert next(iter(pods)).status == PodStatus()


def test_the_pool_of_shared_parts_does_not_grow_for_ever(cache: Cache[Thing], monkeypatch):
    monkeypatch.setattr("paddlejob.kube.cache._SPARE_PARTS", 100)
    for number in range(500):
        cache.apply(thing("a", number, team=f"team-{number}"))
    assert len(cache._parts) <= 100 + 8
    for number in range(100):
        cache.apply(thing(f"a-{number}", number, team=f"team-{number}"))
    assert len(cache._parts) > 100
    cache.replace([], "1000")
    assert len(cache._parts) <= 100


@pytest.mark.parametrize("seed", range(50))
def test_any_history_leaves_indexes_that_agree_with_the_objects(seed: int):
    rng = random.Random(seed)
    cache: Cache[Thing] = Cache({"team": by_team})
    truth: dict[str, Thing] = {}
    for version in range(1, 100):
        name = rng.choice("abcdefgh")
        observed = thing(name, version, team=rng.choice(["red", "blue"]), uid=rng.choice(["1", "2"]))
        match rng.randrange(4):
            case 0:
                truth.pop(name, None)
                cache.remove(key(name), str(version))
            case 1:
                truth = {each: truth[each] for each in truth if rng.random() < 0.5} | {name: observed}
                cache.replace(truth.values(), str(version))
            case _:
                truth[name] = observed
                cache.apply(observed)
        assert {found.metadata.name: found for found in cache} == truth
        for team in ("red", "blue"):
            expected = {each for each, found in truth.items() if by_team(found) == (team,)}
            assert set(names(cache.find("team", team))) == expected
