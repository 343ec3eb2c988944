"""Variables of the user's own that concern the whole job: refused where they surely break it.

Most variables are the user's to set, and win over the operator's. Those checked here would leave a job
waiting forever without a reason. Only values that are written out are checked, not those of a ConfigMap.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import Mode, Role
from paddlejob.api.validation.errors import FieldError, describe, forbidden

_JUDGED = (Env.MASTER, Env.WITH_GLOO, Env.GLOO_RENDEZVOUS)
_GLOO_ON = ("1", "2")
_LAUNCHERS = ("paddle.distributed.launch", "paddle.distributed.fleet.launch", "fleetrun")


class _Variable(msgspec.Struct, frozen=True):
    path: str
    value: Any
    """None where it is taken from elsewhere."""


def env_errors(spec: EffectiveSpec) -> Iterator[FieldError]:
    """Yield the variables with which a job's pods would never connect."""
    env = {role: _env(f"spec.{role}.template", each.template) for role, each in spec.roles}
    if spec.mode is Mode.COLLECTIVE and not _is_launched(dict(spec.roles)[Role.WORKER].template):
        yield from _master_errors(env[Role.WORKER])
    if Role.PS in env:
        yield from _lone_gloo_errors(env) if spec.with_gloo == 0 else _split_gloo_errors(env)


def _master_errors(env: dict[str, _Variable]) -> Iterator[FieldError]:
    """The master is one for all workers; it may be anywhere but in each of them."""
    master = env.get(Env.MASTER)
    if master is not None and isinstance(master.value, str) and _is_own_host(master.value):
        yield forbidden(
            master.path,
            f"{Env.MASTER} {describe(master.value)} is a loopback address, so each worker would be its own "
            "master; remove it, or name a host that all workers can reach",
        )


def _lone_gloo_errors(env: dict[Role, dict[str, _Variable]]) -> Iterator[FieldError]:
    """Gloo that is off has no place to meet at, unless the user names one of another kind."""
    for variables in env.values():
        gloo, rendezvous = variables.get(Env.WITH_GLOO), variables.get(Env.GLOO_RENDEZVOUS)
        has_other_place = rendezvous is not None and rendezvous.value != names.GLOO_RENDEZVOUS_HTTP
        if gloo is not None and gloo.value in _GLOO_ON and not has_other_place:
            yield forbidden(
                gloo.path,
                f"{Env.WITH_GLOO} {describe(gloo.value)} has no rendezvous endpoint while spec.withGloo is "
                "0; remove it, or set spec.withGloo to 1",
            )


def _split_gloo_errors(env: dict[Role, dict[str, _Variable]]) -> Iterator[FieldError]:
    """Servers and workers meet before they do anything else: all of them, or none."""
    partners = {role: env[role].get(Env.WITH_GLOO) for role in (Role.PS, Role.WORKER) if role in env}
    absent = {role: gloo for role, gloo in partners.items() if gloo and gloo.value not in _GLOO_ON}
    if len(absent) == len(partners) or any(gloo.value is None for gloo in absent.values()):
        return
    for role, gloo in absent.items():
        yield forbidden(
            gloo.path,
            f"{Env.WITH_GLOO} {describe(gloo.value)} for the {role} alone makes the others wait forever; "
            "remove it, or set spec.withGloo to 0",
        )


def _env(path: str, template: JsonObject) -> dict[str, _Variable]:
    """Return the judged variables of a template's training container."""
    listed = _training_container(template).get("env")
    return {
        each["name"]: _Variable(f"{path}.spec.containers[0].env[{index}]", each.get("value"))
        for index, each in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and each.get("name") in _JUDGED
    }


def _is_launched(template: JsonObject) -> bool:
    """Tell whether Paddle's launcher is seen to start the program: it goes by the endpoints alone."""
    container = _training_container(template)
    command = f"{container.get('command')} {container.get('args')}"
    return any(launcher in command for launcher in _LAUNCHERS)


def _training_container(template: JsonObject) -> JsonObject:
    """Return a template's first container, whatever else may be wrong with it."""
    pod_spec = template.get("spec")
    containers = pod_spec.get("containers") if isinstance(pod_spec, dict) else None
    first = containers[0] if isinstance(containers, list) and containers else None
    return first if isinstance(first, dict) else {}


def _is_own_host(endpoint: str) -> bool:
    """Tell whether an address, with or without a scheme and a port, leads back to whoever uses it."""
    host = endpoint.rpartition("://")[2]
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    if host.casefold() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
