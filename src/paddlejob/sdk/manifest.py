"""Builds the manifest of a job from a program, and writes manifests as YAML."""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Iterable, Mapping

import msgspec
import yaml

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.sdk.errors import JobError
from paddlejob.sdk.program import WORKSPACE, Program

_SUFFIX_LENGTH = 5
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters that Kubernetes uses in generated names; they do not spell words."""
_MAX_TITLE_LENGTH = 40
_CONTAINER = "paddle"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas, resources and other settings of a job."""

    image: str
    workers: int = 1
    ps: int = 0
    resources: Mapping[str, str | int | float] = {}
    """Requests and limits of each container."""
    env: Mapping[str, str] = {}
    volumes: Mapping[str, str] = {}
    """PersistentVolumeClaim name or node path by mount path."""
    labels: Mapping[str, str] = {}
    spec: Mapping[str, object] = {}
    """Additional fields of the job's spec, as in YAML."""


def manifests_of(name: str, program: Program, shape: Shape) -> tuple[JsonObject, list[JsonObject]]:
    """Return the job, and a list with the ConfigMap of its files if there are any."""
    # The ConfigMap of a deleted job exists a little longer, so each job uses a new name.
    config_map = unique_name(f"{name}-files")
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
    """Return a job name for a program name: train-mnist for `Train_MNIST`."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MAX_TITLE_LENGTH].rstrip("-")
    return plain if plain[:1].isalpha() else f"job-{plain}".rstrip("-")


def unique_name(title: str) -> str:
    """Return the title with a random suffix."""
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
        # The program is in the image, which has its own working directory.
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
    # Buffered output would appear late in the log.
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


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as blocks, and repeated values without YAML references."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _represent_text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _represent_text)


def to_yaml(manifests: Iterable[JsonObject]) -> str:
    """Return manifests as YAML, with `apiVersion`, `kind` and `metadata` first."""
    first = ("apiVersion", "kind", "metadata")
    ordered = ({**{key: each[key] for key in first if key in each}, **each} for each in manifests)
    return yaml.dump_all(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
