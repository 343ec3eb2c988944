from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from paddlejob.api.meta import JsonObject
from paddlejob.kube.client import Client
from paddlejob.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TransportError,
    TransportTimeoutError,
)
from paddlejob.kube.resource import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, Resource
from simkube.apiserver import refusals
from simkube.apiserver.request import AdmissionRequest
from simkube.apiserver.rules.kinds import custom_resource
from simkube.apiserver.server import GARBAGE_COLLECTOR, ApiServer
from simkube.apiserver.store import Change
from tests.simulator.behaviour import (
    WIDGET_DEFINITION,
    WIDGETS,
    Api,
    Events,
    config_map,
    owner_reference,
    pod,
    widget,
)
from tests.support.simulated import simulated


def api(server: ApiServer) -> Api:
    return Api(server.transport(), "default")


async def changes(server: ApiServer, count: int) -> list[int]:
    """Change an object `times` times; return the versions."""
    if server.get(CONFIG_MAPS, "default", "a") is None:
        server.create(CONFIG_MAPS, config_map("a"))
    patches = ({"data": {"key": str(number)}} for number in range(count))
    made = [server.patch(CONFIG_MAPS, "default", "a", patch) for patch in patches]
    return [int(body["metadata"]["resourceVersion"]) for body in made]


async def types(events: Events) -> list[str]:
    return [msgspec.json.decode(line)["type"] for line in await events.rest()]


@simulated
async def test_a_watch_from_behind_the_window_gets_410_as_an_event() -> None:
    server = ApiServer(history_limit=3)
    versions = await changes(server, 5)
    async with api(server).watch(CONFIG_MAPS, resourceVersion=str(versions[0])) as events:
        [(kind, _, status)] = await events.take(1)
        assert (events.status, kind) == (200, "ERROR")
        assert (status["code"], status["reason"]) == (410, "Expired")
        assert await events.rest() == []


@simulated
async def test_a_watch_from_behind_the_window_gets_410_as_a_status_when_asked_to() -> None:
    server = ApiServer(history_limit=3, expired_as_status=True)
    versions = await changes(server, 5)
    async with api(server).watch(CONFIG_MAPS, resourceVersion=str(versions[0])) as events:
        assert events.status == 410


@simulated
async def test_a_watch_from_within_the_window_is_served() -> None:
    server = ApiServer(history_limit=3)
    versions = await changes(server, 5)
    async with api(server).watch(CONFIG_MAPS, resourceVersion=str(versions[1])) as events:
        assert await events.shown(3) == ["MODIFIED a"] * 3


@simulated
async def test_after_compaction_only_the_present_can_be_watched() -> None:
    server = ApiServer()
    versions = await changes(server, 3)
    server.compact()
    async with api(server).watch(CONFIG_MAPS, resourceVersion=str(versions[1])) as events:
        assert (await events.next())[0] == "ERROR"
    async with api(server).watch(CONFIG_MAPS, resourceVersion=str(server.version)) as events:
        server.patch(CONFIG_MAPS, "default", "a", {"data": {"key": "last"}})
        assert await events.shown(1) == ["MODIFIED a"]


@simulated
async def test_after_compaction_a_page_cannot_be_continued() -> None:
    server = ApiServer()
    for name in "abc":
        server.create(CONFIG_MAPS, config_map(name))
    first = await api(server).list(CONFIG_MAPS, limit="1")
    server.compact()
    server.create(CONFIG_MAPS, config_map("d"))
    second = await api(server).list(CONFIG_MAPS, limit="1", **{"continue": first.metadata["continue"]})
    assert (second.code, second.reason) == (200, "")
    server.compact()
    third = await api(server).list(CONFIG_MAPS, limit="1", **{"continue": second.metadata["continue"]})
    assert (third.code, third.reason) == (410, "Expired")


