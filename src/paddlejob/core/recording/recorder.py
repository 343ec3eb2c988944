"""Gives a pod the recorder, a package that its Python imports by itself: a mount, a token and two variables.

The code comes from a ConfigMap that the jobs of a namespace share. Whichever job is the first to need it owns
it; when that job is deleted, the next that still has pods to start creates it again. The mount is optional: a
pod whose ConfigMap is missing starts, and reports nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectKey
from paddlejob.api.names import Env
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.actions import InstallRecorder

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed
    from paddlejob.core.snapshot import Snapshot

SITE = f"{names.RECORDER_MOUNT}/site"
"""What goes on PYTHONPATH: a directory with nothing but a sitecustomize, so that no other name is hidden."""
NO_RECORDER = (
    "spec.recorder is true, but the operator does not accept reports (see --reports-url and its log); "
    "progress is read from the log of worker 0"
)
TRAINJOB_PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"
"""Where Kubeflow's operator takes the progress of a job, and ours does too."""
TOKEN_SECONDS = 3600
"""The kubelet renews a token when four fifths of this are over."""


class Recorder(msgspec.Struct, frozen=True):
    """The recorder as this operator installs it."""

    name: str
    """Name of its ConfigMap, with a hash of the files, so that each version has its own."""
    files: Mapping[str, str]
    """Content by path: the code, and the certificate that reports are sent to."""
    url: str
    by_default: bool = False
    """Whether jobs have it by default."""
    fingerprint: str = ""
    """Hash of the data of its ConfigMap: anybody who creates ConfigMaps can take the name."""

    @classmethod
    def of(cls, files: Mapping[str, str], url: str, *, by_default: bool = False) -> Self:
        """Return the recorder that consists of these files."""
        digest = hashlib.sha256()
        for path in sorted(files):
            digest.update(f"{path}\0{files[path]}\0".encode())
        name = f"{names.RECORDER}-{digest.hexdigest()[:10]}"
        return cls(name, files, url, by_default, fingerprint_of(_data(files)))


def is_recorder_name(name: str) -> bool:
    """Return whether a ConfigMap of this name may be a recorder, of this operator or of another version."""
    return name.startswith(f"{names.RECORDER}-")


def fingerprint_of(data: Mapping[str, str]) -> str:
    """Return a hash of the data of a ConfigMap."""
    return hashlib.sha256(msgspec.json.encode(sorted(data.items()))).hexdigest()


def recorder_of(job: PaddleJob, available: Recorder | None) -> Recorder | None:
    """Return the recorder that a job is to have."""
    if available is None:
        return None
    wanted = available.by_default if job.spec.recorder is None else job.spec.recorder
    return available if wanted else None


def lacks_recorder(snapshot: Snapshot) -> bool:
    """Return whether a job asks for a recorder in a cluster without one; local runs bring another."""
    return bool(snapshot.job.spec.recorder) and snapshot.recorder is None and snapshot.gang_apis is not None


def usable_recorder(snapshot: Snapshot) -> Recorder | None:
    """Return the recorder for new pods, None unless its ConfigMap is known to have our files.

    They are code that runs with the identity of the pod, and a mount finds them by name.
    """
    return None if snapshot.recorder_obstacle else recorder_of(snapshot.job, snapshot.recorder)


def no_recorder_note(snapshot: Snapshot) -> str:
    """Return why new pods of a job get no recorder, empty if they do or the job wants none."""
    is_wanted = recorder_of(snapshot.job, snapshot.recorder) is not None
    has_note = is_wanted and snapshot.recorder_obstacle
    return f"new pods get no recorder: {snapshot.recorder_obstacle}" if has_note else ""


def foreign_recorder(namespace: str, name: str) -> str:
    """Return the obstacle that a ConfigMap with other content is."""
    return (
        f"ConfigMap {name} has other content than the operator's; "
        f"delete it with kubectl -n {namespace} delete configmap {name}"
    )


def recorder_stage(job: Observed) -> tuple[InstallRecorder, ...]:
    """Return how the ConfigMap is created, if it is missing and there are pods that have yet to mount it."""
    recorder, pods = job.context.recorder, job.pods
    if recorder is None or job.given.has_recorder:
        return ()
    starting = (member.replica for member in pods.active if not member.has_started)
    if all(replica.role is Role.PS for replica in (*pods.to_create, *starting)):
        return ()
    return (InstallRecorder(recorder.name, _config_map(job.job, recorder)),)


def _config_map(job: PaddleJob, recorder: Recorder) -> JsonObject:
    owner = {**msgspec.to_builtins(job.owner_reference), "controller": False, "blockOwnerDeletion": False}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": recorder.name,
            "namespace": job.metadata.namespace,
            "labels": {names.LABEL_RESOURCE_NAME: recorder.name},
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": _data(recorder.files),
    }


def _data(files: Mapping[str, str]) -> dict[str, str]:
    return {_key(path): content for path, content in files.items()}


def _key(path: str) -> str:
    """Return the key of a file; keys have no slashes, the paths of a mount may."""
    return path.replace("/", ".")


def with_recorder(pod_spec: JsonObject, recorder: Recorder, job: ObjectKey) -> JsonObject:
    """Return a pod's spec whose first container has the recorder."""
    first, *others = pod_spec["containers"]
    mount = {"name": names.RECORDER, "mountPath": names.RECORDER_MOUNT, "readOnly": True}
    recording = {
        **first,
        "env": [*_with_path(first["env"]), *_addresses(recorder, job, first["env"])],
        "volumeMounts": [*(first.get("volumeMounts") or ()), mount],
    }
    return {
        **pod_spec,
        "containers": [recording, *others],
        "volumes": [*(pod_spec.get("volumes") or ()), _volume(recorder)],
    }


def _addresses(recorder: Recorder, job: ObjectKey, env: list[JsonObject]) -> Iterator[JsonObject]:
    """Say where to report; in Kubeflow's words too, which its SDK and Hugging Face's Trainer look for."""
    yield {"name": Env.REPORT_URL, "value": recorder.url}
    if all(each.get("name") != Env.TRAINJOB_URL for each in env):
        path = TRAINJOB_PATH.format(namespace=job.namespace, name=job.name)
        yield {"name": Env.TRAINJOB_URL, "value": f"{recorder.url}{path}"}
        yield {"name": Env.TRAINJOB_CA, "value": f"{names.RECORDER_MOUNT}/ca.crt"}
        yield {"name": Env.TRAINJOB_TOKEN, "value": f"{names.RECORDER_MOUNT}/token"}


def _volume(recorder: Recorder) -> JsonObject:
    items = [{"key": _key(path), "path": path} for path in sorted(recorder.files)]
    token = {"audience": names.RECORDER, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    code = {"name": recorder.name, "items": items, "optional": True}
    return {
        "name": names.RECORDER,
        "projected": {"sources": [{"configMap": code}, {"serviceAccountToken": token}]},
    }


def _with_path(env: list[JsonObject]) -> Iterator[JsonObject]:
    """Put the recorder in front of the PYTHONPATH of the template, in its place among the variables."""
    is_set = False
    for variable in env:
        if variable.get("name") != "PYTHONPATH":
            yield variable
            continue
        is_set, given = True, variable.get("value") or ""
        if variable.get("valueFrom"):
            yield {**variable, "name": Env.GIVEN_PYTHONPATH}
            given = f"$({Env.GIVEN_PYTHONPATH})"
        yield {"name": "PYTHONPATH", "value": f"{SITE}:{given}" if given else SITE}
    if not is_set:
        yield {"name": "PYTHONPATH", "value": SITE}
