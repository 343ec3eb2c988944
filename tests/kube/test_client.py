from __future__ import annotations

import random

import msgspec
import pytest

from kube.scripted_transport import ScriptedTransport, ok, refusal
from paddlejob.kube import errors
from paddlejob.kube.client import Client, PatchType, RequestRecord, ServerVersion
from paddlejob.kube.resource import CONFIG_MAPS, LEASES, NODES, PODS, Resource
from paddlejob.kube.responses import Written, error_from_stream
from simkube import virtual_loop

POD = {"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "7"}, "spec": {"nodeName": "n"}}
PODS_PATH = "/api/v1/namespaces/ns/pods"
WIDGETS = Resource("example.org", "v1", "widgets", "Widget")


class Pod(msgspec.Struct):
    spec: dict[str, str]


def client_of(*answers, **options):
    transport = ScriptedTransport(*answers)
    return Client(transport, rng=random.Random(0), **options), transport


async def sent(call, content=None):
    """Return the one request that a call of the client makes."""
    client, transport = client_of(ok(content))
    await call(client)
    (request,) = transport.requests
    return request


async def test_get_as_plain_json():
    client, transport = client_of(ok(POD))
    assert await client.get(PODS, "ns", "p") == POD
    assert (transport.requests[0].method, transport.requests[0].url) == ("GET", f"{PODS_PATH}/p")


async def test_get_as_a_type():
    client, _ = client_of(ok(POD))
    assert await client.get(PODS, "ns", "p", type=Pod) == Pod({"nodeName": "n"})


async def test_get_a_subresource():
    request = await sent(lambda client: client.get(WIDGETS, "ns", "w", subresource="scale"))
    assert request.url == "/apis/example.org/v1/namespaces/ns/widgets/w/scale"


async def test_list_gives_typed_items_and_the_way_to_the_next_page():
    client, _ = client_of(ok({"metadata": {"resourceVersion": "9", "continue": "tok"}, "items": [POD]}))
    page = await client.list(PODS, "ns", type=Pod)
    assert page.items == (Pod({"nodeName": "n"}),)
    assert (page.metadata.resource_version, page.metadata.continue_token) == ("9", "tok")


@pytest.mark.parametrize(
    ("options", "query"),
    [
        pytest.param({}, "", id="no parameter unless asked for"),
        pytest.param({"label_selector": "a=b,c in (d)"}, "?labelSelector=a%3Db%2Cc+in+%28d%29", id="labels"),
        pytest.param(
            {"field_selector": "status.phase=Failed"}, "?fieldSelector=status.phase%3DFailed", id="fields"
        ),
        pytest.param({"limit": 500, "continue_token": "tok"}, "?limit=500&continue=tok", id="a later page"),
    ],
)
async def test_list_parameters(options, query):
    assert (await sent(lambda client: client.list(PODS, "ns", **options))).url == PODS_PATH + query


async def test_list_everywhere():
    assert (await sent(lambda client: client.list(PODS))).url == "/api/v1/pods"


async def test_create_returns_the_metadata():
    client, transport = client_of(ok(POD, status=201))
    written = await client.create(PODS, "ns", {"spec": {}})
    assert isinstance(written, Written)
    assert written.metadata.resource_version == "7"
    request = transport.requests[0]
    assert (request.method, request.url, request.body) == ("POST", PODS_PATH, {"spec": {}})


@pytest.mark.parametrize(
    ("options", "query"),
    [
        pytest.param({}, "", id="no parameter unless asked for"),
        pytest.param({"strict": True}, "?fieldValidation=Strict", id="strict"),
        pytest.param({"dry_run": True}, "?dryRun=All", id="dry run"),
        pytest.param({"field_manager": "me"}, "?fieldManager=me", id="field manager"),
    ],
)
async def test_write_parameters(options, query):
    created = await sent(lambda client: client.create(PODS, "ns", {}, **options))
    patched = await sent(lambda client: client.patch(PODS, "ns", "p", {}, **options))
    assert (created.url, patched.url) == (PODS_PATH + query, f"{PODS_PATH}/p{query}")


async def test_create_a_binding():
    request = await sent(lambda client: client.create(PODS, "ns", {}, name="p", subresource="binding"))
    assert (request.method, request.url) == ("POST", f"{PODS_PATH}/p/binding")


async def test_create_cluster_wide():
    assert (await sent(lambda client: client.create(NODES, None, {}))).url == "/api/v1/nodes"


async def test_structs_are_encoded_with_their_field_names():
    class Named(msgspec.Struct, rename="camel"):
        node_name: str

    request = await sent(lambda client: client.create(PODS, "ns", Named("n")))
    assert request.body == {"nodeName": "n"}


async def test_replace_a_status():
    request = await sent(lambda client: client.replace(PODS, "ns", "p", POD, subresource="status"))
    assert (request.method, request.url, request.body) == ("PUT", f"{PODS_PATH}/p/status", POD)


@pytest.mark.parametrize(
    ("patch_type", "content_type"),
    [
        (PatchType.MERGE, "application/merge-patch+json"),
        (PatchType.JSON, "application/json-patch+json"),
        (PatchType.STRATEGIC, "application/strategic-merge-patch+json"),
        (PatchType.APPLY, "application/apply-patch+yaml"),
    ],
)
async def test_patch_types(patch_type, content_type):
    def patch(client):
        return client.patch(PODS, "ns", "p", {"a": 1}, patch_type=patch_type, field_manager="me")

    request = await sent(patch)
    assert (request.method, request.content_type, request.body) == ("PATCH", content_type, {"a": 1})


async def test_apply_by_force():
    def apply(client):
        return client.patch(
            PODS,
            "ns",
            "p",
            {},
            patch_type=PatchType.APPLY,
            field_manager="me",
            force=True,
            subresource="status",
        )

    assert (await sent(apply)).url == f"{PODS_PATH}/p/status?fieldManager=me&force=true"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"patch_type": PatchType.APPLY}, "needs a field_manager"),
        ({"force": True}, "force is for apply patches only, not for MERGE"),
    ],
)
async def test_patches_that_make_no_sense(options, sentence):
    client, transport = client_of(ok())
    with pytest.raises(ValueError, match=sentence):
        await client.patch(PODS, "ns", "p", {}, **options)
    assert transport.requests == []


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        pytest.param({}, {}, id="in the background by default"),
        pytest.param({"uid": "u"}, {"preconditions": {"uid": "u"}}, id="this very object"),
        pytest.param(
            {"uid": "u", "resource_version": "7"},
            {"preconditions": {"uid": "u", "resourceVersion": "7"}},
            id="this very version",
        ),
        pytest.param({"grace_seconds": 0}, {"gracePeriodSeconds": 0}, id="at once"),
        pytest.param({"propagation": "Foreground"}, {"propagationPolicy": "Foreground"}, id="children first"),
    ],
)
async def test_delete(options, extra):
    request = await sent(lambda client: client.delete(PODS, "ns", "p", **options))
    defaults = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert (request.method, request.url, request.body) == ("DELETE", f"{PODS_PATH}/p", defaults | extra)


