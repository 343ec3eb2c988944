"""Checks, before anything starts, that a job can run on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath

import msgspec

from paddlejob.api.defaulting import effective
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.network import network_of
from paddlejob.local.errors import InputError
from paddlejob.local.input.documents import JobFile
from paddlejob.local.input.images import Images
from paddlejob.local.input.interpreter import Interpreter
from paddlejob.local.input.strict import suggestion
from paddlejob.local.pod import capabilities, container, volumes
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.pod.layers import WORKSPACE
from paddlejob.local.pod.volumes import Claims, containers_of
from paddlejob.local.ports import size_errors

_PYTHON = re.compile(r"python|paddle|fleetrun")
_IGNORED_FIELDS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_CONFIG_MAP, _SECRET = "ConfigMap", "Secret"


class Machine(msgspec.Struct, frozen=True):
    """The resources of this machine."""

    images: Images
    allowed: Capabilities
    claims: Claims
    python: Interpreter


def check(file: JobFile, machine: Machine) -> None:
    """Raise InputError with everything that is wrong."""
    try:
        errors = list(_errors(file, machine))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"a pod template cannot be read: {error!r}; check its indentation") from error
    if errors:
        raise InputError(*errors)


def notes(job: PaddleJob, machine: Machine, workspace: Path) -> Iterator[str]:
    """Yield the differences from a cluster, and the directories used for volume claims."""
    images, containers = machine.images, list(_containers(job))
    yield from _claim_notes(job, machine.claims)
    if not machine.allowed.can_overlay and any(_uses_workspace(each, images) for _, each in containers):
        reason = capabilities.NO_OVERLAYS if machine.allowed.can_mount else capabilities.NO_NAMESPACES
        yield f"programs change the files in {workspace} directly, not a copy: {reason}"
    if machine.python.defect and any(_uses_python(each, images) for _, each in containers):
        yield machine.python.advice
    used = {str(each.get("image")) for _, each in containers}
    for name in sorted(images.options - used):
        yield f"--image {name}: no container uses this image"
    seen = set()
    for path, each in containers:
        if ignored := [name for name in _IGNORED_FIELDS if each.get(name)]:
            yield f"{path}: {' and '.join(ignored)} of container {each.get('name')} ignored locally"
        image = images.find(str(each.get("image")))
        if image and image.name not in seen:
            seen.add(image.name)
            yield from (f"{image.directory / 'Dockerfile'}: {note}" for note in image.config.notes)


def _containers(job: PaddleJob) -> Iterator[tuple[str, JsonObject]]:
    for role, spec in job.spec.roles():
        yield from containers_of(f"spec.{role}.template.spec", spec.template["spec"])


def _uses_workspace(each: JsonObject, images: Images) -> bool:
    is_default = (each.get("workingDir") or WORKSPACE) == WORKSPACE
    return is_default and images.find(str(each.get("image"))) is None


def _uses_python(each: JsonObject, images: Images) -> bool:
    program = container.command_of(each, images.find(str(each.get("image"))), {})[0]
    return _PYTHON.match(PurePath(program).name) is not None


def _claim_notes(job: PaddleJob, claims: Claims) -> Iterator[str]:
    """Yield the default directory of each claim. Unlike the files of a run, it is kept for later runs."""
    volumes = [each for _, spec in job.spec.roles() for each in spec.template["spec"].get("volumes") or ()]
    used = (str((each.get("persistentVolumeClaim") or {}).get("claimName") or "") for each in volumes)
    for claim in sorted(set(filter(None, used)) - set(claims.chosen)):
        directory = claims.directory(claim)
        is_kept = directory.is_dir() and any(directory.iterdir())
        state = "with files of earlier runs" if is_kept else "new and empty"
        yield f"claim {claim} is {directory} ({state}); choose another with --volume {claim}=DIR"


def _errors(file: JobFile, machine: Machine) -> Iterator[str]:
    job, can_mount = file.job, machine.allowed.can_mount
    yield from size_errors(job)
    if network_of(effective(job.spec).intranet).by_name and not can_mount:
        yield (
            f"spec.intranet is Service, which needs host names, but {capabilities.NO_NAMESPACES}; "
            "or write PodIP"
        )
    for role, spec in job.spec.roles():
        pod_spec = spec.template["spec"]
        path = f"spec.{role}.template.spec"
        yield from volumes.volume_errors(path, pod_spec)
        if not can_mount:
            for error in volumes.mount_errors(path, pod_spec, machine.claims):
                yield f"{error}; {capabilities.NO_NAMESPACES}"
        for here, each in containers_of(path, pod_spec):
            yield from _command_errors(here, each, machine.images)
            yield from _missing_objects(here, _env_references(each), file)
        yield from _missing_objects(f"{path}.volumes", _volume_references(pod_spec), file)


def _command_errors(path: str, each: JsonObject, images: Images) -> Iterator[str]:
    name = str(each.get("image"))
    try:
        container.command_of(each, images.find(name), {})
    except InputError as error:
        yield f"{path}: {error}{suggestion(name, images.names)}"


def _missing_objects(path: str, references: Iterator[tuple[str, str, bool]], file: JobFile) -> Iterator[str]:
    present = {_CONFIG_MAP: {file.job.name, *file.config_maps}, _SECRET: set(file.secrets)}
    for kind, name, optional in references:
        if not optional and name not in present[kind]:
            yield f"{path} needs the {kind} {name}, which is not in the file; add it as another document"


def _env_references(each: JsonObject) -> Iterator[tuple[str, str, bool]]:
    sources = (
        *(each.get("envFrom") or ()),
        *(variable.get("valueFrom") or {} for variable in each.get("env") or ()),
    )
    fields = {
        "configMapRef": _CONFIG_MAP,
        "configMapKeyRef": _CONFIG_MAP,
        "secretRef": _SECRET,
        "secretKeyRef": _SECRET,
    }
    for source in sources:
        for field, kind in fields.items():
            if reference := source.get(field):
                yield kind, str(reference.get("name")), bool(reference.get("optional"))


def _volume_references(pod_spec: JsonObject) -> Iterator[tuple[str, str, bool]]:
    for volume in pod_spec.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            if reference := source.get("configMap"):
                yield _CONFIG_MAP, str(reference.get("name")), bool(reference.get("optional"))
            if reference := source.get("secret"):
                name = reference.get("secretName") or reference.get("name")
                yield _SECRET, str(name), bool(reference.get("optional"))
