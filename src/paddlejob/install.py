"""Installs the operator: renders its manifests, applies them, and waits until the operator runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec

import paddlejob
from paddlejob import bundle
from paddlejob.api.meta import JsonObject, View
from paddlejob.client.errors import ClientError, WaitTimeoutError
from paddlejob.kube import errors
from paddlejob.kube.client import Client, PatchType
from paddlejob.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)

NAMESPACE = "paddle-system"
IMAGE = f"paddlejob-operator:{paddlejob.__version__}"
CRD = "crd.yaml"
FIELD_MANAGER = "paddlejob-install"
_RBAC = "rbac.authorization.k8s.io"
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
RESOURCES = {
    resource.kind: resource
    for resource in (
        CUSTOM_RESOURCE_DEFINITIONS,
        NAMESPACES,
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(_RBAC, "v1", "roles", "Role"),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
        DEPLOYMENTS,
        SERVICES,
        SECRETS,
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    )
}
"""The resource types of an installation."""
_POLL_SECONDS = 0.5


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an installation."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    namespaced: bool = False
    """Whether the operator manages only its own namespace, without cluster-wide permissions."""
    replicas: int = 1
    crd: bool = True
    """Whether to install the CRD, which requires a cluster administrator."""
    dashboard: bool = False
    """Whether to install the dashboard; see docs/dashboard.md."""


def manifests(options: Options) -> str:
    """Return the objects as YAML, in order of creation."""
    changes = {
        rf"\b{NAMESPACE}\b": options.namespace,
        rf"(?<=^          image: ){re.escape(IMAGE)}$": options.image,
    }
    replicas = {r"(?<=^  replicas: )1$": str(options.replicas)}
    operator = "operator-namespaced.yaml" if options.namespaced else "operator.yaml"
    parts = [_read(CRD)] if options.crd else []
    parts.append(_substitute(operator, changes | replicas))
    if options.dashboard:
        parts.append(_substitute("dashboard.yaml", changes))
    return "---\n".join(parts)


def _substitute(name: str, changes: Mapping[str, str]) -> str:
    changed = _read(name)
    for pattern, value in changes.items():
        changed, count = re.subn(pattern, value.replace("\\", ""), changed, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{pattern!r} does not match anything in {name}")
    return changed


def _read(name: str) -> str:
    return bundle.folder(bundle.MANIFESTS).joinpath(name).read_text()


class _Metadata(View, frozen=True):
    resource_version: str = ""
    generation: int = 0


class _Stored(View, frozen=True):
    metadata: _Metadata = _Metadata()


class _Spec(View, frozen=True):
    replicas: int = 1


class _Rollout(View, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0


class _Deployment(View, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Rollout = _Rollout()

    @property
    def is_rolled_out(self) -> bool:
        """Whether `kubectl rollout status` would report success."""
        seen, wanted = self.status, self.spec.replicas
        is_current = seen.observed_generation >= self.metadata.generation
        return is_current and seen.updated_replicas == seen.replicas == seen.available_replicas == wanted


async def apply(
    client: Client, objects: Iterable[JsonObject], *, force: bool, dry_run: bool
) -> AsyncIterator[str]:
    """Apply each object, and yield the outcome.

    Raises ClientError if another manager owns a field, unless `force` is set.
    """
    for body in objects:
        resource = RESOURCES[body["kind"]]
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        before = await _version(client, resource, namespace, name)
        try:
            after = await client.patch(
                resource,
                namespace,
                name,
                body,
                patch_type=PatchType.APPLY,
                field_manager=FIELD_MANAGER,
                force=force,
                dry_run=dry_run,
                type=_Stored,
            )
        except errors.ConflictError as error:
            raise ClientError(f"{error}; use --force-conflicts to take over the fields") from error
        except errors.NotFoundError:
            if not (dry_run and namespace):
                raise
            yield f"{resource.plural}/{name} not checked: namespace {namespace} does not exist yet"
        else:
            outcome = _outcome(before, after.metadata.resource_version)
            yield f"{resource.plural}/{name} {'accepted (server dry run)' if dry_run else outcome}"


def _outcome(before: str, after: str) -> str:
    if not before:
        return "created"
    return "unchanged" if after == before else "changed"


async def _version(client: Client, resource: Resource, namespace: str | None, name: str) -> str:
    try:
        return (await client.get(resource, namespace, name, type=_Stored)).metadata.resource_version
    except errors.NotFoundError:
        return ""


async def await_operator(client: Client, namespace: str, name: str, seconds: float) -> None:
    """Wait until the operator's pods are available. Raises WaitTimeoutError with the cause."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if (await client.get(DEPLOYMENTS, namespace, name, type=_Deployment)).is_rolled_out:
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        pods = await client.list(PODS, namespace, label_selector="control-plane=controller-manager")
        causes = dict.fromkeys(each for pod in pods.items for each in _causes_of_waiting(pod))
        raise WaitTimeoutError(
            f"the operator is not running after {seconds:g}s: {'; '.join(causes) or 'no pod was created'}; "
            f"`kubectl -n {namespace} describe deployment {name}` shows more"
        ) from None


def _causes_of_waiting(pod: JsonObject) -> list[str]:
    """Return why a pod is not ready, from the kubelet's or the scheduler's message."""
    status: JsonObject = pod.get("status", {})
    found: list[Any] = [each.get("state", {}).get("waiting") for each in status.get("containerStatuses", ())]
    found += [each for each in status.get("conditions", ()) if each.get("status") == "False"]
    reasons = [": ".join(filter(None, (each.get("reason"), each.get("message")))) for each in found if each]
    return [f"pod {pod['metadata']['name']}: {reasons[0]}"] if reasons else []
