"""Validates pod templates.

Templates are opaque JSON; the API server checks all their fields when a pod is created. This module checks
the fields that the operator reads or extends, and the most common mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from paddlejob.api import names, quantity
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import Intranet, Role
from paddlejob.api.validation.errors import (
    FieldError,
    describe,
    duplicate,
    entry,
    forbidden,
    invalid,
    is_dns_label,
    kind_errors,
    required,
    unsupported,
    wrong_kind,
)
from paddlejob.api.validation.ports import port_errors, shared_port_errors

MAX_DEPTH = 100
"""Maximum nesting of a template; a pod has about fifteen levels.

Later steps on a template may recurse: encoding, merging, printing.
"""
MAX_BYTES_OF_ALL_PODS = 256 * 2**20
"""Maximum size of all pods of a role, which are rendered, sent and stored."""
MAX_CONTAINERS = 64
MAX_VARIABLES = 1024
MAX_ENTRIES = 256
"""Maximum size of every other list and map that is copied into each pod."""
MAX_ERRORS = 50
"""Maximum number of reported errors in one template; the status has no room for more."""

RESTART_POLICIES = ("Always", "OnFailure", "Never")
POD_IP_SOURCE = "status.podIP"
HOST_NETWORK = "two pods on one node would have the same endpoint; write spec.intranet: Host instead"
"""Ranks that share an endpoint would train separately, and the job would still complete."""


def unworkable_errors(path: str, template: JsonObject, replicas: int) -> Iterator[FieldError]:
    """Yield an error for a template that is too deep or too large; do not check such a template further."""
    if _is_nested_deeper(template, MAX_DEPTH):
        yield FieldError(path, f"Invalid value: nested more than {MAX_DEPTH} levels deep")
        return
    try:
        size = len(msgspec.json.encode(template))
    except (TypeError, ValueError) as error:
        yield FieldError(path, f"Invalid value: cannot be encoded as JSON: {error}")
        return
    total = size * replicas
    if total > MAX_BYTES_OF_ALL_PODS:
        yield FieldError(
            path,
            f"Invalid value: {size} bytes for each of {replicas} pods are {total // 2**20} MiB, at most "
            f"{MAX_BYTES_OF_ALL_PODS // 2**20} MiB are allowed for all pods of a role; put data into the "
            "image, a volume or a ConfigMap, or lower replicas",
        )


def template_errors(
    path: str, template: JsonObject, role: Role, intranet: Intranet, *, allows_host_network: bool
) -> Iterator[FieldError]:
    """Yield the first MAX_ERRORS errors in the template of a role."""
    errors = _template_errors(path, template, role, intranet, allows_host_network=allows_host_network)
    return islice(errors, MAX_ERRORS)


def _template_errors(
    path: str, template: JsonObject, role: Role, intranet: Intranet, *, allows_host_network: bool
) -> Iterator[FieldError]:
    if not template:
        yield required(path, "describe the pods, at least spec.containers")
        return
    yield from _metadata_errors(f"{path}.metadata", template.get("metadata"))
    pod_spec = template.get("spec")
    if pod_spec is None:
        yield required(f"{path}.spec", "describe the pods, at least their containers")
    elif not isinstance(pod_spec, dict):
        yield wrong_kind(f"{path}.spec", pod_spec, dict)
    else:
        yield from _restart_policy_errors(f"{path}.spec.restartPolicy", pod_spec.get("restartPolicy"), role)
        if pod_spec.get("hostNetwork") is True and not allows_host_network:
            yield invalid(f"{path}.spec.hostNetwork", True, HOST_NETWORK)  # noqa: FBT003
        yield from _placement_errors(f"{path}.spec", pod_spec)
        yield from _objects_errors(f"{path}.spec.volumes", pod_spec.get("volumes"))
        yield from _containers_errors(f"{path}.spec", pod_spec, intranet)
        yield from _init_containers_errors(f"{path}.spec.initContainers", pod_spec.get("initContainers"))


def _is_nested_deeper(value: Any, limit: int) -> bool:
    """Return, without recursion, whether a value has more than `limit` levels."""
    level = [value]
    for _ in range(limit):
        children = (child for each in level for child in _children(each))
        level = list({id(child): child for child in children if isinstance(child, (dict, list))}.values())
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _metadata_errors(path: str, metadata: Any) -> Iterator[FieldError]:
    yield from kind_errors(path, metadata, dict)
    if not isinstance(metadata, dict):
        return
    yield from kind_errors(f"{path}.finalizers", metadata.get("finalizers"), list, limit=MAX_ENTRIES)
    for field in ("labels", "annotations"):
        yield from _text_map_errors(f"{path}.{field}", metadata.get(field))


def _text_map_errors(path: str, texts: Any) -> Iterator[FieldError]:
    yield from kind_errors(path, texts, dict, limit=MAX_ENTRIES)
    for key, value in texts.items() if isinstance(texts, dict) else ():
        if not isinstance(value, str):
            yield _not_text(entry(path, key), value)


def _placement_errors(path: str, pod_spec: JsonObject) -> Iterator[FieldError]:
    """Check the fields that gang schedulers read or extend."""
    yield from kind_errors(f"{path}.schedulerName", pod_spec.get("schedulerName"), str)
    yield from _text_map_errors(f"{path}.nodeSelector", pod_spec.get("nodeSelector"))
    yield from kind_errors(f"{path}.tolerations", pod_spec.get("tolerations"), list, limit=MAX_ENTRIES)
    yield from _resources_errors(f"{path}.resources", pod_spec.get("resources"))
    yield from _amounts_errors(f"{path}.overhead", pod_spec.get("overhead"))


def _restart_policy_errors(path: str, policy: Any, role: Role) -> Iterator[FieldError]:
    if policy is None:
        return
    if policy not in RESTART_POLICIES:
        yield unsupported(path, policy, ("OnFailure", "Never"))
    elif policy == "Always" and role is not Role.PS:
        yield invalid(
            path,
            policy,
            f"must be OnFailure or Never: otherwise a {role} that succeeded would be restarted, "
            "and the job would never complete",
        )


def _containers_errors(path: str, pod_spec: JsonObject, intranet: Intranet) -> Iterator[FieldError]:
    containers = pod_spec.get("containers")
    here = f"{path}.containers"
    if not containers:
        yield required(here, "give at least one container, with a name and an image")
        return
    if not isinstance(containers, list):
        yield wrong_kind(here, containers, list)
        return
    yield from kind_errors(here, containers, list, limit=MAX_CONTAINERS)
    seen: set[str] = set()
    for index, container in enumerate(containers):
        yield from _container_errors(f"{here}[{index}]", container, seen)
    if isinstance(containers[0], dict):
        yield from _training_container_errors(f"{here}[0]", containers[0])
    yield from shared_port_errors(here, containers, on_host_network=intranet is Intranet.HOST)


def _init_containers_errors(path: str, containers: Any) -> Iterator[FieldError]:
    """Check only the resources of init containers, which gangs count; the API server checks the rest."""
    yield from kind_errors(path, containers, list, limit=MAX_CONTAINERS)
    for index, container in enumerate(containers) if isinstance(containers, list) else ():
        here = f"{path}[{index}]"
        yield from kind_errors(here, container, dict, may_be_empty=False)
        if isinstance(container, dict):
            yield from _resources_errors(f"{here}.resources", container.get("resources"))


def _container_errors(path: str, container: Any, seen: set[str]) -> Iterator[FieldError]:
    if not isinstance(container, dict):
        yield wrong_kind(path, container, dict)
        return
    name, image = container.get("name"), container.get("image")
    if name is None:
        yield required(f"{path}.name", "name the container, for example paddle")
    elif not isinstance(name, str) or not is_dns_label(name):
        yield invalid(
            f"{path}.name",
            name,
            "must be at most 63 lower-case letters, digits and '-', with a letter or digit at both ends",
        )
    elif name in seen:
        yield duplicate(f"{path}.name", name, "another container has this name")
    else:
        seen.add(name)
    if image is None:
        yield required(f"{path}.image", "name the image to run")
    elif not isinstance(image, str) or not image.strip():
        yield invalid(f"{path}.image", image, "must be the name of an image")
    yield from port_errors(f"{path}.ports", container.get("ports"))
    yield from _resources_errors(f"{path}.resources", container.get("resources"))


def _training_container_errors(path: str, container: JsonObject) -> Iterator[FieldError]:
    """Check the fields that the operator extends in the first container."""
    yield from kind_errors(f"{path}.envFrom", container.get("envFrom"), list, limit=MAX_ENTRIES)
    yield from _objects_errors(f"{path}.volumeMounts", container.get("volumeMounts"))
    yield from kind_errors(f"{path}.securityContext", container.get("securityContext"), dict)
    env = container.get("env")
    yield from kind_errors(f"{path}.env", env, list, limit=MAX_VARIABLES)
    for index, variable in enumerate(env) if isinstance(env, list) else ():
        yield from _variable_errors(f"{path}.env[{index}]", variable)


def _variable_errors(path: str, variable: Any) -> Iterator[FieldError]:
    if not isinstance(variable, dict):
        yield wrong_kind(path, variable, dict)
        return
    name, value = variable.get("name"), variable.get("value")
    if not isinstance(name, str) or not name:
        yield required(f"{path}.name", "name the variable")
    elif name in names.PROTECTED_ENV and not _is_own_pod_ip(variable):
        yield forbidden(path, f"{name} is set by the operator for every pod; remove it")
    if value is not None and not isinstance(value, str):
        yield _not_text(f"{path}.value", value)


def _is_own_pod_ip(variable: JsonObject) -> bool:
    """Return whether a variable is POD_IP from the pod's status, as in many guides.

    It is allowed because the operator sets the same value, or the pod's host name if the job uses names.
    """
    source = variable.get("valueFrom")
    reference = source.get("fieldRef") if isinstance(source, dict) else None
    field = reference.get("fieldPath") if isinstance(reference, dict) else None
    return variable["name"] == Env.POD_IP and field == POD_IP_SOURCE


def _resources_errors(path: str, resources: Any) -> Iterator[FieldError]:
    yield from kind_errors(path, resources, dict)
    if not isinstance(resources, dict):
        return
    for field in ("requests", "limits"):
        yield from _amounts_errors(f"{path}.{field}", resources.get(field))
    yield from _objects_errors(f"{path}.claims", resources.get("claims"))


def _objects_errors(path: str, entries: Any) -> Iterator[FieldError]:
    """Check a list of objects."""
    yield from kind_errors(path, entries, list, limit=MAX_ENTRIES)
    for index, each in enumerate(entries) if isinstance(entries, list) else ():
        yield from kind_errors(f"{path}[{index}]", each, dict, may_be_empty=False)


def _amounts_errors(path: str, amounts: Any) -> Iterator[FieldError]:
    yield from kind_errors(path, amounts, dict, limit=MAX_ENTRIES)
    for resource, amount in amounts.items() if isinstance(amounts, dict) else ():
        yield from quantity_errors(entry(path, resource), amount)


def quantity_errors(path: str, amount: Any) -> Iterator[FieldError]:
    try:
        quantity.parse(amount)
    except ValueError:
        yield invalid(path, amount, "must be a quantity such as 2, 500m or 4Gi")


def _not_text(path: str, value: Any) -> FieldError:
    if isinstance(value, (dict, list)) or value is None:
        return invalid(path, value, "must be text")
    return invalid(path, value, f'must be text; put it in quotes: "{describe(value)}"')
