"""Creating, replacing and patching."""

from __future__ import annotations

from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, LEASES, PODS, SERVICES, Resource
from tests.simulator.behaviour import WIDGETS, Api, behaviour, config_map, owner_reference, pod, widget


@behaviour("a created object gets uid, version, generation and time, and its status is dropped")
async def _(api: Api) -> None:
    for resource, body in ((PODS, pod("a")), (WIDGETS, widget("a"))):
        answer = await api.create(resource, {**body, "status": {"phase": "Failed", "note": "mine"}})
        assert answer.code == 201
        assert answer.metadata["uid"]
        assert answer.metadata["generation"] == 1
        assert answer.metadata["creationTimestamp"].endswith("Z")
        assert answer.metadata["namespace"] == api.namespace
        assert answer.body.get("status", {}).get("note") is None
        assert answer.body.get("status", {}).get("phase") in {None, "Pending"}


@behaviour("a pod gets the defaults that controllers rely on")
async def _(api: Api) -> None:
    spec = (await api.create(PODS, pod("a"))).body["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"


@behaviour("a second object of one name is refused as AlreadyExists")
async def _(api: Api) -> None:
    for resource, body in ((PODS, pod("a")), (WIDGETS, widget("a"))):
        await api.create(resource, body)
        answer = await api.create(resource, body)
        assert (answer.code, answer.reason) == (409, "AlreadyExists")
        assert answer.body["details"]["name"] == "a"


@behaviour("versions increase over all kinds")
async def _(api: Api) -> None:
    first = await api.create(PODS, pod("a"))
    second = await api.create(WIDGETS, widget("a"))
    third = await api.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}})
    assert first.version < second.version < third.version


