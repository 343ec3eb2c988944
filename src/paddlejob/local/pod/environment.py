"""A container's environment, resolved as a kubelet does it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

import msgspec

from paddlejob.api import quantity
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.local.input.documents import Contents

KEPT_FROM_HERE = (
    *("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""What a container gets of the environment of whoever started the run; all else would differ on a cluster."""

_VARIABLE_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class ConfigMissingError(Exception):
    """An object that a container's environment refers to does not exist (yet); the text is the kubelet's."""


class Sources(msgspec.Struct, frozen=True):
    """Where the values of a container's variables come from."""

    pod: Pod
    config_map: Callable[[str], Contents | None]
    secret: Callable[[str], Contents | None]
    node_name: str = ""


def base(environ: Mapping[str, str], search_path: str, threads: int) -> dict[str, str]:
    """Return what every container starts from.

    The pods of a job share the cores of one machine, so that each may use only its part of them.
    """
    kept = {name: environ[name] for name in KEPT_FROM_HERE if name in environ}
    return {"LANG": "C.UTF-8", **kept, "PATH": search_path, "OMP_NUM_THREADS": str(threads)}


def resolve(container: JsonObject, sources: Sources) -> dict[str, str]:
    """Return the variables that a container's manifest gives it.

    Raises ConfigMissingError while a ConfigMap or Secret that it needs does not exist.
    """
    values: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        values.update(_from_object(source, sources))
    for variable in container.get("env") or ():
        name, origin = str(variable["name"]), variable.get("valueFrom")
        if origin is None:
            values[name] = expand(str(variable.get("value") or ""), values)
        elif (value := _from_origin(origin, container, sources)) is not None:
            values[name] = value
    return values


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the value of a variable; `$$` is a dollar, and an unknown name stays as it is."""

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return values.get(found[1], found[0])

    return _REFERENCE.sub(replacement, text)


def _from_object(source: JsonObject, sources: Sources) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for field, kind, find in (
        ("configMapRef", "configmap", sources.config_map),
        ("secretRef", "secret", sources.secret),
    ):
        reference = source.get(field)
        if reference is None:
            continue
        contents = find(str(reference.get("name")))
        if contents is None and not reference.get("optional"):
            raise ConfigMissingError(f'{kind} "{reference.get("name")}" not found')
        return {
            f"{prefix}{key}": value.decode(errors="replace")
            for key, value in (contents or {}).items()
            if _VARIABLE_NAME.fullmatch(f"{prefix}{key}")
        }
    return {}


def _from_origin(origin: JsonObject, container: JsonObject, sources: Sources) -> str | None:
    match origin:
        case {"fieldRef": reference}:
            return field(str(reference["fieldPath"]), sources)
        case {"resourceFieldRef": reference}:
            return resource_field(reference, container)
        case {"configMapKeyRef": reference}:
            return _key(reference, "configmap", "ConfigMap", sources.config_map, sources)
        case {"secretKeyRef": reference}:
            return _key(reference, "secret", "Secret", sources.secret, sources)
    raise ConfigMissingError(f"valueFrom has none of the sources that are known here: {', '.join(origin)}")


def _key(
    reference: JsonObject,
    kind: str,
    title: str,
    find: Callable[[str], Contents | None],
    sources: Sources,
) -> str | None:
    name, key = str(reference.get("name")), str(reference.get("key"))
    contents = find(name)
    if contents is not None and key in contents:
        return contents[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    if contents is None:
        raise ConfigMissingError(f'{kind} "{name}" not found')
    namespace = sources.pod.metadata.namespace
    raise ConfigMissingError(f"couldn't find key {key} in {title} {namespace}/{name}")


def field(path: str, sources: Sources) -> str:
    """Return a field of a pod, as the downward API names it."""
    metadata, status = sources.pod.metadata, sources.pod.status
    if found := _SUBSCRIPT.fullmatch(path):
        texts = metadata.labels if found[1] == "labels" else metadata.annotations
        return texts.get(found[2], "")
    values = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "metadata.labels": _lines(metadata.labels),
        "metadata.annotations": _lines(metadata.annotations),
        "spec.nodeName": sources.node_name,
        "spec.serviceAccountName": "default",
        "status.podIP": status.pod_ip,
        "status.podIPs": status.pod_ip,
        "status.hostIP": status.pod_ip,
        "status.hostIPs": status.pod_ip,
    }
    if path not in values:
        raise ConfigMissingError(f"field label not supported: {path}")
    return values[path]


def resource_field(reference: JsonObject, container: JsonObject) -> str:
    """Return a container's request or limit; what it does not limit is this machine's."""
    path = str(reference.get("resource"))
    section, _, name = path.partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(section) or {}).get(name)
    if amount is None and section == "requests":
        amount = (resources.get("limits") or {}).get(name, "0")
    if amount is None:
        amount = _machine_amount(name)
    try:
        return quantity.in_units_of(amount, reference.get("divisor") or "1")
    except ValueError as error:
        raise ConfigMissingError(f"cannot tell {path}: {error}") from error


def _machine_amount(resource: str) -> str:
    if resource == "cpu":
        return str(os.cpu_count() or 1)
    if resource == "memory":
        return str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return "0"


def _lines(texts: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{texts[key]}"' for key in sorted(texts))
