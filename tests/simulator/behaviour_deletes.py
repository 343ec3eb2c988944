"""Deleting: preconditions, grace, finalizers, propagation, garbage collection."""

from __future__ import annotations

import asyncio

from paddlejob.kube.resource import CONFIG_MAPS, NAMESPACES, PODS, SERVICES
from tests.simulator.behaviour import WIDGETS, Api, behaviour, config_map, owner_reference, pod, widget


@behaviour("a delete with another uid or version is a Conflict")
async def _(api: Api) -> None:
    body = (await api.create(PODS, pod("a"))).body
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        answer = await api.delete(PODS, "a", preconditions=wrong)
        assert (answer.code, answer.reason) == (409, "Conflict")
    right = {"uid": body["metadata"]["uid"], "resourceVersion": body["metadata"]["resourceVersion"]}
    assert (await api.delete(PODS, "a", preconditions=right)).code == 200


@behaviour("a delete of what is not there is NotFound")
async def _(api: Api) -> None:
    answer = await api.delete(WIDGETS, "none")
    assert (answer.code, answer.reason) == (404, "NotFound")


@behaviour("a pod without a node goes at once")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    assert (await api.delete(PODS, "a")).body["kind"] == "Pod"
    assert (await api.get(PODS, "a")).code == 404


@behaviour("a pod on a node waits for its kubelet, and its grace can only be shortened")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    await api.bind("a")
    first = await api.delete(PODS, "a")
    assert first.metadata["deletionGracePeriodSeconds"] == 30
    assert first.metadata["generation"] == 2
    longer = await api.delete(PODS, "a", gracePeriodSeconds=60)
    assert longer.version == first.version
    shorter = await api.delete(PODS, "a", gracePeriodSeconds=5)
    assert shorter.metadata["deletionGracePeriodSeconds"] == 5
    assert shorter.metadata["deletionTimestamp"] < first.metadata["deletionTimestamp"]
    await api.delete(PODS, "a", gracePeriodSeconds=0)
    assert (await api.get(PODS, "a")).code == 404


@behaviour("a pod that has ended goes at once, also from a node")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    await api.bind("a")
    await api.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, "status")
    await api.delete(PODS, "a")
    assert (await api.get(PODS, "a")).code == 404


@behaviour("a delete of a config map or custom object answers with a Status, of a service with the service")
async def _(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    uid = (await api.create(WIDGETS, widget("a"))).metadata["uid"]
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}
    await api.create(SERVICES, body)
    assert (await api.delete(CONFIG_MAPS, "a")).body["status"] == "Success"
    assert (await api.delete(WIDGETS, "a")).body["details"]["uid"] == uid
    assert (await api.delete(SERVICES, "a")).body["kind"] == "Service"


@behaviour("an object with finalizers stays until the last is removed, and takes no new ones")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a", finalizers=["a.b/c", "d.e/f"]))
    first = await api.delete(WIDGETS, "a")
    assert first.metadata["deletionTimestamp"]
    assert first.metadata["generation"] == 2
    assert (await api.delete(WIDGETS, "a")).version == first.version
    more = {"metadata": {"finalizers": ["a.b/c", "d.e/f", "x.y/z"]}}
    assert (await api.patch(WIDGETS, "a", more)).fields == {"metadata.finalizers"}
    await api.patch(WIDGETS, "a", {"metadata": {"finalizers": ["d.e/f"]}})
    assert (await api.get(WIDGETS, "a")).code == 200
    assert (await api.patch(WIDGETS, "a", {"metadata": {"finalizers": None}})).code == 200
    assert (await api.get(WIDGETS, "a")).code == 404


@behaviour("a pod with a finalizer outlives its kubelet")
async def _(api: Api) -> None:
    body = pod("a")
    body["metadata"]["finalizers"] = ["a.b/c"]
    await api.create(PODS, body)
    await api.bind("a")
    await api.delete(PODS, "a")
    answer = await api.delete(PODS, "a", gracePeriodSeconds=0)
    assert answer.metadata["deletionGracePeriodSeconds"] == 0
    assert (await api.get(PODS, "a")).code == 200
    await api.patch(PODS, "a", {"metadata": {"finalizers": []}})
    assert (await api.get(PODS, "a")).code == 404


@behaviour("a deletionTimestamp cannot be set by a write")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    answer = await api.patch(WIDGETS, "a", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})
    assert (answer.code, answer.fields) == (422, {"metadata.deletionTimestamp"})


@behaviour("a collection is deleted by label")
async def _(api: Api) -> None:
    for name, label in (("a", "1"), ("b", "2"), ("c", "1")):
        await api.create(CONFIG_MAPS, config_map(name, labels={"x": label}))
    answer = await api.send("DELETE", CONFIG_MAPS, query={"labelSelector": "x=1"})
    assert answer.code == 200
    assert (await api.list(CONFIG_MAPS, labelSelector="x")).names == ["b"]