@simulated
async def test_bookmarks_come_every_minute_and_before_the_end() -> None:
    server = ApiServer()
    query = {"allowWatchBookmarks": "true", "timeoutSeconds": "150", "resourceVersion": str(server.version)}
    moments = []
    stream = server.transport().stream(PODS.path("default"), query={"watch": "true", **query})
    async with stream as opened:
        async for chunk in opened.chunks():
            assert msgspec.json.decode(chunk)["type"] == "BOOKMARK"
            moments.append(asyncio.get_running_loop().time())
    assert moments == [60.0, 120.0, 148.0]


@simulated
async def test_a_bookmark_carries_the_version_of_all_kinds() -> None:
    server = ApiServer()
    query = {"allowWatchBookmarks": "true", "resourceVersion": str(server.version), "timeoutSeconds": "90"}
    async with api(server).watch(PODS, **query) as events:
        last = (await changes(server, 3))[-1]
        kind, _, body = await events.next()
    assert (kind, body["metadata"]["resourceVersion"]) == ("BOOKMARK", str(last))


@simulated
async def test_no_bookmarks_unless_asked_for() -> None:
    server = ApiServer()
    query = {"timeoutSeconds": "300", "resourceVersion": str(server.version)}
    async with api(server).watch(PODS, **query) as events:
        assert await events.rest() == []
    assert asyncio.get_running_loop().time() == 300


@simulated
async def test_a_streaming_list_can_be_refused_as_old_servers_do() -> None:
    server = ApiServer(streaming_list=False)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    async with api(server).watch(PODS, **query) as events:
        assert events.status == 422


@simulated
async def test_a_silent_watch_times_out_when_asked_to() -> None:
    server = ApiServer()
    stream = server.transport().stream(PODS.path(), query={"watch": "true"}, idle_timeout_seconds=70)
    async with stream as opened:
        with pytest.raises(TransportTimeoutError):
            await anext(opened.chunks())
    assert asyncio.get_running_loop().time() == 70


@simulated
async def test_a_watch_from_the_future_waits_for_it() -> None:
    server = ApiServer()
    server.create(CONFIG_MAPS, config_map("a"))
    async with api(server).watch(CONFIG_MAPS, resourceVersion=str(server.version + 2)) as events:
        last = (await changes(server, 3))[-1]
        _, _, body = await events.next()
    assert body["metadata"]["resourceVersion"] == str(last)


@simulated
async def test_the_end_of_the_initial_events_is_told_to_streaming_lists_only() -> None:
    server = ApiServer()
    server.create(CONFIG_MAPS, config_map("a"))
    query = {"allowWatchBookmarks": "true", "timeoutSeconds": "30"}
    async with api(server).watch(CONFIG_MAPS, **query) as events:
        seen = [msgspec.json.decode(line) for line in await events.rest()]
    assert [event["type"] for event in seen] == ["ADDED", "BOOKMARK"]
    assert "annotations" not in seen[1]["object"]["metadata"]


@simulated
async def test_watches_can_be_dropped() -> None:
    server = ApiServer()
    async with api(server).watch(CONFIG_MAPS, resourceVersion=str(server.version)) as events:
        server.create(CONFIG_MAPS, config_map("a"))
        server.drop_watches()
        assert await types(events) == ["ADDED"]
    assert server.watches == []


@simulated
async def test_a_closed_watch_is_forgotten() -> None:
    server = ApiServer()
    async with api(server).watch(CONFIG_MAPS):
        assert len(server.watches) == 1
    assert server.watches == []
    assert server.store.table(server.routes.kind(CONFIG_MAPS)).subscribers == []


@simulated
async def test_an_object_is_encoded_once_for_all_watchers() -> None:
    server = ApiServer()
    changes_seen: list[Change] = []
    server.store.observers.append(changes_seen.append)
    async with api(server).watch(CONFIG_MAPS) as first, api(server).watch(CONFIG_MAPS) as second:
        server.create(CONFIG_MAPS, config_map("a"))
        assert await first.shown(1) == await second.shown(1) == ["ADDED a"]
    [change] = changes_seen
    assert change.line("ADDED") is change.line("ADDED")


