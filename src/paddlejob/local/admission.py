"""What would keep a job from running on this machine, found before the first process starts."""

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
from paddlejob.local.pod.volumes import Claims
from paddlejob.local.ports import size_errors

_PYTHON = re.compile(r"python|paddle|fleetrun")
_NOT_RUN = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_CONFIG_MAP, _SECRET = "ConfigMap", "Secret"


class Machine(msgspec.Struct, frozen=True):
    """What this machine has."""

    images: Images
    allowed: Capabilities
    claims: Claims
    python: Interpreter


def check(read: JobFile, machine: Machine) -> None:
    """Raise InputError with everything that is wrong."""
    try:
        complaints = list(_complaints(read, machine))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"a pod template cannot be read: {error!r}; check its indentation") from error
    if complaints:
        raise InputError(*complaints)


def notes(job: PaddleJob, machine: Machine, directory: Path) -> Iterator[str]:
    """Yield the differences from a cluster, and the directories that are used instead.

    `directory` is the one that containers of unknown images work in.
    """
    yield from _claim_notes(job, machine.claims)
    if not machine.allowed.can_overlay and _works_in_place(job, machine.images):
        reason = capabilities.NO_OVERLAYS if machine.allowed.can_mount else capabilities.WAY_OUT
        yield f"programs change the files of {directory} itself and not a copy: {reason}"
    if machine.python.defect and _uses_python(job, machine.images):
        yield machine.python.advice
    used = {
        str(each.get("image"))
        for _, spec in job.spec.roles()
        for _, each in _containers(spec.template["spec"])
    }
    yield from (
        f"--image {name}: no container uses this image" for name in sorted(machine.images.options - used)
    )
    images, noted = machine.images, set()
    for role, spec in job.spec.roles():
        for field, each in _containers(spec.template["spec"]):
            ignored = [name for name in _NOT_RUN if each.get(name)]
            if ignored:
                path = f"spec.{role}.template.spec.{field}"
                yield f"{path}: {' and '.join(ignored)} of container {each.get('name')} ignored locally"
            if (image := images.find(str(each.get("image")))) and image.name not in noted:
                noted.add(image.name)
                yield from (f"{image.directory / 'Dockerfile'}: {note}" for note in image.config.notes)


def _works_in_place(job: PaddleJob, images: Images) -> bool:
    """Return whether a container works in the directory of the job's file."""
    return any(
        images.find(str(each.get("image"))) is None and (each.get("workingDir") or WORKSPACE) == WORKSPACE
        for _, spec in job.spec.roles()
        for _, each in _containers(spec.template["spec"])
    )


def _uses_python(job: PaddleJob, images: Images) -> bool:
    programs = (
        container.command_of(each, images.find(str(each.get("image"))), {})[0]
        for _, spec in job.spec.roles()
        for _, each in _containers(spec.template["spec"])
    )
    return any(_PYTHON.match(PurePath(program).name) for program in programs)


def _claim_notes(job: PaddleJob, claims: Claims) -> Iterator[str]:
    """Yield where the data of claims is; unlike a run's own files, it stays for the next run."""
    volumes = [each for _, spec in job.spec.roles() for each in spec.template["spec"].get("volumes") or ()]
    used = (str((each.get("persistentVolumeClaim") or {}).get("claimName") or "") for each in volumes)
    for claim in sorted(set(filter(None, used)) - set(claims.chosen)):
        directory = claims.directory(claim)
        is_kept = directory.is_dir() and any(directory.iterdir())
        state = "with files of earlier runs" if is_kept else "new and empty"
        yield f"claim {claim} is {directory} ({state}); choose another with --volume {claim}=DIR"


def _complaints(read: JobFile, machine: Machine) -> Iterator[str]:
    job, can_mount = read.job, machine.allowed.can_mount
    yield from size_errors(job)
    if network_of(effective(job.spec).intranet).by_name and not can_mount:
        yield f"spec.intranet is Service, which needs host names, but {capabilities.WAY_OUT}; or write PodIP"
    for role, spec in job.spec.roles():
        pod_spec = spec.template["spec"]
        path = f"spec.{role}.template.spec"
        yield from volumes.complaints(path, pod_spec)
        if not can_mount:
            for complaint in volumes.misplaced(path, pod_spec, machine.claims):
                yield f"{complaint}; {capabilities.WAY_OUT}"
        for field, each in _containers(pod_spec):
            yield from _command_complaints(f"{path}.{field}", each, machine.images)
            yield from _missing(f"{path}.{field}", _env_references(each), read)
        yield from _missing(f"{path}.volumes", _volume_references(pod_spec), read)


def _command_complaints(path: str, each: JsonObject, images: Images) -> Iterator[str]:
    name = str(each.get("image"))
    try:
        container.command_of(each, images.find(name), {})
    except InputError as error:
        yield f"{path}: {error}{suggestion(name, images.names)}"


def _missing(path: str, references: Iterator[tuple[str, str, bool]], read: JobFile) -> Iterator[str]:
    """Yield the objects that nobody will ever create here."""
    present = {_CONFIG_MAP: {read.job.name, *read.config_maps}, _SECRET: set(read.secrets)}
    for kind, name, optional in references:
        if not optional and name not in present[kind]:
            yield f"{path} needs the {kind} {name}, which is not in the file; add it as another document"


def _env_references(each: JsonObject) -> Iterator[tuple[str, str, bool]]:
    for source in each.get("envFrom") or ():
        for field, kind in (("configMapRef", _CONFIG_MAP), ("secretRef", _SECRET)):
            if reference := source.get(field):
                yield kind, str(reference.get("name")), bool(reference.get("optional"))
    for variable in each.get("env") or ():
        origin = variable.get("valueFrom") or {}
        for field, kind in (("configMapKeyRef", _CONFIG_MAP), ("secretKeyRef", _SECRET)):
            if reference := origin.get(field):
                yield kind, str(reference.get("name")), bool(reference.get("optional"))


def _volume_references(pod_spec: JsonObject) -> Iterator[tuple[str, str, bool]]:
    for volume in pod_spec.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            if reference := source.get("configMap"):
                yield _CONFIG_MAP, str(reference.get("name")), bool(reference.get("optional"))
            if reference := source.get("secret"):
                name = reference.get("secretName") or reference.get("name")
                yield _SECRET, str(name), bool(reference.get("optional"))


def _containers(pod_spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for kind in ("initContainers", "containers"):
        for index, each in enumerate(pod_spec.get(kind) or ()):
            yield f"{kind}[{index}]", each