@behaviour("an eviction deletes the pod")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    assert (await api.send("POST", PODS, "a", body, sub="eviction")).code == 201
    assert (await api.get(PODS, "a")).code == 404


@behaviour("what an owner leaves is collected in the background", controllers=True)
async def _(api: Api) -> None:
    owner = (await api.create(CONFIG_MAPS, config_map("owner"))).body
    child = (await api.create(CONFIG_MAPS, config_map("child", owner))).body
    await api.create(CONFIG_MAPS, config_map("grandchild", child))
    await api.delete(CONFIG_MAPS, "owner", propagationPolicy="Background")
    assert (await api.get(CONFIG_MAPS, "owner")).code == 404
    await api.gone(CONFIG_MAPS, "child")
    await api.gone(CONFIG_MAPS, "grandchild")


@behaviour("an object whose owner's uid never existed is collected", controllers=True)
async def _(api: Api) -> None:
    owner = (await api.create(CONFIG_MAPS, config_map("owner"))).body
    uid = "00000000-0000-4000-8000-000000000000"
    namesake = owner_reference(owner, uid=uid)
    await api.create(CONFIG_MAPS, config_map("child", ownerReferences=[namesake]))
    await api.gone(CONFIG_MAPS, "child")
    assert (await api.get(CONFIG_MAPS, "owner")).code == 200


async def known_to_collector(api: Api) -> None:
    """Wait until the garbage collector, which watches objects, has observed all that exist now.

    It observes ConfigMaps in order, and immediately deletes one with a nonexistent owner.
    """
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "absent", "uid": "no-such-uid"}}
    await api.create(CONFIG_MAPS, config_map("seen-last", absent))
    await api.gone(CONFIG_MAPS, "seen-last")


@behaviour("an object with one owner left stays and loses the reference to the other", controllers=True)
async def _(api: Api) -> None:
    gone = (await api.create(CONFIG_MAPS, config_map("gone"))).body
    stays = (await api.create(CONFIG_MAPS, config_map("stays"))).body
    references = [owner_reference(gone), owner_reference(stays)]
    await api.create(CONFIG_MAPS, config_map("child", ownerReferences=references))
    await known_to_collector(api)
    await api.delete(CONFIG_MAPS, "gone")
    async with asyncio.timeout(30):
        while len((await api.get(CONFIG_MAPS, "child")).metadata["ownerReferences"]) > 1:
            await asyncio.sleep(0.05)
    assert (await api.get(CONFIG_MAPS, "child")).metadata["ownerReferences"][0]["name"] == "stays"


@behaviour("a foreground deletion waits for the dependents that block it", controllers=True)
async def _(api: Api) -> None:
    owner = (await api.create(CONFIG_MAPS, config_map("owner"))).body
    blocking = config_map("child", finalizers=["a.b/c"])
    blocking["metadata"]["ownerReferences"] = [owner_reference(owner, blockOwnerDeletion=True)]
    await api.create(CONFIG_MAPS, blocking)
    await known_to_collector(api)
    answer = await api.delete(CONFIG_MAPS, "owner", propagationPolicy="Foreground")
    assert answer.metadata["finalizers"] == ["foregroundDeletion"]
    async with asyncio.timeout(30):
        while not (await api.get(CONFIG_MAPS, "child")).metadata.get("deletionTimestamp"):
            await asyncio.sleep(0.05)
    assert (await api.get(CONFIG_MAPS, "owner")).code == 200
    await api.patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}})
    await api.gone(CONFIG_MAPS, "owner")


@behaviour("an orphaning deletion leaves the dependents without the reference", controllers=True)
async def _(api: Api) -> None:
    owner = (await api.create(CONFIG_MAPS, config_map("owner"))).body
    await api.create(CONFIG_MAPS, config_map("child", owner))
    await known_to_collector(api)
    answer = await api.delete(CONFIG_MAPS, "owner", propagationPolicy="Orphan")
    assert answer.metadata["finalizers"] == ["orphan"]
    await api.gone(CONFIG_MAPS, "owner")
    assert not (await api.get(CONFIG_MAPS, "child")).metadata.get("ownerReferences")


@behaviour("a namespace that is being deleted takes nothing new and is emptied", controllers=True)
async def _(api: Api) -> None:
    name = f"{api.namespace}-x"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert (await api.create(NAMESPACES, body)).body["status"]["phase"] == "Active"
    held = config_map("held", finalizers=["a.b/c"])
    await api.send("POST", CONFIG_MAPS, None, held, namespace=name)
    assert (await api.delete(NAMESPACES, name)).body["status"]["phase"] == "Terminating"
    answer = await api.send("POST", CONFIG_MAPS, None, config_map("late"), namespace=name)
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    release = {"metadata": {"finalizers": None}}
    await api.send("PATCH", CONFIG_MAPS, "held", release, namespace=name)
    await api.gone(NAMESPACES, name)
