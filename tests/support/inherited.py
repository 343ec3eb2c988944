"""Objects as paddle-operator 0.3.5 leaves them in a cluster, to the extent that an upgrade can notice."""

from __future__ import annotations

from typing import Any

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES

FINALIZER = "finalizers.paddlepaddle.org"
IMAGE = "registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1"
PORT = 41234
"""Drawn at random for every job, where ours is always the same."""

Object = dict[str, Any]


def definition() -> Object:
    """Return its definition of PaddleJob: the same name, and a status without conditions or message."""
    counts = {name: {"type": "integer"} for name in ("pending", "starting", "running", "failed", "succeeded")}
    reference = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    role = {"type": "object", "properties": {**counts, "refs": {"type": "array", "items": reference}}}
    status = {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in ("phase", "mode", "elastic")},
            **dict.fromkeys(("ps", "worker", "heter"), role),
            **{name: {"type": "string", "format": "date-time"} for name in ("startTime", "completionTime")},
            "observedGeneration": {"type": "integer"},
        },
    }
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": status}}
    columns = [{"name": "Status", "type": "string", "jsonPath": ".status.phase"}]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    names = {
        "kind": "PaddleJob",
        "listKind": "PaddleJobList",
        "plural": "paddlejobs",
        "singular": "paddlejob",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "paddlejobs.batch.paddlepaddle.org"},
        "spec": {
            "group": "batch.paddlepaddle.org",
            "scope": "Namespaced",
            "names": {**names, "shortNames": ["pdj"]},
            "versions": [version],
        },
    }


def operator() -> list[Object]:
    """Return that of its installation which has the names of ours: an account, its role, and the operator."""
    account = {"kind": "ServiceAccount", "name": "paddle-manager-sa", "namespace": "paddle-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "paddle-manager-role"}
    everything = ["create", "delete", "get", "list", "patch", "update", "watch"]
    container = {
        "name": "manager",
        "image": "registry.baidubce.com/paddlecloud/controller:v0.3.5",
        "imagePullPolicy": "Always",
        "command": ["/manager"],
        "args": ["--leader-elect"],
        "resources": {"limits": {"cpu": "100m", "memory": "300Mi"}},
    }
    labels = {"control-plane": "controller-manager"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    system = {"namespace": "paddle-system"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "paddle-system"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "paddle-manager-sa", **system}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "paddle-manager-role"},
            "rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": everything}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "paddle-manager-rolebinding"},
            "roleRef": role,
            "subjects": [account],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "paddle-controller-manager", "labels": labels, **system},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
    ]


class Inheritance:
    """Creates a job and its objects the way that operator does."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._owner: Object = {}

    async def job(self, roles: dict[str, int], **spec: Any) -> None:
        """Create the job with the finalizer that every job of its gets."""
        container = {"name": "paddle", "image": IMAGE}
        template = {"spec": {"containers": [container]}}
        described = {role: {"replicas": count, "template": template} for role, count in roles.items()}
        body = {
            "apiVersion": PADDLE_JOBS.api_version,
            "kind": PADDLE_JOBS.kind,
            "metadata": {"name": self._name, "finalizers": [FINALIZER]},
            "spec": {**described, **spec},
        }
        made = await self._client.create(PADDLE_JOBS, self._namespace, body)
        self._owner = {
            "apiVersion": PADDLE_JOBS.api_version,
            "kind": PADDLE_JOBS.kind,
            "name": self._name,
            "uid": made.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    async def status(self, **fields: Any) -> None:
        """Write the status."""
        await self._client.patch(
            PADDLE_JOBS, self._namespace, self._name, {"status": fields}, subresource="status"
        )

    async def pod(self, role: str, index: int, status: Object | None = None) -> str:
        """Create a pod, and the service that each pod has in every mode; return the pod's UID."""
        name = f"{self._name}-{role}-{index}"
        container = {
            "name": "paddle",
            "image": IMAGE,
            "env": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "PADDLE_TRAINER_ID", "value": str(index)},
                {"name": "TRAINING_ROLE", "value": "PSERVER" if role == "ps" else "TRAINER"},
            ],
            "envFrom": [{"configMapRef": {"name": self._name}}],
        }
        waiting = {"name": "coord-paddle", "image": "docker.io/library/alpine:3.10", "command": ["sh"]}
        body = {
            "metadata": {
                "name": name,
                "labels": {"paddle-res-name": name, "paddle-res-type": role},
                "annotations": {"paddle-resource": role},
                "ownerReferences": [self._owner],
            },
            "spec": {
                "hostname": name,
                "subdomain": name,
                "restartPolicy": "Never",
                "initContainers": [waiting],
                "containers": [container],
            },
        }
        made = await self._client.create(PODS, self._namespace, body)
        if status is not None:
            await self._client.patch(PODS, self._namespace, name, {"status": status}, subresource="status")
        await self._service(name)
        return made.metadata.uid

    async def _service(self, name: str) -> None:
        ports = [{"name": f"p-{offset}", "port": 36000 + offset} for offset in range(20)]
        spec = {"clusterIP": "None", "selector": {"paddle-res-name": name}, "ports": ports}
        metadata = {"name": name, "ownerReferences": [self._owner]}
        await self._client.create(SERVICES, self._namespace, {"metadata": metadata, "spec": spec})

    async def config(self, **data: str) -> None:
        """Create the ConfigMap, which it never changes again."""
        metadata = {
            "name": self._name,
            "labels": {"paddle-res-name": self._name},
            "ownerReferences": [self._owner],
        }
        everything = {"TRAINER_PORTS_NUM": "20", "PADDLE_PORT": str(PORT), **data}
        await self._client.create(CONFIG_MAPS, self._namespace, {"metadata": metadata, "data": everything})


def running(address: str) -> Object:
    """Return the status of a pod that trains."""
    started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return _status("Running", address, started, ready=True)


def succeeded(address: str) -> Object:
    """Return the status of a pod that is done."""
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:10:00Z"}
    return _status("Succeeded", address, {"terminated": ended}, ready=False)


def killed(address: str) -> Object:
    """Return the status of a pod that ran out of memory."""
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:10:00Z"}
    return _status("Failed", address, {"terminated": ended}, ready=False)


def _status(phase: str, address: str, state: Object, *, ready: bool) -> Object:
    container = {
        "name": "paddle",
        "image": IMAGE,
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }
    return {
        "phase": phase,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "containerStatuses": [container],
    }
