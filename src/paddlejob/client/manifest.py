"""Reads, changes and checks manifests before they are submitted."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.client.errors import ClientError, InvalidJobError
from paddlejob.kube.resource import CONFIG_MAPS, SECRETS, SERVICES, Resource
from paddlejob.local.errors import InputError

ANNOTATION_RETRY_OF = f"{names.GROUP}/retry-of"
"""On a job that `retry` created: the name of the first job."""

_SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
_BESIDE = {each.kind: each for each in (CONFIG_MAPS, SECRETS, SERVICES, _CLAIMS)}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_GENERATED_LENGTH = 5


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a manifest; none by default."""

    name: str = ""
    generate_name: bool = False
    """Let the API server complete the name, so that the same file can be submitted many times."""
    workers: int | None = None
    ps: int | None = None
    image: str = ""
    """For the training container of every role, as the next two."""
    env: Mapping[str, str] = {}
    args: tuple[str, ...] = ()
    """Replaces `args`; `command` is kept."""


def read(text: str, source: str) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the jobs and the other objects in a YAML or JSON text. Raises InvalidJobError."""
    from paddlejob.local.input import documents  # noqa: PLC0415 - imports yaml

    try:
        found = list(documents.load(text, source))
    except InputError as error:
        raise InvalidJobError(*error.sentences) from error
    jobs = [each for each in found if each.get("kind") == names.KIND]
    if not jobs:
        kinds = ", ".join(sorted({str(each.get("kind")) for each in found}))
        raise InvalidJobError(f"{source} has no {names.KIND}" + (f", only {kinds}" if kinds else ""))
    return jobs, [each for each in found if each.get("kind") != names.KIND]


def dump(objects: list[JsonObject]) -> str:
    """Return objects as a YAML text."""
    import yaml  # noqa: PLC0415 - not everybody changes a file

    return str(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True))


def override(manifest: JsonObject, overrides: Overrides) -> JsonObject:
    """Return a copy with the overrides applied. Raises ClientError for a role that the job does not have."""
    changed = copy.deepcopy(manifest)
    _rename(changed, overrides)
    for role, replicas in ((Role.WORKER, overrides.workers), (Role.PS, overrides.ps)):
        if replicas is not None:
            _role(changed, role)["replicas"] = replicas
    for container in _training_containers(changed):
        if overrides.image:
            container["image"] = overrides.image
        if overrides.args:
            container["args"] = list(overrides.args)
        _set_env(container, overrides.env)
    return changed


def problems(manifest: JsonObject) -> list[str]:
    """Return the errors in a manifest that can be found without a cluster."""
    from paddlejob.api.validation import validate  # noqa: PLC0415 - schemas take long to import
    from paddlejob.local.input import strict  # noqa: PLC0415

    metadata = manifest.get("metadata") if isinstance(manifest.get("metadata"), dict) else {}
    name = name_of(manifest)
    if isinstance(metadata, dict) and not metadata.get("name") and metadata.get("generateName"):
        name += "x" * _GENERATED_LENGTH
    fields = [each for each in strict.field_errors(manifest) if each.field != "metadata.generateName"]
    named: JsonObject = {"namespace": "default", **(metadata or {}), "name": name, "uid": "u"}
    try:
        job = msgspec.convert({**manifest, "metadata": named, "status": {}}, PaddleJob)
    except msgspec.ValidationError as error:
        return [str(each) for each in fields] or [str(error)]
    reported = {each.field for each in fields}
    return [str(each) for each in (*fields, *(each for each in validate(job) if each.field not in reported))]


def check(*jobs: JsonObject) -> None:
    """Raise InvalidJobError with the problems of all jobs."""
    if found := [problem for each in jobs for problem in problems(each)]:
        raise InvalidJobError(*found)


def resource_beside(manifest: JsonObject) -> Resource:
    """Return the resource of another object in a job file. Raises ClientError."""
    kind, name = str(manifest.get("kind")), name_of(manifest)
    if manifest.get("apiVersion") != "v1" or kind not in _BESIDE or not name:
        raise ClientError(
            f"{kind} {name or '(without a name)'}: only {', '.join(_BESIDE)} can be submitted beside a job; "
            "create it with kubectl first"
        )
    return _BESIDE[kind]


def name_of(manifest: JsonObject) -> str:
    """Return the name of an object, or its generateName."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    return str(metadata.get("name") or metadata.get("generateName") or "")


def again(body: JsonObject) -> JsonObject:
    """Return the manifest for a retry of a stored job."""
    manifest = submittable(body)
    metadata = manifest["metadata"]
    annotations = metadata.setdefault("annotations", {})
    first = annotations.setdefault(ANNOTATION_RETRY_OF, metadata.pop("name"))
    metadata["generateName"] = f"{first}-"
    return manifest


def submittable(body: JsonObject) -> JsonObject:
    """Return a stored object without the fields of the API server and controllers, for `kubectl create`."""
    manifest = copy.deepcopy({key: value for key, value in body.items() if key != "status"})
    metadata: JsonObject = manifest["metadata"]
    for field in _SERVER_METADATA:
        metadata.pop(field, None)
    annotations = metadata.pop("annotations", None) or {}
    annotations.pop(_LAST_APPLIED, None)
    if annotations:
        metadata["annotations"] = annotations
    return manifest


def _rename(manifest: JsonObject, overrides: Overrides) -> None:
    metadata = manifest.setdefault("metadata", {})
    if overrides.name:
        metadata.pop("generateName", None)
        metadata["name"] = overrides.name
    if overrides.generate_name and metadata.get("name"):
        metadata["generateName"] = f"{metadata.pop('name')}-"


def _role(manifest: JsonObject, role: Role) -> JsonObject:
    spec = manifest.get("spec")
    found = spec.get(str(role)) if isinstance(spec, dict) else None
    if not isinstance(found, dict):
        raise ClientError(f"{name_of(manifest) or 'the job'} has no spec.{role} to scale")
    return found


def mounted(manifest: JsonObject) -> list[tuple[str, str]]:
    """Return kind and name of the ConfigMaps and Secrets that the pods of a job mount."""
    found: dict[tuple[str, str], None] = {}
    for volume in (each for volumes in _of_pods(manifest, "volumes") for each in volumes):
        for kind, field, key in (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName")):
            source = volume.get(field)
            if isinstance(source, dict) and source.get(key):
                found[kind, str(source[key])] = None
    return list(found)


def _training_containers(manifest: JsonObject) -> Iterator[JsonObject]:
    for containers in _of_pods(manifest, "containers"):
        yield from containers[:1]


def _of_pods(manifest: JsonObject, field: str) -> Iterator[list[JsonObject]]:
    """Yield a list of objects from the pod spec of each role; invalid values are skipped."""
    for role in Role:
        value: Any = manifest.get("spec")
        for key in (str(role), "template", "spec", field):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, list) and all(isinstance(each, dict) for each in value):
            yield value


def _set_env(container: JsonObject, env: Mapping[str, str]) -> None:
    if not env:
        return
    kept = [each for each in container.get("env") or () if each.get("name") not in env]
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in env.items())]