@behaviour("generateName is completed by five letters")
async def _(api: Api) -> None:
    body = pod("unused")
    body["metadata"] = {"generateName": "made-"}
    names = {(await api.create(PODS, body)).metadata["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) == 10 for name in names)


@behaviour("a create that carries a resourceVersion is an error of the server")
async def _(api: Api) -> None:
    assert (await api.create(WIDGETS, widget("a", resourceVersion="5"))).code == 500


@behaviour("an object in another namespace than the URL's is a bad request")
async def _(api: Api) -> None:
    answer = await api.create(WIDGETS, widget("a", namespace="elsewhere"))
    assert (answer.code, answer.reason) == (400, "BadRequest")


@behaviour("an object in a namespace that does not exist is refused as NotFound")
async def _(api: Api) -> None:
    answer = await api.send("POST", PODS, None, pod("a"), namespace="there-is-none")
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.body["details"]["kind"] == "namespaces"


@behaviour("bad names, labels and owners are refused as Invalid, with the field")
async def _(api: Api) -> None:
    cases = (
        (widget("Bad_Name"), "metadata.name"),
        (widget("a", labels={"x": "y" * 64}), "metadata.labels"),
        (widget("a", labels={"x": "-"}), "metadata.labels"),
        (widget("a", ownerReferences=[{"apiVersion": "v1", "kind": "A", "name": "b", "uid": ""}]), None),
    )
    for body, field in cases:
        answer = await api.create(WIDGETS, body)
        assert (answer.code, answer.reason) == (422, "Invalid"), body
        assert field is None or field in answer.fields


@behaviour("a finalizer needs a qualified name, except on custom objects")
async def _(api: Api) -> None:
    answer = await api.create(CONFIG_MAPS, config_map("a", finalizers=["plain"]))
    assert (answer.code, answer.fields) == (422, {"metadata.finalizers[0]"})
    assert (await api.create(WIDGETS, widget("a", finalizers=["plain"]))).code == 201


@behaviour("an object can have one controller only")
async def _(api: Api) -> None:
    owner = (await api.create(WIDGETS, widget("owner"))).body
    references = [owner_reference(owner, uid=uid, controller=True) for uid in ("1", "2")]
    answer = await api.create(WIDGETS, widget("a", ownerReferences=references))
    assert (answer.code, answer.fields) == (422, {"metadata.ownerReferences"})


@behaviour("a pod without containers, or with two of one name, is refused as Invalid")
async def _(api: Api) -> None:
    twice = [{"name": "main", "image": "i"}, {"name": "main", "image": "i"}]
    for containers, field in (([], "spec.containers"), (twice, "spec.containers[1].name")):
        answer = await api.create(PODS, pod("a", containers=containers))
        assert (answer.code, answer.fields) == (422, {field})


@behaviour("a pod with one host port twice, or an unknown restart policy, is refused as Invalid")
async def _(api: Api) -> None:
    ports = [{"containerPort": 80, "hostPort": 80, "name": "a"}, {"containerPort": 81, "hostPort": 80}]
    container = {"name": "main", "image": "i", "ports": ports}
    answer = await api.create(PODS, pod("a", containers=[container]))
    assert (answer.code, answer.fields) == (422, {"spec.containers[0].ports[1].hostPort"})
    answer = await api.create(PODS, pod("a", restartPolicy="Sometimes"))
    assert (answer.code, answer.fields) == (422, {"spec.restartPolicy"})


@behaviour("unknown fields are refused when asked for, and let through otherwise")
async def _(api: Api) -> None:
    bad = pod("a", containers=[{"name": "main", "image": "i", "imagee": "x"}])
    answer = await api.create(PODS, bad, fieldValidation="Strict")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.containers[0].imagee"' in answer.message
    answer = await api.create(WIDGETS, widget("a", {"sise": "s"}), fieldValidation="Strict")
    assert 'strict decoding error: unknown field "spec.sise"' in answer.message
    assert (await api.create(PODS, bad)).code == 201


@behaviour("a custom object is held to its schema and gets its defaults")
async def _(api: Api) -> None:
    answer = await api.create(WIDGETS, widget("a", {"replicas": -1}))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "spec.replicas" in answer.fields
    assert (await api.create(WIDGETS, widget("a", {}))).body["spec"] == {"size": "m"}


@behaviour("a dry run answers as if, and stores nothing")
async def _(api: Api) -> None:
    assert (await api.create(WIDGETS, widget("a"), dryRun="All")).code == 201
    assert (await api.get(WIDGETS, "a")).code == 404


@behaviour("what is not JSON, or no object of the kind, is a bad request")
async def _(api: Api) -> None:
    path = PODS.path(api.namespace)
    for body in (b"{bad", b"[]", b'{"apiVersion":"v2","kind":"Pod","metadata":{"name":"a"}}'):
        assert (await api.transport.request("POST", path, body=body)).status == 400


@behaviour("unknown resources, objects and subresources are NotFound")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    answer = await api.get(PODS, "none")
    assert (answer.code, answer.message) == (404, 'pods "none" not found')
    assert (await api.get(WIDGETS, "none")).message == 'widgets.behaviour.example.org "none" not found'
    assert (await api.get(CONFIG_MAPS, "a", "status")).code == 404
    assert (await api.get(Resource("", "v1", "nones", "None"), "a")).code == 404
    response = await api.transport.request("GET", "/apis/nobody.example.org/v1")
    assert response.status == 404


@behaviour("a replace with another version is a Conflict, with another uid too")
async def _(api: Api) -> None:
    body = (await api.create(WIDGETS, widget("a"))).body
    stale = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
    other = {**body, "metadata": {**body["metadata"], "uid": "another"}}
    for proposed in (stale, other):
        answer = await api.replace(WIDGETS, "a", proposed)
        assert (answer.code, answer.reason) == (409, "Conflict")


@behaviour("a replace needs a version for custom objects and leases, not for config maps")
async def _(api: Api) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}}
    for resource, body, code in (
        (WIDGETS, widget("a"), 422),
        (LEASES, lease, 422),
        (CONFIG_MAPS, config_map("a"), 200),
    ):
        await api.create(resource, body)
        assert (await api.replace(resource, "a", body)).code == code


@behaviour("a replace of what is not there creates a lease, and nothing else")
async def _(api: Api) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}}
    assert (await api.replace(LEASES, "a", lease)).code == 201
    assert (await api.replace(WIDGETS, "a", widget("a"))).code == 404
    assert (await api.replace(CONFIG_MAPS, "a", config_map("a"))).code == 404


@behaviour("a write of the main resource leaves status alone, and counts in generation")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"status": {"ready": 1}}, "status")
    answer = await api.patch(WIDGETS, "a", {"spec": {"replicas": 3}, "status": {"ready": 9}})
    assert answer.body["status"] == {"ready": 1}
    assert answer.metadata["generation"] == 2
    labelled = await api.patch(WIDGETS, "a", {"metadata": {"labels": {"x": "1"}}})
    assert labelled.metadata["generation"] == 2


@behaviour("a status write of a custom object leaves all else alone, metadata and a wrong uid included")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    patch = {
        "metadata": {"labels": {"x": "1"}, "uid": "wrong"},
        "spec": {"replicas": 9},
        "status": {"ready": 1},
    }
    answer = await api.patch(WIDGETS, "a", patch, "status")
    assert answer.code == 200
    assert answer.body["spec"]["replicas"] == 2
    assert answer.body["status"] == {"ready": 1}
    assert (answer.metadata["generation"], answer.metadata.get("labels")) == (1, None)


