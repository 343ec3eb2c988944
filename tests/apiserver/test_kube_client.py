from __future__ import annotations

import json

import msgspec
import pytest

from paddlejob.kube import errors
from paddlejob.kube.client import Client, PatchType
from paddlejob.kube.decoding import split_lines
from paddlejob.kube.resource import CONFIG_MAPS, LEASES, PODS, Resource
from paddlejob.kube.responses import Written, error_from_stream
from paddlejob.kube.transport.cluster import ExecPlugin, Impersonation, User
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport

REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
WIDGETS = Resource("example.org", "v1", "widgets", "Widget")
V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
async def client(control_plane):
    async with Client(HttpTransport(load_config(control_plane.kubeconfig))) as client:
        yield client


@pytest.fixture
async def config_map(client, namespace):
    body = {"metadata": {"generateName": "test-", "labels": {"app": "test"}}, "data": {"key": "value"}}
    return (await client.create(CONFIG_MAPS, namespace, body)).metadata


def as_user(control_plane, user):
    config = load_config(control_plane.kubeconfig)
    return Client(HttpTransport(msgspec.structs.replace(config, user=user)))


async def who(client):
    return (await client.create(REVIEWS, None, {}, type=dict))["status"]["userInfo"]


async def test_discovery(client, control_plane):
    assert (await client.server_version()).git_version == control_plane.version
    assert [await client.has_resource(kind) for kind in (PODS, LEASES, WIDGETS)] == [True, True, False]


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        (PatchType.MERGE, {"data": {"key": "new"}}),
        (PatchType.STRATEGIC, {"data": {"key": "new"}}),
        (PatchType.JSON, [{"op": "replace", "path": "/data/key", "value": "new"}]),
        (PatchType.APPLY, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "new"}}),
    ],
)
async def test_every_kind_of_patch(client, config_map, patch_type, patch):
    options = {"field_manager": "test", "force": True} if patch_type is PatchType.APPLY else {}
    place = (CONFIG_MAPS, config_map.namespace, config_map.name)
    patched = await client.patch(*place, patch, patch_type=patch_type, type=dict, **options)
    assert patched["data"] == {"key": "new"}
    assert await client.get(*place) == patched


async def test_the_user_agent_names_the_manager_of_fields(client, config_map):
    found = await client.get(CONFIG_MAPS, config_map.namespace, config_map.name)
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["paddlejob"]


async def test_strict_refuses_what_is_otherwise_dropped(client, namespace):
    body = {"metadata": {"generateName": "test-"}, "dato": {}}
    await client.create(CONFIG_MAPS, namespace, body, dry_run=True)
    with pytest.raises(errors.BadRequestError, match='unknown field "dato"'):
        await client.create(CONFIG_MAPS, namespace, body, dry_run=True, strict=True)


REFUSALS = {
    "an object that is missing": (lambda client, place: client.get(*place[:2], "none"), errors.NotFoundError),
    "a name that climbs": (lambda client, place: client.get(*place[:2], "../../nodes"), errors.NotFoundError),
    "another UID": (lambda client, place: client.delete(*place, uid="other"), errors.ConflictError),
    "another version": (
        lambda client, place: client.delete(*place, resource_version="1"),
        errors.ConflictError,
    ),
    "a stale patch": (
        lambda client, place: client.patch(*place, {"metadata": {"resourceVersion": "1"}}),
        errors.ConflictError,
    ),
    "a wrong type": (lambda client, place: client.create(*place[:2], {"data": 5}), errors.BadRequestError),
    "a patch to a wrong type": (lambda client, place: client.patch(*place, {"data": 5}), errors.InvalidError),
    "a name that is taken": (
        lambda client, place: client.create(*place[:2], {"metadata": {"name": place[2]}}),
        errors.AlreadyExistsError,
    ),
}


@pytest.mark.parametrize(("call", "kind"), REFUSALS.values(), ids=REFUSALS)
async def test_refusals(client, config_map, call, kind):
    with pytest.raises(errors.ApiError) as caught:
        await call(client, (CONFIG_MAPS, config_map.namespace, config_map.name))
    assert type(caught.value) is kind


async def test_lists_come_in_pages_and_selections(client, namespace, config_map):
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, namespace, {"metadata": {"name": name, "labels": {"app": "other"}}})
    names, token = [], ""
    while token or not names:
        page = await client.list(CONFIG_MAPS, namespace, limit=1, continue_token=token, type=Written)
        names += [item.metadata.name for item in page.items]
        token = page.metadata.continue_token
    assert {"a", "b", config_map.name} <= set(names)
    selected = await client.list(CONFIG_MAPS, namespace, label_selector="app in (test)", type=Written)
    assert [item.metadata.uid for item in selected.items] == [config_map.uid]
    assert (await client.list(LEASES, namespace)).items == ()


async def test_a_watch_brings_every_change(client, config_map):
    query = {
        "resourceVersion": config_map.resource_version,
        "fieldSelector": f"metadata.name={config_map.name}",
    }
    async with client.watch_stream(
        CONFIG_MAPS, config_map.namespace, query, idle_timeout_seconds=30
    ) as stream:
        lines = split_lines(stream.chunks())
        await client.patch(
            CONFIG_MAPS, config_map.namespace, config_map.name, {"data": {"key": "x" * 500_000}}
        )
        assert (await anext(lines)).startswith(b'{"type":"MODIFIED"')
        await client.delete(CONFIG_MAPS, config_map.namespace, config_map.name, uid=config_map.uid)
        assert (await anext(lines)).startswith(b'{"type":"DELETED"')


async def test_refused_streams_say_why(client, namespace):
    async with client.watch_stream(CONFIG_MAPS, namespace, {"labelSelector": "((("}) as stream:
        assert type(await error_from_stream(stream)) is errors.BadRequestError
    async with client.log_stream(namespace, "none") as stream:
        assert type(await error_from_stream(stream)) is errors.NotFoundError


async def test_impersonation(control_plane):
    jane = Impersonation(user="jane", groups=("a", "b"), extra={"example.org/k": ("v",)})
    async with as_user(control_plane, User(token=control_plane.token, impersonate=jane)) as client:
        found = await who(client)
        assert (found["username"], found["extra"]) == ("jane", {"example.org/k": ["v"]})
        assert {"a", "b"} <= set(found["groups"])
        with pytest.raises(errors.ForbiddenError, match='User "jane" cannot list resource "pods"'):
            await client.list(PODS)


async def test_a_wrong_token(control_plane):
    async with as_user(control_plane, User(token="wrong")) as client:
        with pytest.raises(errors.UnauthorizedError):
            await client.list(PODS)


async def test_an_exec_plugin(control_plane):
    output = json.dumps(
        {"kind": "ExecCredential", "apiVersion": V1, "status": {"token": control_plane.token}}
    )
    plugin = ExecPlugin(api_version=V1, command="echo", args=(output,), interactive_mode="Never")
    async with as_user(control_plane, User(exec_plugin=plugin)) as client:
        assert "system:masters" in (await who(client))["groups"]


async def test_a_token_file_that_rotates(control_plane, tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text("stale")
    async with as_user(control_plane, User(token_file=token_file)) as client:
        with pytest.raises(errors.UnauthorizedError):
            await who(client)
        token_file.write_text(control_plane.token)
        assert "system:masters" in (await who(client))["groups"]
