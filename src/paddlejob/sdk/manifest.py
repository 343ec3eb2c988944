"""The manifest of a job that trains a program: what one would otherwise write as YAML."""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Mapping

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.sdk.errors import JobError
from paddlejob.sdk.program import WORKSPACE, Program

_SUFFIX_LENGTH = 5
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Those that Kubernetes completes names with; they spell no words."""
_LONGEST_TITLE = 40
_CONTAINER = "paddle"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is to be trained."""

    image: str
    workers: int = 1
    ps: int = 0
    resources: Mapping[str, str | int | float] = {}
    """What each container asks for, and may use."""
    env: Mapping[str, str] = {}
    volumes: Mapping[str, str] = {}
    """By mount path: the name of a claim, or a path of the node."""
    labels: Mapping[str, str] = {}
    spec: Mapping[str, object] = {}
    """More fields of the job's spec, as in YAML."""


def manifests_of(name: str, program: Program, shape: Shape) -> tuple[JsonObject, list[JsonObject]]:
    """Return the job, and the ConfigMap that it owns if it ships files."""
    # The ConfigMap of a deleted job may still be there for a moment, so that each gets a name of its own.
    config_map = generated(f"{name}-files")
    template = {"spec": _pod(program, shape, config_map)}
    spec: JsonObject = {"worker": {"replicas": shape.workers, "template": template}}
    if shape.ps:
        spec["ps"] = {"replicas": shape.ps, "template": copy.deepcopy(template)}
    metadata: JsonObject = {"name": name}
    if shape.labels:
        metadata["labels"] = dict(shape.labels)
    job = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {**spec, **shape.spec},
    }
    return job, [program.config_map(config_map)] if program.files else []


def title_of(text: str) -> str:
    """Return a name for a job from that of a program: `Train_MNIST` is train-mnist."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_TITLE].rstrip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}".rstrip("-")


def generated(title: str) -> str:
    """Return a name that no other job has."""
    return f"{title}-{''.join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))}"


def _pod(program: Program, shape: Shape, config_map: str) -> JsonObject:
    volumes, mounts = _volumes(shape.volumes)
    if program.files:
        volumes.append(program.volume(config_map))
        mounts += program.mounts()
    container: JsonObject = {
        "name": _CONTAINER,
        "image": shape.image,
        "command": list(program.command),
        "workingDir": WORKSPACE,
        "env": [{"name": key, "value": str(value)} for key, value in _environment(shape.env).items()],
    }
    if not program.files:
        # The program is in the image, which knows where.
        del container["workingDir"]
    if shape.resources:
        asked = {key: str(value) for key, value in shape.resources.items()}
        container["resources"] = {"requests": asked, "limits": dict(asked)}
    if mounts:
        container["volumeMounts"] = mounts
    return {"containers": [container], **({"volumes": volumes} if volumes else {})}


def _environment(env: Mapping[str, object]) -> dict[str, object]:
    if empty := [name for name, value in env.items() if value is None]:
        raise JobError(f"env=: {empty[0]} is None; pass a string, or leave it out")
    # What Python holds back until its buffer is full, nobody can follow.
    return {"PYTHONUNBUFFERED": "1", **env}


def _volumes(wanted: Mapping[str, str]) -> tuple[list[JsonObject], list[JsonObject]]:
    volumes: list[JsonObject] = []
    mounts: list[JsonObject] = []
    for number, (path, source) in enumerate(wanted.items()):
        name = f"volume-{number}"
        kind: JsonObject = {"persistentVolumeClaim": {"claimName": source}}
        if source.startswith("/"):
            kind = {"hostPath": {"path": source}}
        volumes.append({"name": name, **kind})
        mounts.append({"name": name, "mountPath": path})
    return volumes, mounts
