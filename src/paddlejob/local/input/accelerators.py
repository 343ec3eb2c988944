"""Assigns this machine's accelerators to the pods of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paddlejob.api import quantity
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob, RoleSpec
from paddlejob.core.accelerators import accelerators
from paddlejob.core.pod_set import Replica, pod_name, training_container
from paddlejob.local.errors import InputError
from paddlejob.local.input.interpreter import Interpreter

NVIDIA = "nvidia.com/gpu"
_NVIDIA_DEVICE = re.compile(r"nvidia([0-9]+)")


class Provision(msgspec.Struct, frozen=True):
    """A job as this machine can run it, and the devices visible to each pod."""

    job: PaddleJob
    visible: Mapping[str, str] = {}
    note: str = ""


def provide(
    job: PaddleJob, *, strict: bool, python: Interpreter | None = None, devices: Path = Path("/dev")
) -> Provision:
    """Assign devices to pods, or run the job on the CPU if there are too few.

    Raises InputError instead if `strict`.
    """
    requested = _requested_devices(job)
    if not requested:
        return Provision(job)
    wanted = sum(requested.values())
    present = sorted(
        int(found[1]) for each in devices.iterdir() if (found := _NVIDIA_DEVICE.fullmatch(each.name))
    )
    kinds = sorted({name for _, role in job.spec.roles() for name in accelerators(role)})
    if kinds == [NVIDIA] and wanted <= len(present):
        return Provision(
            job, visible=_assign(requested, present), note=_cpu_only_note(wanted, python, strict=strict)
        )
    sentence = f"the job asks for {wanted} x {', '.join(kinds)}, this machine has {len(present)}"
    if strict:
        raise InputError(f"{sentence}; without --strict it would run on the CPU")
    hidden = dict.fromkeys(requested, "")
    return Provision(_without_accelerators(job), visible=hidden, note=f"{sentence}: it runs on the CPU")


def _cpu_only_note(gpus: int, python: Interpreter | None, *, strict: bool) -> str:
    """Return a warning if the interpreter's Paddle cannot use GPUs; a container may use another one."""
    if python is None or not python.is_cpu_only:
        return ""
    sentence = (
        f"the job holds {gpus} x {NVIDIA}, but Paddle {python.paddle} of {python} was built for the "
        "CPU only; install paddlepaddle-gpu"
    )
    if strict:
        raise InputError(sentence)
    return sentence


def _requested_devices(job: PaddleJob) -> dict[str, int]:
    """Return the number of devices that each pod requests, without pods that request none."""
    return {
        pod_name(job.name, Replica(role, index)): count
        for role, spec in job.spec.roles()
        for index in range(spec.replicas)
        if (count := _count(spec))
    }


def _count(role: RoleSpec) -> int:
    resources = training_container(role).get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(
        max(1, int(quantity.parse(amounts[name]).amount)) if name in amounts else 1
        for name in accelerators(role)
    )


def _assign(requested: Mapping[str, int], present: list[int]) -> dict[str, str]:
    rest = iter(present)
    return {pod: ",".join(str(next(rest)) for _ in range(count)) for pod, count in requested.items()}


def _without_accelerators(job: PaddleJob) -> PaddleJob:
    """Remove the requests from the templates, so that core selects the CPU communication library."""
    fields: dict[str, Any] = {}
    for role, spec in job.spec.roles():
        if names := accelerators(spec):
            fields[str(role)] = msgspec.structs.replace(spec, template=_without(spec, names))
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **fields))


def _without(role: RoleSpec, names: frozenset[str]) -> JsonObject:
    container, pod_spec = training_container(role), role.template["spec"]
    resources = {
        section: {name: amount for name, amount in (amounts or {}).items() if name not in names}
        for section, amounts in container["resources"].items()
        if section != "claims"
    }
    containers = [{**container, "resources": resources}, *pod_spec["containers"][1:]]
    return {**role.template, "spec": {**pod_spec, "containers": containers}}