async def test_a_refusal_is_raised():
    client, transport = client_of(refusal(404, "NotFound", "pods p not found"))
    with pytest.raises(errors.NotFoundError, match="pods p not found"):
        await client.delete(PODS, "ns", "p")
    assert len(transport.requests) == 1


async def test_a_redirect_is_no_success():
    client, _ = client_of(refusal(302))
    with pytest.raises(errors.ApiError, match="responded with 302"):
        await client.get(PODS, "ns", "p")


async def test_an_answer_of_another_kind():
    client, _ = client_of(ok({"spec": "text"}))
    with pytest.raises(errors.UndecodableError, match="not a valid Pod"):
        await client.get(PODS, "ns", "p", type=Pod)


async def test_watch_stream_passes_bytes_and_status():
    client, transport = client_of(ok({"type": "ADDED"}))
    async with client.watch_stream(PODS, "ns", {"resourceVersion": "5"}) as stream:
        assert stream.status == 200
        assert [chunk async for chunk in stream.chunks()] == [b'{"type": "ADDED"}']
    assert transport.requests[0].url == f"{PODS_PATH}?watch=true&resourceVersion=5"


async def test_a_refused_watch_can_be_explained():
    client, _ = client_of(refusal(410, "Expired", "too old"))
    async with client.watch_stream(PODS, None, {}) as stream:
        assert stream.status == 410
        assert type(await error_from_stream(stream)) is errors.GoneError


async def test_log_stream():
    client, transport = client_of(ok())
    async with client.log_stream("ns", "p", query={"container": "main", "follow": "true"}):
        assert transport.requests[0].url == f"{PODS_PATH}/p/log?container=main&follow=true"


@pytest.mark.parametrize(
    ("resource", "path", "answer", "known"),
    [
        pytest.param(PODS, "/api/v1", ok({"resources": [{"name": "pods"}]}), True, id="in the core group"),
        pytest.param(
            LEASES, "/apis/coordination.k8s.io/v1", ok({"resources": []}), False, id="not in its group"
        ),
        pytest.param(WIDGETS, "/apis/example.org/v1", refusal(404), False, id="no such group"),
        pytest.param(
            WIDGETS,
            "/apis/example.org/v1",
            ok({"resources": [{"name": "widgets"}, {"name": "widgets/status"}]}),
            True,
            id="its definition is installed",
        ),
    ],
)
async def test_has_resource(resource, path, answer, known):
    client, transport = client_of(answer)
    assert await client.has_resource(resource) is known
    assert transport.requests[0].url == path


