"""What would keep a job from running on this machine, found before the first process starts."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.api.defaulting import effective
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import Intranet, PaddleJob
from paddlejob.local import capabilities, container, volumes
from paddlejob.local.capabilities import Capabilities
from paddlejob.local.errors import InputError
from paddlejob.local.images import Images

_NOT_RUN = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def check(job: PaddleJob, images: Images, allowed: Capabilities) -> None:
    """Raise InputError with everything that is wrong."""
    try:
        complaints = list(_complaints(job, images, allowed))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"a pod template cannot be read: {error!r}; check its indentation") from error
    if complaints:
        raise InputError(*complaints)


def notes(job: PaddleJob, images: Images) -> Iterator[str]:
    """Yield what a cluster would honour and this machine does not."""
    for role, spec in job.spec.roles():
        for field, each in _containers(spec.template["spec"]):
            ignored = [name for name in _NOT_RUN if each.get(name)]
            if ignored:
                path = f"spec.{role}.template.spec.{field}"
                yield f"{path}: {' and '.join(ignored)} of {each.get('name')} are not run here"
            if image := images.find(str(each.get("image"))):
                yield from (f"{image.directory / 'Dockerfile'}: {note}" for note in image.config.notes)


def _complaints(job: PaddleJob, images: Images, allowed: Capabilities) -> Iterator[str]:
    if effective(job.spec).intranet is Intranet.SERVICE and not allowed.can_mount:
        yield f"spec.intranet is Service, which needs host names, but {capabilities.WAY_OUT}; or write PodIP"
    for role, spec in job.spec.roles():
        pod_spec = spec.template["spec"]
        path = f"spec.{role}.template.spec"
        yield from volumes.complaints(path, pod_spec)
        for field, each in _containers(pod_spec):
            try:
                container.command_of(each, images.find(str(each.get("image"))), {})
            except InputError as error:
                yield f"{path}.{field}: {error}"


def _containers(pod_spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for kind in ("initContainers", "containers"):
        for index, each in enumerate(pod_spec.get(kind) or ()):
            yield f"{kind}[{index}]", each
