"""Informer, events and leader election on a real API server."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest

from paddlejob.api.meta import ObjectMeta, View
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.events import EventLimits, EventRecorder, ObjectReference
from paddlejob.kube.informer import Informer
from paddlejob.kube.lease import LeaderElector, LeaseTiming
from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, LEASES, Resource
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from tests.support.waiting import eventually_async

LATER = Resource("runtime.example.org", "v1", "laters", "Later")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


class Settings(View, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


@pytest.fixture
async def client(control_plane):
    async with Client(HttpTransport(load_config(control_plane.kubeconfig))) as client:
        yield client


def now() -> datetime:
    return datetime.now(UTC)


def config_map(name: str, size: str = "1") -> dict:
    return {"metadata": {"name": name, "labels": {"size": size}}, "data": {"size": size}}


def watching(client: Client, namespace: str, **options) -> Informer[Settings]:
    return Informer(
        client,
        options.pop("resource", CONFIG_MAPS),
        type=Settings,
        cache=Cache(),
        rng=random.Random(0),
        namespace=namespace,
        **options,
    )


@asynccontextmanager
async def running(*informers: Informer):
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        async with asyncio.timeout(60):
            yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()


def names(informer: Informer[Settings]) -> list[str]:
    return sorted(found.metadata.name for found in informer.cache)


async def test_an_informer_follows_creates_changes_and_deletes(client, namespace):
    told = []
    informer = watching(
        client,
        namespace,
        label_selector="size",
        on_change=lambda old, new, *, initial: told.append((old and old.data, new and new.data, initial)),
    )
    await client.create(CONFIG_MAPS, namespace, config_map("a", "1"))
    async with running(informer):
        await informer.synced.wait()
        changed = await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"size": "2"}})
        await informer.cache.wait_for_version(changed.metadata.resource_version)
        await client.delete(CONFIG_MAPS, namespace, "a")
        await informer.cache.wait_for(lambda: len(informer.cache) == 0)
    one, two = {"size": "1"}, {"size": "2"}
    assert told == [(None, one, True), (one, two, False), (two, None, False)]
    assert (informer.lists, informer.streams, informer.last_error) == (1, 1, "")


async def test_an_object_that_leaves_the_selection_goes(client, namespace):
    informer = watching(client, namespace, label_selector="size=1")
    await client.create(CONFIG_MAPS, namespace, config_map("a", "1"))
    await client.create(CONFIG_MAPS, namespace, config_map("b", "2"))
    async with running(informer):
        await informer.synced.wait()
        assert names(informer) == ["a"]
        await client.patch(CONFIG_MAPS, namespace, "a", {"metadata": {"labels": {"size": "2"}}})
        await informer.cache.wait_for(lambda: len(informer.cache) == 0)


class WithoutStreamedLists(HttpTransport):
    """Refuses them as servers without that feature do."""

    @asynccontextmanager
    async def stream(self, path, *, query=None, idle_timeout_seconds=None):
        if "sendInitialEvents" in query:
            yield Refusal()
        else:
            async with super().stream(path, query=query, idle_timeout_seconds=idle_timeout_seconds) as stream:
                yield stream


class Refusal:
    status, headers = 422, {}

    async def chunks(self):
        yield b'{"kind":"Status","code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden"}'


async def test_a_list_comes_in_pages_where_it_cannot_be_streamed(
    control_plane, client, namespace, monkeypatch
):
    monkeypatch.setattr("paddlejob.kube.informer.PAGE_SIZE", 3)
    for number in range(8):
        await client.create(CONFIG_MAPS, namespace, config_map(f"map-{number}"))
    async with Client(WithoutStreamedLists(load_config(control_plane.kubeconfig))) as paging:
        informer = watching(paging, namespace, label_selector="size")
        async with running(informer):
            await informer.synced.wait()
            assert len(informer.cache) == 8
            created = await client.create(CONFIG_MAPS, namespace, config_map("late"))
            await informer.cache.wait_for_version(created.metadata.resource_version)
            assert "late" in names(informer)


async def test_a_definition_may_be_installed_and_removed_while_watched(client, namespace):
    informer = watching(client, namespace, resource=LATER)
    async with running(informer):
        await eventually_async(lambda: "install its definition" in informer.last_error)
        await client.create(DEFINITIONS, None, definition(LATER))
        await informer.synced.wait()
        body = {"apiVersion": LATER.api_version, "kind": LATER.kind, "metadata": {"name": "a"}}
        await client.create(LATER, namespace, body)
        await informer.cache.wait_for(lambda: len(informer.cache) == 1)
        await client.delete(DEFINITIONS, None, f"{LATER.plural}.{LATER.group}")
        await informer.cache.wait_for(lambda: len(informer.cache) == 0)


def definition(resource: Resource) -> dict:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
        },
    }


async def test_the_watermark_opens_when_the_cache_has_seen_the_write(client, namespace):
    informer = watching(client, namespace)
    consistency = Consistency({CONFIG_MAPS: informer.cache})
    async with running(informer):
        await informer.synced.wait()
        created = (await client.create(CONFIG_MAPS, namespace, config_map("a"))).metadata
        consistency.record_write(created.key, CONFIG_MAPS, created.resource_version)
        await informer.cache.wait_for(lambda: consistency.is_ready(created.key))
        assert created.key in informer.cache
        consistency.record_delete(created.key, CONFIG_MAPS, created.key, created.uid)
        assert not consistency.is_ready(created.key)
        await client.delete(CONFIG_MAPS, namespace, "a", uid=created.uid)
        await informer.cache.wait_for(lambda: consistency.is_ready(created.key))
        assert consistency.expired == 0


async def told(client: Client, namespace: str, selector: str, times: int) -> None:
    """Wait until the one event of a selection has been told so often."""
    async with asyncio.timeout(30):
        while True:
            events = (await client.list(EVENTS, namespace, field_selector=selector)).items
            if [event["count"] for event in events] == [times]:
                return
            await asyncio.sleep(0.02)


async def test_an_event_is_found_by_its_object_and_counts_repeats(client, namespace):
    created = (await client.create(CONFIG_MAPS, namespace, config_map("a"))).metadata
    about = ObjectReference.to(CONFIG_MAPS, created)
    selector = f"involvedObject.uid={created.uid},reason=Trouble"
    limits = EventLimits(repeat_seconds=0.1)
    async with EventRecorder(client, "test", rng=random.Random(), now=now, limits=limits) as recorder:
        for times in (1, 2, 3):
            recorder.record(about, "Warning", "Trouble", "it does not work " + "训" * 1000)
            await told(client, namespace, selector, times)
    [event] = (await client.list(EVENTS, namespace, field_selector=selector)).items
    assert (event["type"], event["count"]) == ("Warning", 3)
    assert recorder.dropped == 0


def elector(client: Client, namespace: str, identity: str) -> LeaderElector:
    return LeaderElector(
        client,
        namespace=namespace,
        name="test",
        identity=identity,
        rng=random.Random(identity),
        now=now,
        timing=LeaseTiming(3, 2.0, 0.2),
    )


async def held_beyond_its_term(client, namespace):
    """Wait until a lease has been renewed for longer than it would last by itself."""
    async with asyncio.timeout(30):
        while True:
            spec = (await client.get(LEASES, namespace, "test"))["spec"]
            held = datetime.fromisoformat(spec["renewTime"]) - datetime.fromisoformat(spec["acquireTime"])
            if held.total_seconds() > spec["leaseDurationSeconds"]:
                return
            await asyncio.sleep(0.1)


async def test_a_lease_is_taken_renewed_given_back_and_taken_over(client, namespace):
    one, two = elector(client, namespace, "one"), elector(client, namespace, "two")
    leading = asyncio.create_task(one.run(asyncio.Event().wait))
    await eventually_async(lambda: one.is_leader)
    waiting = asyncio.create_task(two.run(asyncio.Event().wait))
    await eventually_async(lambda: two.holder == "one")
    await held_beyond_its_term(client, namespace)
    assert (one.is_leader, two.is_leader) == (True, False)
    leading.cancel()
    with suppress(asyncio.CancelledError):
        await leading
    async with asyncio.timeout(10):
        await eventually_async(lambda: two.is_leader)
    spec = (await client.get(LEASES, namespace, "test"))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("two", 1, 3)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