@simulated
async def test_an_admission_hook_refuses() -> None:
    def quota(request: AdmissionRequest) -> None:
        if request.verb == "create" and request.resource == PODS:
            raise refusals.forbidden(PODS, request.name, "exceeded quota: small, limited: pods=0")

    server = ApiServer()
    server.admission.append(quota)
    with pytest.raises(ForbiddenError, match='pods "a" is forbidden: exceeded quota'):
        server.create(PODS, pod("a"))
    assert server.create(CONFIG_MAPS, config_map("a"))


@simulated
async def test_an_admission_hook_changes_what_is_stored() -> None:
    def inject(request: AdmissionRequest) -> JsonObject | None:
        if request.resource != PODS or request.body is None:
            return None
        spec = request.body["spec"]
        sidecar = {"name": "sidecar", "image": "proxy"}
        return {**request.body, "spec": {**spec, "containers": [*spec["containers"], sidecar]}}

    server = ApiServer()
    server.admission.append(inject)
    stored = server.create(PODS, pod("a"))
    assert [container["name"] for container in stored["spec"]["containers"]] == ["main", "sidecar"]


@simulated
async def test_an_admission_hook_sees_who_does_what() -> None:
    seen: list[tuple[str, str, str, str]] = []

    def look(request: AdmissionRequest) -> None:
        seen.append((request.identity, request.verb, request.name, request.subresource))

    server = ApiServer()
    server.admission.append(look)
    client = Client(server.transport("me"))
    await client.create(PODS, "default", pod("a"))
    await client.patch(PODS, "default", "a", {"status": {"phase": "Running"}}, subresource="status")
    await client.delete(PODS, "default", "a")
    assert seen == [("me", "create", "a", ""), ("me", "update", "a", "status"), ("me", "delete", "a", "")]


@simulated
async def test_writes_are_logged_with_who_what_and_the_outcome() -> None:
    server = ApiServer()
    client = Client(server.transport("me"))
    await client.create(CONFIG_MAPS, "default", config_map("a"))
    await client.patch(CONFIG_MAPS, "default", "a", {"data": {"key": "value"}})
    with pytest.raises(ConflictError):
        await client.create(CONFIG_MAPS, "default", config_map("a"))
    await client.get(CONFIG_MAPS, "default", "a")
    writes = [
        (write.identity, write.verb, write.name, write.code, write.changed) for write in server.log.writes
    ]
    assert writes == [
        ("me", "create", "a", 201, True),
        ("me", "patch", "a", 200, False),
        ("me", "create", "", 409, False),
    ]
    assert server.log.requests["create", "configmaps"] == 2
    assert server.log.requests["get", "configmaps"] == 1
    assert [write.decoded() for write in server.log.select(verb="patch")] == [{"data": {"key": "value"}}]


@simulated
async def test_a_listener_is_told_of_each_write() -> None:
    server, told = ApiServer(), []
    server.log.on_write.append(lambda write: told.append(write.name))
    server.create(CONFIG_MAPS, config_map("a"))
    server.delete(CONFIG_MAPS, "default", "a")
    assert told == ["a", "a"]


@simulated
async def test_a_definition_that_is_posted_is_served() -> None:
    server = ApiServer()
    client = Client(server.transport())
    assert not await client.has_resource(WIDGETS)
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, WIDGET_DEFINITION)
    assert await client.has_resource(WIDGETS)
    await client.create(WIDGETS, "default", widget("a"))
    scale = await client.get(WIDGETS, "default", "a", subresource="scale")
    assert scale["spec"] == {"replicas": 2}


@simulated
async def test_a_kind_without_a_status_subresource_keeps_its_status() -> None:
    server = ApiServer()
    server.register(custom_resource(WIDGETS, status=False))
    server.create(WIDGETS, {**widget("a"), "status": {"x": 1}})
    body = server.patch(WIDGETS, "default", "a", {"status": {"x": 2}})
    assert (body["status"], body["metadata"]["generation"]) == ({"x": 2}, 2)
    with pytest.raises(NotFoundError):
        server.patch(WIDGETS, "default", "a", {"status": {"x": 3}}, subresource="status")


