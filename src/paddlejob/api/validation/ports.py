"""Checks the ports of a template's containers: numbers, unique names, and conflicts on the node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from paddlejob.api.meta import JsonObject
from paddlejob.api.validation.errors import FieldError, duplicate, invalid, kind_errors, required

MAX_PORTS = 256
_PORTS = range(1, 65536)
_NAME_MAX = 15
_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
"""Valid port names (RFC 6335)."""


def port_errors(path: str, ports: Any) -> Iterator[FieldError]:
    """Yield the errors in the ports of one container."""
    yield from kind_errors(path, ports, list, limit=MAX_PORTS)
    names: dict[str, str] = {}
    for index, port in enumerate(ports) if isinstance(ports, list) else ():
        here = f"{path}[{index}]"
        yield from kind_errors(here, port, dict, may_be_empty=False)
        if isinstance(port, dict):
            yield from _number_errors(here, port)
            yield from _name_errors(here, port.get("name"), names)


def shared_port_errors(path: str, containers: list[Any], *, on_host_network: bool) -> Iterator[FieldError]:
    """Yield the port conflicts between the containers of a pod."""
    check = _host_network_errors if on_host_network else _host_port_errors
    yield from check(path, containers)


def declared_ports(template: JsonObject) -> frozenset[int]:
    """Return all ports in a template, which may be invalid."""
    pod_spec = template.get("spec")
    if not isinstance(pod_spec, dict):
        return frozenset()
    lists = [pod_spec.get(field) for field in ("containers", "initContainers")]
    ports = [port for each in lists if isinstance(each, list) for _, port in _declared(each, "")]
    numbers = [port.get(field) for port in ports for field in ("containerPort", "hostPort")]
    return frozenset(number for number in numbers if _is_port(number))


def _number_errors(path: str, port: JsonObject) -> Iterator[FieldError]:
    for field in ("containerPort", "hostPort"):
        number = port.get(field)
        if not _is_port(number) and not (field == "hostPort" and _is_unset(number)):
            here = f"{path}.{field}"
            missing = required(here, "must be between 1 and 65535")
            yield missing if number is None else invalid(here, number, "must be between 1 and 65535")


def _name_errors(path: str, name: Any, holders: dict[str, str]) -> Iterator[FieldError]:
    """Check a port's name, which must be unique within the container but not within the pod."""
    if name is None or name == "":
        return
    if not isinstance(name, str) or len(name) > _NAME_MAX or not _NAME.fullmatch(name):
        yield invalid(
            f"{path}.name",
            name,
            f"must be at most {_NAME_MAX} lower-case letters, digits and single '-' between them, with at "
            "least one letter",
        )
    elif (holder := holders.setdefault(name, path)) != path:
        yield duplicate(f"{path}.name", name, f"also used by {holder}")


def _host_port_errors(path: str, containers: list[Any]) -> Iterator[FieldError]:
    """Check that a pod uses each host port only once."""
    taken: dict[tuple[int, str, str], str] = {}
    for here, port in _declared(containers, path):
        number = port.get("hostPort")
        if not _is_port(number):
            continue
        holder = taken.setdefault((number, _protocol(port), str(port.get("hostIP") or "")), here)
        if holder != here:
            yield duplicate(f"{here}.hostPort", number, f"also used by {holder}")


def _host_network_errors(path: str, containers: list[Any]) -> Iterator[FieldError]:
    """Check the ports of a pod on the host network: container ports are host ports there."""
    taken: dict[tuple[int, str], str] = {}
    for here, port in _declared(containers, path):
        number, host_port = port["containerPort"], port.get("hostPort")
        if host_port != number and not _is_unset(host_port):
            yield invalid(
                f"{here}.hostPort",
                host_port,
                f"must be the containerPort {number} with intranet Host; remove it",
            )
        holder = taken.setdefault((number, _protocol(port)), here)
        if holder != here:
            yield duplicate(
                f"{here}.containerPort",
                number,
                f"also used by {holder}; with intranet Host remove one of them",
            )


def _declared(containers: list[Any], path: str) -> Iterator[tuple[str, JsonObject]]:
    for index, container in enumerate(containers):
        ports = container.get("ports") if isinstance(container, dict) else None
        for position, port in enumerate(ports) if isinstance(ports, list) else ():
            if isinstance(port, dict) and _is_port(port.get("containerPort")):
                yield f"{path}[{index}].ports[{position}]", port


def _protocol(port: JsonObject) -> str:
    return str(port.get("protocol") or "TCP")


def _is_unset(number: Any) -> bool:
    """Return whether a port is absent; Kubernetes treats 0 as absent."""
    return number is None or (number == 0 and not isinstance(number, bool))


def _is_port(number: Any) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and number in _PORTS