@behaviour("a status write of a pod changes labels too, and refuses a wrong uid")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    patch = {"metadata": {"labels": {"x": "1"}}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    answer = await api.patch(PODS, "a", patch, "status")
    assert answer.metadata["labels"] == {"x": "1"}
    assert answer.body["status"]["phase"] == "Running"
    assert not answer.body["spec"].get("nodeName")
    answer = await api.patch(PODS, "a", {"metadata": {"uid": "wrong"}, "status": {}}, "status")
    assert (answer.code, answer.fields) == (422, {"metadata.uid"})


@behaviour("a replace of the status takes the status alone")
async def _(api: Api) -> None:
    body = (await api.create(WIDGETS, widget("a"))).body
    answer = await api.replace(WIDGETS, "a", {**body, "spec": {"replicas": 9}, "status": {"x": 1}}, "status")
    assert (answer.body["spec"]["replicas"], answer.body["status"]) == (2, {"x": 1})


@behaviour("a write that changes nothing gets no new version")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    first = await api.patch(WIDGETS, "a", {"status": {"ready": 1}}, "status")
    again = await api.patch(WIDGETS, "a", {"status": {"ready": 1}}, "status")
    assert again.version == first.version


@behaviour("a patch with another version is a Conflict, with another uid Invalid, with another name bad")
async def _(api: Api) -> None:
    for resource, body in ((PODS, pod("a")), (WIDGETS, widget("a"))):
        await api.create(resource, body)
        answer = await api.patch(resource, "a", {"metadata": {"resourceVersion": "1"}})
        assert (answer.code, answer.reason) == (409, "Conflict")
        answer = await api.patch(resource, "a", {"metadata": {"uid": "another"}})
        assert (answer.code, answer.fields) == (422, {"metadata.uid"})
        assert (await api.patch(resource, "a", {"metadata": {"name": "b"}})).code == 400


@behaviour("a status patch with another version is a Conflict")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    patch = {"metadata": {"resourceVersion": "1"}, "status": {"ready": 1}}
    assert (await api.patch(WIDGETS, "a", patch, "status")).code == 409


@behaviour("a merge patch removes by null and replaces lists")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a", labels={"x": "1", "y": "2"}, finalizers=["a.b/c"]))
    patch = {"metadata": {"labels": {"x": None}, "finalizers": ["d.e/f"]}}
    answer = await api.patch(WIDGETS, "a", patch)
    assert (answer.metadata["labels"], answer.metadata["finalizers"]) == ({"y": "2"}, ["d.e/f"])


@behaviour("a JSON patch adds, removes and tests; a failed test or a missing path is Invalid")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a", labels={"x": "1"}))
    good = [
        {"op": "test", "path": "/metadata/labels/x", "value": "1"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/x"},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ]
    answer = await api.patch(WIDGETS, "a", good, kind="json")
    assert (answer.metadata["labels"], answer.body["spec"]["replicas"]) == ({"a/b": "2"}, 5)
    for bad in (
        {"op": "test", "path": "/spec/replicas", "value": 9},
        {"op": "remove", "path": "/metadata/labels/none"},
        {"op": "replace", "path": "/spec/none/deeper", "value": 1},
    ):
        answer = await api.patch(WIDGETS, "a", [bad], kind="json")
        assert (answer.code, answer.reason) == (422, "Invalid")


@behaviour("a strategic patch merges containers by name, for built-in kinds only")
async def _(api: Api) -> None:
    containers = [{"name": "main", "image": "i"}, {"name": "side", "image": "s"}]
    await api.create(PODS, pod("a", containers=containers))
    patch = {"spec": {"containers": [{"name": "side", "image": "t"}]}}
    answer = await api.patch(PODS, "a", patch, kind="strategic")
    assert [c["image"] for c in answer.body["spec"]["containers"]] == ["i", "t"]
    await api.create(WIDGETS, widget("a"))
    assert (await api.patch(WIDGETS, "a", {}, kind="strategic")).code == 415


@behaviour("a strategic patch merges conditions by type and finalizers by value")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    for kind in ("Ready", "Initialized", "Ready"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        answer = await api.patch(PODS, "a", patch, "status", "strategic")
    assert sorted(c["type"] for c in answer.body["status"]["conditions"]) == ["Initialized", "Ready"]
    for finalizer in ("a.b/c", "d.e/f"):
        patch = {"metadata": {"finalizers": [finalizer]}}
        answer = await api.patch(PODS, "a", patch, kind="strategic")
    assert sorted(answer.metadata["finalizers"]) == ["a.b/c", "d.e/f"]


@behaviour("a pod's spec cannot change, but its image can")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    answer = await api.patch(PODS, "a", {"spec": {"nodeName": "n"}})
    assert (answer.code, answer.fields) == (422, {"spec"})
    patch = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    answer = await api.patch(PODS, "a", patch, kind="strategic")
    assert (answer.code, answer.metadata["generation"]) == (200, 2)


@behaviour("a pod's deadline can be set and lowered, but not raised or removed")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    for seconds, is_valid in ((0, False), (60, True), (61, False), (None, False), (1, True)):
        patch = {"spec": {"activeDeadlineSeconds": seconds}}
        answer = await api.patch(PODS, "a", patch, kind="strategic")
        assert answer.code == (200 if is_valid else 422), seconds
        assert is_valid or answer.fields == {"spec.activeDeadlineSeconds"}
    assert (await api.create(PODS, pod("b", activeDeadlineSeconds=0))).code == 422


@behaviour("a pod without a node can be marked as failed, unless it has changed")
async def _(api: Api) -> None:
    created = await api.create(PODS, pod("a"))
    await api.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}})
    metadata = {"uid": created.metadata["uid"], "resourceVersion": created.metadata["resourceVersion"]}
    patch = {"metadata": metadata, "status": {"phase": "Failed", "reason": "JobEnded"}}
    assert (await api.patch(PODS, "a", patch, "status", "strategic")).code == 409
    del metadata["resourceVersion"]
    answer = await api.patch(PODS, "a", patch, "status", "strategic")
    assert (answer.code, answer.body["status"]["phase"]) == (200, "Failed")


@behaviour("an immutable config map does not change")
async def _(api: Api) -> None:
    await api.create(CONFIG_MAPS, {**config_map("a"), "immutable": True})
    answer = await api.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    assert (answer.code, answer.fields) == (422, {"data"})


@behaviour("a service gets an address, or none when headless, and needs ports unless headless")
async def _(api: Api) -> None:
    def service(name: str, **spec: object) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}

    plain = await api.create(SERVICES, service("a", ports=[{"port": 80}]))
    assert plain.body["spec"]["clusterIP"].startswith("10.")
    headless = await api.create(SERVICES, service("b", clusterIP="None"))
    assert headless.body["spec"]["clusterIP"] == "None"
    assert (await api.create(SERVICES, service("c"))).fields == {"spec.ports"}
    assert (await api.create(SERVICES, service("1c", clusterIP="None"))).fields == {"metadata.name"}
    twice = [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]
    assert (await api.create(SERVICES, service("d", ports=twice))).fields == {"spec.ports[1]"}