@simulated
async def test_cluster_wide_objects_have_no_namespace() -> None:
    server = ApiServer()
    server.create(NODES, {"metadata": {"name": "n"}})
    assert server.get(NODES, "", "n") is not None
    answer = await api(server).transport.request("GET", "/api/v1/namespaces/default/nodes/n")
    assert answer.status == 404


@simulated
async def test_the_server_tells_of_itself() -> None:
    client = Client(ApiServer().transport())
    assert (await client.server_version()).minor == "35"
    assert await client.has_resource(PODS)
    assert not await client.has_resource(Resource("", "v1", "nones", "None"))


@simulated
async def test_logs_of_a_pod_can_be_read() -> None:
    server = ApiServer()
    server.container_logs.write(server.create(PODS, pod("a")), b"one\ntwo\nthree\n")
    async with Client(server.transport()).log_stream("default", "a", query={"tailLines": "2"}) as stream:
        assert [chunk async for chunk in stream.chunks()] == [b"two\nthree\n"]
    # As kubelets do: from the first of these lines.
    limited = {"tailLines": "2", "limitBytes": "5"}
    async with Client(server.transport()).log_stream("default", "a", query=limited) as stream:
        assert [chunk async for chunk in stream.chunks()] == [b"two\nt"]


@simulated
async def test_a_closed_transport_sends_nothing() -> None:
    server = ApiServer()
    transport = server.transport()
    await transport.close()
    with pytest.raises(TransportError):
        await transport.request("GET", "/version")


@simulated
async def test_latency_is_virtual_time_and_a_write_takes_effect_on_the_way() -> None:
    server, loop = ApiServer(), asyncio.get_running_loop()
    client = Client(server.transport(latency_seconds=(2.0, 2.0)))
    await client.create(CONFIG_MAPS, "default", config_map("a"))
    assert loop.time() == 2.0
    assert server.log.writes[0].at_seconds == 1.0


@simulated
async def test_the_collector_waits_and_signs_its_deletions() -> None:
    server = ApiServer(garbage_delay_seconds=(5.0, 5.0))
    owner = server.create(CONFIG_MAPS, config_map("owner"))
    server.create(CONFIG_MAPS, config_map("child", owner))
    server.delete(CONFIG_MAPS, "default", "owner")
    await asyncio.sleep(4)
    assert server.get(CONFIG_MAPS, "default", "child") is not None
    await asyncio.sleep(2)
    assert server.get(CONFIG_MAPS, "default", "child") is None
    assert [write.name for write in server.log.select(identity=GARBAGE_COLLECTOR)] == ["child"]


@simulated
async def test_a_namesake_of_the_owner_does_not_keep_the_child() -> None:
    server = ApiServer()
    owner = server.create(CONFIG_MAPS, config_map("owner"))
    server.create(CONFIG_MAPS, config_map("child", owner))
    server.delete(CONFIG_MAPS, "default", "owner")
    server.create(CONFIG_MAPS, config_map("owner"))
    await asyncio.sleep(5)
    assert [body["metadata"]["name"] for body in server.objects(CONFIG_MAPS)] == ["owner"]


@simulated
async def test_an_owner_in_another_namespace_is_none() -> None:
    server = ApiServer()
    owner = server.create(CONFIG_MAPS, config_map("owner", namespace="elsewhere"))
    server.create(CONFIG_MAPS, config_map("child", ownerReferences=[owner_reference(owner)]))
    await asyncio.sleep(5)
    assert server.get(CONFIG_MAPS, "default", "child") is None


@simulated
async def test_the_collector_can_be_switched_off() -> None:
    server = ApiServer()
    server.garbage_collector.enabled = False
    owner = server.create(CONFIG_MAPS, config_map("owner"))
    server.create(CONFIG_MAPS, config_map("child", owner))
    server.delete(CONFIG_MAPS, "default", "owner")
    await asyncio.sleep(60)
    assert server.get(CONFIG_MAPS, "default", "child") is not None


