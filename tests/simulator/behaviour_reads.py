"""Lists and watches."""

from __future__ import annotations

from paddlejob.kube.resource import CONFIG_MAPS, PODS
from tests.simulator.behaviour import WIDGETS, Api, behaviour, config_map, pod, widget

STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


@behaviour("a list is in the order of names, and its items have a kind for custom resources only")
async def _(api: Api) -> None:
    for name in ("b", "a"):
        await api.create(PODS, pod(name))
        await api.create(WIDGETS, widget(name))
    pods, widgets = await api.list(PODS), await api.list(WIDGETS)
    assert (pods.names, pods.body["kind"]) == (["a", "b"], "PodList")
    assert "kind" not in pods.body["items"][0]
    assert (widgets.names, widgets.body["kind"]) == (["a", "b"], "WidgetList")
    assert widgets.body["items"][0]["kind"] == "Widget"


@behaviour("label selectors select by equality, sets and existence")
async def _(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", labels={"x": "1", "y": "1"}))
    await api.create(CONFIG_MAPS, config_map("b", labels={"x": "2"}))
    await api.create(CONFIG_MAPS, config_map("c", labels={"z": "1"}))
    for selector, names in {
        "x=1": "a",
        "x==2": "b",
        "x!=1,x": "b",
        "x in (1,2)": "ab",
        "x in (1, 3),y": "a",
        "x notin (1),x": "b",
        "x": "ab",
        "!x,z": "c",
        "x>1": "b",
        "x=1,y=2": "",
    }.items():
        assert "".join((await api.list(CONFIG_MAPS, labelSelector=selector)).names) == names, selector


@behaviour("field selectors select by name and, for pods, by phase and node")
async def _(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(PODS, pod(name))
    await api.bind("b")
    for selector, names in {
        "metadata.name=a": "a",
        "metadata.name!=a": "b",
        "spec.nodeName=": "a",
        "spec.nodeName=node-1,status.phase=Pending": "b",
        "status.phase!=Pending": "",
    }.items():
        assert "".join((await api.list(PODS, fieldSelector=selector)).names) == names, selector


@behaviour("a selector or number that cannot be read is a bad request")
async def _(api: Api) -> None:
    for query in (
        {"labelSelector": "x foo"},
        {"labelSelector": "x in (1"},
        {"fieldSelector": "spec.something=1"},
        {"fieldSelector": "metadata.name"},
        {"limit": "many"},
        {"resourceVersion": "new"},
        {"continue": "!!!"},
    ):
        answer = await api.list(PODS, **query)
        assert (answer.code, answer.reason) == (400, "BadRequest"), query


@behaviour("pages show the state of the first one")
async def _(api: Api) -> None:
    for name in "abcde":
        await api.create(CONFIG_MAPS, config_map(name, labels={"x": "1"}))
    first = await api.list(CONFIG_MAPS, limit="2", labelSelector="x=1")
    assert first.names == ["a", "b"]
    await api.delete(CONFIG_MAPS, "c")
    await api.create(CONFIG_MAPS, config_map("cc", labels={"x": "1"}))
    token = first.metadata["continue"]
    second = await api.list(CONFIG_MAPS, limit="2", labelSelector="x=1", **{"continue": token})
    assert (second.names, second.version) == (["c", "d"], first.version)
    token = second.metadata["continue"]
    third = await api.list(CONFIG_MAPS, limit="2", labelSelector="x=1", **{"continue": token})
    assert (third.names, third.metadata.get("continue", "")) == (["e"], "")


@behaviour("a page counts what remains when nothing selects")
async def _(api: Api) -> None:
    for name in "abc":
        await api.create(WIDGETS, widget(name))
    assert (await api.list(WIDGETS, limit="1")).metadata["remainingItemCount"] == 2


@behaviour("a list of a version shows that version, and of a future one times out")
async def _(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", labels={"x": "1"}))
    await api.delete(CONFIG_MAPS, "a")
    exact = {"resourceVersion": str(created.version), "resourceVersionMatch": "Exact"}
    assert (await api.list(CONFIG_MAPS, labelSelector="x=1", **exact)).names == ["a"]
    # Not of the first version: a list that may be newer need not be.
    later = await api.create(CONFIG_MAPS, config_map("b", labels={"x": "1"}))
    at_least = {"resourceVersion": str(later.version), "resourceVersionMatch": "NotOlderThan"}
    assert (await api.list(CONFIG_MAPS, labelSelector="x=1", **at_least)).names == ["b"]
    answer = await api.list(CONFIG_MAPS, resourceVersion="99999999999")
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@behaviour("a watch from a version sends what came after it")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("before"))
    version = (await api.list(WIDGETS)).metadata["resourceVersion"]
    await api.create(WIDGETS, widget("a"))
    async with api.watch(WIDGETS, resourceVersion=version) as events:
        await api.patch(WIDGETS, "a", {"spec": {"replicas": 5}})
        await api.delete(WIDGETS, "a")
        assert await events.shown(3) == ["ADDED a", "MODIFIED a", "DELETED a"]


@behaviour("a watch without a version sends what is there first")
async def _(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(WIDGETS, widget(name))
    for query in ({}, {"resourceVersion": "0"}):
        async with api.watch(WIDGETS, **query) as events:
            assert sorted(await events.shown(2)) == ["ADDED a", "ADDED b"]


@behaviour("the last event of an object carries the version of its deletion")
async def _(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    async with api.watch(WIDGETS, resourceVersion=str(created.version)) as events:
        await api.delete(WIDGETS, "a")
        [(kind, _, body)] = await events.take(1)
    assert kind == "DELETED"
    assert int(body["metadata"]["resourceVersion"]) > created.version


@behaviour("an object that enters a selector is ADDED, one that leaves it is DELETED as it was")
async def _(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", labels={"x": "1"}))
    version = (await api.create(CONFIG_MAPS, config_map("b", labels={"x": "2"}))).version
    async with api.watch(CONFIG_MAPS, resourceVersion=str(version), labelSelector="x=1") as events:
        await api.patch(CONFIG_MAPS, "b", {"metadata": {"labels": {"x": "1"}}})
        changed = await api.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"x": "2"}}})
        await api.patch(CONFIG_MAPS, "a", {"data": {"key": "unseen"}})
        await api.delete(CONFIG_MAPS, "b")
        seen = await events.take(3)
    assert [f"{kind} {name}" for kind, name, _ in seen] == ["ADDED b", "DELETED a", "DELETED b"]
    left = seen[1][2]["metadata"]
    assert (left["labels"], left["resourceVersion"]) == ({"x": "1"}, str(changed.version))


@behaviour("a deleted pod is seen to be marked before it goes")
async def _(api: Api) -> None:
    version = (await api.create(PODS, pod("a"))).version
    async with api.watch(PODS, resourceVersion=str(version)) as events:
        await api.delete(PODS, "a")
        (marked, _, body), (gone, _, _) = await events.take(2)
    assert (marked, gone) == ("MODIFIED", "DELETED")
    assert body["metadata"]["deletionGracePeriodSeconds"] == 0


@behaviour("a write that changes nothing is not seen by watchers")
async def _(api: Api) -> None:
    version = (await api.create(CONFIG_MAPS, config_map("a"))).version
    async with api.watch(CONFIG_MAPS, resourceVersion=str(version)) as events:
        await api.patch(CONFIG_MAPS, "a", {"data": {"key": "value"}})
        await api.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
        [(_, _, body)] = await events.take(1)
    assert body["data"] == {"key": "other"}


@behaviour("a streaming list sends what is there, then a bookmark that says so, then what happens")
async def _(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(WIDGETS, widget(name))
    async with api.watch(WIDGETS, **STREAMING) as events:
        assert sorted(await events.shown(2)) == ["ADDED a", "ADDED b"]
        [(kind, _, body)] = await events.take(1)
        assert kind == "BOOKMARK"
        assert body["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        created = await api.create(WIDGETS, widget("c"))
        assert await events.shown(1) == ["ADDED c"]
        assert int(body["metadata"]["resourceVersion"]) < created.version


@behaviour("a streaming list must ask for NotOlderThan, and that is for streaming lists only")
async def _(api: Api) -> None:
    for query in ({"sendInitialEvents": "true"}, {"resourceVersionMatch": "NotOlderThan"}):
        async with api.watch(PODS, **query) as events:
            assert events.status == 422


@behaviour("a watch ends after its timeout")
async def _(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    await api.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    version = str(created.version)
    async with api.watch(CONFIG_MAPS, resourceVersion=version, timeoutSeconds="1") as events:
        assert await events.shown(1) == ["MODIFIED a"]
        assert await events.rest() == []


@behaviour("a watch of an unknown resource is refused")
async def _(api: Api) -> None:
    async with api.transport.stream("/api/v1/nones", query={"watch": "true"}) as stream:
        assert stream.status == 404
