"""Rejects environment variables that would certainly break a job.

Users may set most variables, and these override the operator's. The variables checked here would make a job
wait forever without a reason. Only literal values are checked, not those from a ConfigMap.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec, is_launched, training_container
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import Mode, Role
from paddlejob.api.validation.errors import FieldError, describe, forbidden

_TORCH_MASTER = (Env.MASTER_ADDR, Env.MASTER_PORT)
_CHECKED = (
    Env.MASTER,
    Env.WITH_GLOO,
    Env.GLOO_RENDEZVOUS,
    Env.GLOO_FS_PATH,
    Env.LAUNCH_WITH_ARGS,
    *_TORCH_MASTER,
)
_GLOO_ON = ("1", "2")


class _Variable(msgspec.Struct, frozen=True):
    path: str
    value: Any
    """None if the variable has a valueFrom."""


def env_errors(spec: EffectiveSpec) -> Iterator[FieldError]:
    """Yield errors for variables that prevent a job's pods from connecting."""
    env = {role: _env(f"spec.{role}.template", each.template) for role, each in spec.roles}
    if spec.mode is Mode.COLLECTIVE and not is_launched(dict(spec.roles)[Role.WORKER].template):
        yield from _master_errors(env[Role.WORKER])
    if spec.mode is Mode.COLLECTIVE:
        yield from _launcher_errors(env[Role.WORKER])
    if Role.PS in env:
        yield from _no_endpoint_errors(env) if spec.with_gloo == 0 else _one_sided_gloo_errors(env)
    if spec.gloo_on_servers:
        for role, each in spec.roles:
            yield from _gloo_path_errors(env[role], each.template)


def _master_errors(env: dict[str, _Variable]) -> Iterator[FieldError]:
    """All workers need the same master, so it must not be a loopback address."""
    master = env.get(Env.MASTER)
    if master is not None and isinstance(master.value, str) and _is_own_host(master.value):
        yield forbidden(
            master.path,
            f"{Env.MASTER} {describe(master.value)} is a loopback address, so each worker would be its own "
            "master; remove it, or name a host that all workers can reach",
        )


def _launcher_errors(env: dict[str, _Variable]) -> Iterator[FieldError]:
    """With this variable, the launcher of Paddle 3.3 ignores the master and waits for peers without one."""
    given = env.get(Env.LAUNCH_WITH_ARGS)
    if given is not None and given.value not in (None, "", "0"):
        yield forbidden(
            given.path,
            f"{Env.LAUNCH_WITH_ARGS} {describe(given.value)} makes each launcher its own master, so "
            "the workers would wait for each other forever; remove it",
        )


def master_warning(spec: EffectiveSpec) -> str:
    """Return a warning if a template has the variables of a master that Paddle prefers to the job's own."""
    if spec.mode is not Mode.COLLECTIVE:
        return ""
    env = _env(f"spec.{Role.WORKER}.template", dict(spec.roles)[Role.WORKER].template)
    given = next((env[name] for name in _TORCH_MASTER if name in env), None)
    if given is None:
        return ""
    return (
        f"{given.path}: Paddle prefers {Env.MASTER_ADDR} and {Env.MASTER_PORT} to {Env.MASTER}, which the "
        "operator sets; remove both"
    )


def _no_endpoint_errors(env: dict[Role, dict[str, _Variable]]) -> Iterator[FieldError]:
    """Without spec.withGloo there is no HTTP rendezvous; the user may set another kind."""
    for variables in env.values():
        gloo, rendezvous = variables.get(Env.WITH_GLOO), variables.get(Env.GLOO_RENDEZVOUS)
        has_other_kind = rendezvous is not None and rendezvous.value != names.GLOO_RENDEZVOUS_HTTP
        if gloo is not None and gloo.value in _GLOO_ON and not has_other_kind:
            yield forbidden(
                gloo.path,
                f"{Env.WITH_GLOO} {describe(gloo.value)} has no rendezvous endpoint while spec.withGloo is "
                "0; remove it, or set spec.withGloo to 1",
            )


def _one_sided_gloo_errors(env: dict[Role, dict[str, _Variable]]) -> Iterator[FieldError]:
    """Servers and workers start with a common barrier, so all or none of them must use gloo."""
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


def _gloo_path_errors(env: dict[str, _Variable], template: JsonObject) -> Iterator[FieldError]:
    """Pods that use different directories wait for each other for an hour."""
    path, rendezvous = env[Env.GLOO_FS_PATH], env.get(Env.GLOO_RENDEZVOUS)
    is_directory = rendezvous is None or rendezvous.value == names.GLOO_RENDEZVOUS_FILE
    if not is_directory or not isinstance(path.value, str) or "$(" in path.value:
        return
    if not any(PurePosixPath(path.value).is_relative_to(mount) for mount in _shared_mounts(template)):
        yield forbidden(
            path.path,
            f"{Env.GLOO_FS_PATH} {describe(path.value)} is not on a volume that all pods share; mount a "
            "persistentVolumeClaim there in both templates, or set spec.withGloo to 1",
        )


def _shared_mounts(template: JsonObject) -> Iterator[str]:
    """Yield the mount paths of the training container, except those of emptyDirs."""
    volumes, mounts = template["spec"].get("volumes"), training_container(template).get("volumeMounts")
    private = [
        each.get("name")
        for each in (volumes if isinstance(volumes, list) else ())
        if isinstance(each, dict) and ("emptyDir" in each or each.keys() <= {"name"})
    ]
    for each in mounts if isinstance(mounts, list) else ():
        if isinstance(each, dict) and each.get("name") not in private:
            yield str(each.get("mountPath"))


def _env(path: str, template: JsonObject) -> dict[str, _Variable]:
    """Return the checked variables of a template's training container."""
    listed = training_container(template).get("env")
    return {
        each["name"]: _Variable(f"{path}.spec.containers[0].env[{index}]", each.get("value"))
        for index, each in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and each.get("name") in _CHECKED
    }


def _is_own_host(endpoint: str) -> bool:
    """Return whether an address, with an optional scheme and port, refers to the local host."""
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
