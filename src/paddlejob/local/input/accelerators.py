"""Accelerators that a job asks for, and those that this machine has."""

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
from paddlejob.core.pod_set import Replica, pod_name
from paddlejob.local.errors import InputError
from paddlejob.local.input.interpreter import Interpreter

NVIDIA = "nvidia.com/gpu"
_NVIDIA_DEVICE = re.compile(r"nvidia([0-9]+)")


class Provision(msgspec.Struct, frozen=True):
    """A job as this machine can run it, and which pod may see which devices."""

    job: PaddleJob
    visible: Mapping[str, str] = {}
    note: str = ""


def provide(
    job: PaddleJob, *, strict: bool, python: Interpreter | None = None, devices: Path = Path("/dev")
) -> Provision:
    """Hand out the machine's accelerators; where there are too few, the job runs on the CPU.

    Raises InputError where `strict` forbids that.
    """
    asked = _asked(job)
    if not asked:
        return Provision(job)
    wanted = sum(asked.values())
    present = sorted(
        int(found[1]) for each in devices.iterdir() if (found := _NVIDIA_DEVICE.fullmatch(each.name))
    )
    kinds = sorted({name for _, role in job.spec.roles() for name in accelerators(role)})
    if kinds == [NVIDIA] and wanted <= len(present):
        return Provision(job, visible=_shares(asked, present), note=_idle(wanted, python, strict=strict))
    sentence = f"the job asks for {wanted} x {', '.join(kinds)}, this machine has {len(present)}"
    if strict:
        raise InputError(f"{sentence}; without --strict it would run on the CPU")
    everyone = dict.fromkeys(asked, "")
    return Provision(_on_cpu(job), visible=everyone, note=f"{sentence}: it runs on the CPU")


def _idle(gpus: int, python: Interpreter | None, *, strict: bool) -> str:
    """Say that GPUs were handed out to a Paddle that cannot use them; a container may have another one."""
    if python is None or not python.is_cpu_only:
        return ""
    sentence = (
        f"the job holds {gpus} x {NVIDIA}, but Paddle {python.paddle} of {python} was built for the "
        "CPU only; install paddlepaddle-gpu"
    )
    if strict:
        raise InputError(sentence)
    return sentence


def _asked(job: PaddleJob) -> dict[str, int]:
    """Return how many devices each pod asks for, for those that ask."""
    return {
        pod_name(job.name, Replica(role, index)): count
        for role, spec in job.spec.roles()
        for index in range(spec.replicas)
        if (count := _count(spec))
    }


def _count(role: RoleSpec) -> int:
    resources = _training_container(role).get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(
        max(1, int(quantity.parse(amounts[name]).amount)) if name in amounts else 1
        for name in accelerators(role)
    )


def _shares(asked: Mapping[str, int], present: list[int]) -> dict[str, str]:
    shares, rest = {}, iter(present)
    for pod, count in asked.items():
        shares[pod] = ",".join(str(next(rest)) for _ in range(count))
    return shares


def _on_cpu(job: PaddleJob) -> PaddleJob:
    """Take the request out of the templates, so that core gives the pods the CPU's communication library."""
    fields: dict[str, Any] = {}
    for role, spec in job.spec.roles():
        if names := accelerators(spec):
            fields[str(role)] = msgspec.structs.replace(spec, template=_without(spec, names))
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **fields))


def _without(role: RoleSpec, names: frozenset[str]) -> JsonObject:
    container = dict(_training_container(role))
    resources = dict(container["resources"])
    for section in ("requests", "limits"):
        if resources.get(section):
            resources[section] = {
                name: amount for name, amount in resources[section].items() if name not in names
            }
    resources.pop("claims", None)
    container["resources"] = resources
    pod_spec = role.template["spec"]
    containers = [container, *pod_spec["containers"][1:]]
    return {**role.template, "spec": {**pod_spec, "containers": containers}}


def _training_container(role: RoleSpec) -> JsonObject:
    container: JsonObject = role.template["spec"]["containers"][0]
    return container