@simulated
async def test_a_collected_pod_on_a_node_waits_for_its_kubelet() -> None:
    server = ApiServer()
    owner = server.create(CONFIG_MAPS, config_map("owner"))
    body = pod("child", nodeName="n")
    body["metadata"]["ownerReferences"] = [owner_reference(owner)]
    server.create(PODS, body)
    server.delete(CONFIG_MAPS, "default", "owner")
    await asyncio.sleep(5)
    child = server.get(PODS, "default", "child")
    assert child is not None
    assert child["metadata"]["deletionGracePeriodSeconds"] == 30


@simulated
async def test_the_collector_deletes_once() -> None:
    server = ApiServer()
    owner = server.create(CONFIG_MAPS, config_map("owner"))
    body = pod("child", nodeName="n")
    body["metadata"]["ownerReferences"] = [owner_reference(owner)]
    server.create(PODS, body)
    server.delete(CONFIG_MAPS, "default", "owner")
    for phase in ("Running", "Unknown"):
        await asyncio.sleep(5)
        server.patch(PODS, "default", "child", {"status": {"phase": phase}}, subresource="status")
    await asyncio.sleep(5)
    assert len(list(server.log.select(identity=GARBAGE_COLLECTOR))) == 1


@simulated
async def test_one_seed_gives_the_same_uids() -> None:
    def made(seed: int) -> list[str]:
        server = ApiServer(rng=random.Random(seed))
        return [server.create(CONFIG_MAPS, config_map(name))["metadata"]["uid"] for name in "ab"]

    assert made(1) == made(1)
    assert made(1) != made(2)


@simulated
async def test_what_is_stored_does_not_change_under_a_reader() -> None:
    server = ApiServer()
    server.create(PODS, pod("a"))
    before = server.get(PODS, "default", "a")
    shown = msgspec.json.encode(before)
    server.patch(PODS, "default", "a", {"metadata": {"labels": {"x": "1"}}})
    server.patch(PODS, "default", "a", {"status": {"phase": "Running"}}, subresource="status")
    assert msgspec.json.encode(before) == shown


@pytest.mark.parametrize("seed", range(20))
def test_a_watch_from_any_version_leads_to_the_present(seed: int) -> None:
    simulated(_follow_random_changes)(seed)


async def _follow_random_changes(seed: int) -> None:
    """Change objects at random; then replay a labelled watch from every version and compare."""
    rng, server = random.Random(seed), ApiServer()
    server.garbage_collector.enabled = False
    selected: dict[int, dict[str, Any]] = {server.version: {}}
    for _ in range(60):
        _change_something(server, rng)
        selected[server.version] = _labelled(server)
    for version, state in selected.items():
        replayed = dict(state)
        query = {"resourceVersion": str(version), "labelSelector": "x=1", "timeoutSeconds": "1"}
        async with api(server).watch(CONFIG_MAPS, **query) as events:
            for line in await events.rest():
                event = msgspec.json.decode(line)
                name = event["object"]["metadata"]["name"]
                assert (name in replayed) == (event["type"] != "ADDED")
                replayed[name] = event["object"]
                if event["type"] == "DELETED":
                    del replayed[name]
        assert replayed == selected[server.version]


def _labelled(server: ApiServer) -> dict[str, Any]:
    return {
        body["metadata"]["name"]: body
        for body in server.objects(CONFIG_MAPS)
        if body["metadata"].get("labels", {}).get("x") == "1"
    }


def _change_something(server: ApiServer, rng: random.Random) -> None:
    name = rng.choice("abcd")
    try:
        match rng.randrange(3):
            case 0:
                server.create(CONFIG_MAPS, config_map(name, labels={"x": rng.choice("12")}))
            case 1:
                server.patch(CONFIG_MAPS, "default", name, {"metadata": {"labels": {"x": rng.choice("12")}}})
            case _:
                server.delete(CONFIG_MAPS, "default", name)
    except ApiError:
        return