@behaviour("an event must be in the namespace of what it is about")
async def _(api: Api) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "elsewhere"},
        "reason": "Because",
        "type": "Normal",
    }
    assert (await api.create(EVENTS, body)).fields == {"involvedObject.namespace"}


@behaviour("the scale subresource shows and sets the replicas")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"status": {"replicas": 1, "selector": "x=y"}}, "status")
    scale = await api.get(WIDGETS, "a", "scale")
    assert scale.body["kind"] == "Scale"
    assert (scale.body["spec"], scale.body["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "x=y"})
    assert (await api.patch(WIDGETS, "a", {"spec": {"replicas": 4}}, "scale")).body["spec"]["replicas"] == 4
    body = (await api.get(WIDGETS, "a")).body
    assert (body["spec"], body["metadata"]["generation"]) == ({"replicas": 4, "size": "m"}, 2)


@behaviour("the scale subresource refuses a stale version and negative replicas")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    scale = (await api.get(WIDGETS, "a", "scale")).body
    stale = {**scale, "metadata": {**scale["metadata"], "resourceVersion": "1"}}
    assert (await api.replace(WIDGETS, "a", stale, "scale")).code == 409
    assert (await api.replace(WIDGETS, "a", {**scale, "spec": {"replicas": 7}}, "scale")).code == 200
    assert (await api.patch(WIDGETS, "a", {"spec": {"replicas": -1}}, "scale")).code == 422


@behaviour("an object without replicas has no scale until one is set")
async def _(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {}))
    assert (await api.get(WIDGETS, "a", "scale")).code == 500
    assert (await api.patch(WIDGETS, "a", {"spec": {"replicas": 4}}, "scale")).code == 200
    assert (await api.get(WIDGETS, "a")).body["spec"]["replicas"] == 4


@behaviour("a binding puts a pod on a node, once")
async def _(api: Api) -> None:
    await api.create(PODS, pod("a"))
    assert (await api.bind("a")).code == 201
    body = (await api.get(PODS, "a")).body
    assert body["spec"]["nodeName"] == "node-1"
    scheduled = [c["status"] for c in body["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert scheduled == ["True"]
    assert (await api.bind("a", "node-2")).code == 409
    assert (await api.bind("none")).code == 404