async def test_has_resource_does_not_guess():
    client, _ = client_of(refusal(403))
    with pytest.raises(errors.ForbiddenError):
        await client.has_resource(WIDGETS)


async def test_server_version():
    client, _ = client_of(ok({"major": "1", "minor": "35", "gitVersion": "v1.35.0"}))
    assert await client.server_version() == ServerVersion("1", "35", "v1.35.0")


async def test_leaving_the_client_closes_the_transport():
    client, transport = client_of(ok())
    async with client:
        assert not transport.closed
    assert transport.closed


async def test_every_try_is_observed():
    records = []
    client, _ = client_of(refusal(429, retry_after="0"), ok(POD), observe=records.append)
    await client.patch(PODS, "ns", "p", {}, subresource="status")
    assert [(record.verb, record.resource, record.code) for record in records] == [
        ("patch", "pods/status", 429),
        ("patch", "pods/status", 200),
    ]


@pytest.mark.parametrize(
    ("call", "verb", "resource"),
    [
        (lambda client: client.get(PODS, "ns", "p"), "get", "pods"),
        (lambda client: client.list(PODS), "list", "pods"),
        (lambda client: client.create(CONFIG_MAPS, "ns", {}), "create", "configmaps"),
        (lambda client: client.replace(PODS, "ns", "p", {}), "update", "pods"),
        (lambda client: client.delete(PODS, "ns", "p"), "delete", "pods"),
    ],
)
async def test_verbs_are_those_of_rbac(call, verb, resource):
    records = []
    client, _ = client_of(ok(), observe=records.append)
    await call(client)
    assert [(record.verb, record.resource) for record in records] == [(verb, resource)]


async def test_no_answer_is_observed_as_code_0():
    records = []
    client, _ = client_of(errors.TransportError("reset"), observe=records.append)
    with pytest.raises(errors.TransportError):
        await client.create(PODS, "ns", {})
    assert [record.code for record in records] == [0]


async def test_a_watch_is_observed_when_it_begins():
    records: list[RequestRecord] = []
    client, _ = client_of(refusal(410), observe=records.append)
    async with client.watch_stream(PODS, None, {}):
        assert [(record.verb, record.code) for record in records] == [("watch", 410)]


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(refusal(429), id="429"),
        pytest.param(refusal(503, retry_after="1"), id="503 with Retry-After"),
    ],
)
def test_a_write_refused_before_it_began_is_repeated(trouble):
    async def main():
        client, transport = client_of(trouble, trouble, ok(POD))
        await client.create(PODS, "ns", {})
        return len(transport.requests)

    assert virtual_loop.run(main()) == 3


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        pytest.param(errors.TransportError("reset"), errors.TransportError, id="a lost answer"),
        pytest.param(refusal(503), errors.ServerError, id="503 without Retry-After"),
        pytest.param(refusal(500), errors.ServerError, id="500"),
    ],
)
def test_a_write_of_unknown_outcome_is_not_repeated(trouble, kind):
    async def main():
        client, transport = client_of(trouble, ok(POD))
        with pytest.raises(kind):
            await client.create(PODS, "ns", {})
        return len(transport.requests)

    assert virtual_loop.run(main()) == 1


def test_a_read_survives_lost_connections():
    async def main():
        client, transport = client_of(errors.TransportError("reset"), refusal(503), ok(POD))
        assert await client.get(PODS, "ns", "p") == POD
        return len(transport.requests)

    assert virtual_loop.run(main()) == 3


def test_retry_after_is_honoured_in_virtual_time():
    async def main():
        client, transport = client_of(refusal(429, retry_after="7"), ok(POD))
        await client.create(PODS, "ns", {})
        first, second = transport.requests
        return second.at - first.at

    assert 7 <= virtual_loop.run(main()) <= 10.5


def test_patience_is_bounded_in_tries_and_time():
    async def main():
        client, transport = client_of(refusal(429, retry_after="9"))
        with pytest.raises(errors.TooManyRequestsError) as caught:
            await client.create(PODS, "ns", {})
        assert caught.value.retry_after_seconds == 9
        return transport.requests

    requests = virtual_loop.run(main())
    assert 2 <= len(requests) <= 5
    assert requests[-1].at <= 30
