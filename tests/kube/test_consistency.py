from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import pytest

from paddlejob.api.meta import ObjectKey, ObjectMeta
from paddlejob.kube.cache import Cache
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES
from simkube import virtual_loop

OWNER = ObjectKey("default", "job")
POD = ObjectKey("default", "job-worker-0")


class Thing(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def pod(version: int, *, uid: str = "uid-1", deleting: bool = False) -> Thing:
    since = datetime(2030, 1, 1, tzinfo=UTC) if deleting else None
    return Thing(ObjectMeta(POD.name, POD.namespace, uid, str(version), deletion_timestamp=since))


class Caches:
    """Those of two kinds, and who waits for what they have seen."""

    def __init__(self) -> None:
        self.pods: Cache[Thing] = Cache()
        self.config_maps: Cache[Thing] = Cache()
        self.pods.advance("10")
        self.config_maps.advance("10")
        self.consistency = Consistency({PODS: self.pods, CONFIG_MAPS: self.config_maps})


def in_virtual_time(scenario: Callable[[Caches], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Caches())

    virtual_loop.run(main())


@pytest.fixture
async def caches() -> Caches:
    return Caches()


async def test_an_owner_nothing_was_written_for_is_ready(caches: Caches):
    assert caches.consistency.is_ready(OWNER)


async def test_an_owner_waits_until_the_cache_has_seen_the_write(caches: Caches):
    caches.consistency.record_write(OWNER, PODS, "12")
    assert not caches.consistency.is_ready(OWNER)
    caches.pods.advance("12")
    assert caches.consistency.is_ready(OWNER)
    assert len(caches.consistency) == 0


async def test_versions_are_numbers_not_text(caches: Caches):
    caches.consistency.record_write(OWNER, PODS, "9")
    assert caches.consistency.is_ready(OWNER)


async def test_the_highest_version_counts_in_any_order_of_writes(caches: Caches):
    for version in ("12", "100", "99"):
        caches.consistency.record_write(OWNER, PODS, version)
    caches.pods.advance("99")
    assert not caches.consistency.is_ready(OWNER)
    caches.pods.advance("100")
    assert caches.consistency.is_ready(OWNER)


async def test_each_kind_has_its_own_mark(caches: Caches):
    caches.consistency.record_write(OWNER, PODS, "12")
    caches.consistency.record_write(OWNER, CONFIG_MAPS, "13")
    caches.pods.advance("50")
    assert not caches.consistency.is_ready(OWNER)
    caches.config_maps.advance("13")
    assert caches.consistency.is_ready(OWNER)


async def test_one_owner_does_not_wait_for_the_writes_of_another(caches: Caches):
    caches.consistency.record_write(OWNER, PODS, "12")
    assert caches.consistency.is_ready(ObjectKey("default", "other"))


@pytest.mark.parametrize(
    "seen",
    [
        lambda pods: pods.apply(pod(12, deleting=True)),
        lambda pods: pods.remove(POD, "12"),
        lambda pods: pods.apply(pod(12, uid="uid-2")),
    ],
    ids=["marked-for-deletion", "gone", "replaced-by-a-namesake"],
)
async def test_a_delete_is_waited_for_by_uid(caches: Caches, seen: Callable[[Cache[Thing]], object]):
    caches.pods.apply(pod(10))
    caches.consistency.record_delete(OWNER, PODS, POD, "uid-1")
    caches.pods.apply(pod(11))
    assert not caches.consistency.is_ready(OWNER)
    seen(caches.pods)
    assert caches.consistency.is_ready(OWNER)


async def test_versions_that_cannot_be_compared_are_not_waited_for(caches: Caches):
    caches.consistency.record_write(OWNER, PODS, "opaque")
    assert caches.consistency.is_ready(OWNER)


async def test_a_kind_without_a_cache_is_not_waited_for(caches: Caches):
    caches.consistency.record_write(OWNER, SERVICES, "99")
    caches.consistency.record_delete(OWNER, SERVICES, POD, "uid")
    assert caches.consistency.is_ready(OWNER)


async def test_a_forgotten_owner_is_ready(caches: Caches):
    caches.consistency.record_write(OWNER, PODS, "12")
    caches.consistency.forget(OWNER)
    caches.consistency.forget(OWNER)
    assert caches.consistency.is_ready(OWNER)


def test_nothing_waits_for_ever():
    async def scenario(caches: Caches) -> None:
        caches.consistency.record_write(OWNER, PODS, "12")
        await asyncio.sleep(29)
        assert not caches.consistency.is_ready(OWNER)
        await asyncio.sleep(1)
        assert caches.consistency.is_ready(OWNER)
        assert caches.consistency.expired == 1
        assert caches.consistency.is_ready(OWNER)
        assert caches.consistency.expired == 1

    in_virtual_time(scenario)


def test_the_time_limit_counts_from_the_last_write():
    async def scenario(caches: Caches) -> None:
        caches.consistency.record_write(OWNER, PODS, "12")
        await asyncio.sleep(20)
        caches.consistency.record_delete(OWNER, PODS, POD, "uid-1")
        await asyncio.sleep(20)
        assert not caches.consistency.is_ready(OWNER)

    in_virtual_time(scenario)
