"""Defaults that the API server sets on create; only those that clients depend on."""

from __future__ import annotations

from paddlejob.api.meta import JsonObject

_POD_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}


def without_status(body: JsonObject) -> JsonObject:
    """Drop the status that a client sent: only the status subresource writes it."""
    return {key: value for key, value in body.items() if key != "status"}


def new_pod(body: JsonObject) -> JsonObject:
    """Return a pod as it is stored first: defaults filled in, Pending."""
    spec = {**_POD_DEFAULTS, **(body.get("spec") or {})}
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            spec[field] = [{**_CONTAINER_DEFAULTS, **container} for container in spec[field]]
    if spec.get("hostNetwork"):
        spec["containers"] = [_with_host_ports(container) for container in spec.get("containers") or ()]
    return {**body, "spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}}


def new_service(body: JsonObject) -> JsonObject:
    """Return a service as it is stored first; its address is given by the server that stores it."""
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **(body.get("spec") or {})}
    if spec.get("ports"):
        spec["ports"] = [
            {"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec["ports"]
        ]
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    return {**body, "spec": spec, "status": {"loadBalancer": {}}}


def new_namespace(body: JsonObject) -> JsonObject:
    """Return a namespace as it is stored first."""
    metadata = body["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata.get("name", "")}
    return {
        **body,
        "metadata": {**metadata, "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def new_definition(body: JsonObject) -> JsonObject:
    """Return a CustomResourceDefinition that is served immediately."""
    names = body["spec"]["names"]
    names = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List", **names}
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": message}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in body["spec"]["versions"] if version.get("storage")]
    return {
        **body,
        "spec": {"conversion": {"strategy": "None"}, **body["spec"], "names": names},
        "status": {"acceptedNames": names, "conditions": conditions, "storedVersions": stored},
    }


def _with_host_ports(container: JsonObject) -> JsonObject:
    """On the host's network every declared port is a port of the host."""
    ports = container.get("ports")
    if not ports:
        return container
    return {**container, "ports": [{"hostPort": port.get("containerPort"), **port} for port in ports]}
