"""Adds the recorder to a pod: a mount, a token and two environment variables.

The recorder is a Python package that the training program imports automatically. Its code is in a ConfigMap
that the jobs of a namespace share. The first job that needs the ConfigMap owns it. When that job is deleted,
the next job that starts pods creates it again. The mount is optional: without the ConfigMap a pod starts, but
does not report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Self

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectKey
from paddlejob.api.names import Env
from paddlejob.api.v1 import PaddleJob

SITE = f"{names.RECORDER_MOUNT}/site"
"""Directory for PYTHONPATH. It holds only a sitecustomize, so that it hides no other module."""
NO_RECORDER = (
    "spec.recorder is true, but the operator does not accept reports (see --reports-url and its log); "
    "progress is read from the log of worker 0"
)
TRAINJOB_PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"
"""The path at which Kubeflow's operator accepts the progress of a job; this operator accepts it too."""
ATTEND_PATH = "/v1/attend"
"""The path at which supervisors ask for orders."""
TOKEN_SECONDS = 3600
"""The kubelet renews a token after four fifths of this time."""


class Recorder(msgspec.Struct, frozen=True):
    """The recorder that this operator installs."""

    name: str
    """Name of its ConfigMap; it contains a hash of the files, so that each version has its own."""
    files: Mapping[str, str]
    """Content by path: the code, and the certificate of the reports port."""
    url: str
    by_default: bool = False
    """Whether jobs get the recorder by default."""
    fingerprint: str = ""
    """Hash of the data of its ConfigMap: any user who may create ConfigMaps can take the name."""

    @classmethod
    def of(cls, files: Mapping[str, str], url: str, *, by_default: bool = False) -> Self:
        """Return the recorder made of these files."""
        digest = hashlib.sha256()
        for path in sorted(files):
            digest.update(f"{path}\0{files[path]}\0".encode())
        name = f"{names.RECORDER}-{digest.hexdigest()[:10]}"
        return cls(name, files, url, by_default, fingerprint_of(_data(files)))


def is_recorder_name(name: str) -> bool:
    """Return whether a ConfigMap of this name may be a recorder of any version."""
    return name.startswith(f"{names.RECORDER}-")


def fingerprint_of(data: Mapping[str, str]) -> str:
    """Return a hash of the data of a ConfigMap."""
    return hashlib.sha256(msgspec.json.encode(sorted(data.items()))).hexdigest()


def recorder_of(job: PaddleJob, available: Recorder | None) -> Recorder | None:
    """Return the recorder that a job gets, None if it gets none."""
    if available is None:
        return None
    wanted = available.by_default if job.spec.recorder is None else job.spec.recorder
    return available if wanted else None


def foreign_recorder(namespace: str, name: str) -> str:
    """Return the obstacle if a ConfigMap with the recorder's name has other content."""
    return (
        f"ConfigMap {name} has different content than the operator's; "
        f"delete it with kubectl -n {namespace} delete configmap {name}"
    )


def recorder_config_map(job: PaddleJob, recorder: Recorder) -> JsonObject:
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
    """Return the ConfigMap key of a file; keys cannot contain slashes."""
    return path.replace("/", ".")


def with_recorder(
    pod_spec: JsonObject, recorder: Recorder, job: ObjectKey, *, reports: bool = True
) -> JsonObject:
    """Return the pod spec with the recorder in its first container; servers only have a supervisor."""
    first, *others = pod_spec["containers"]
    mount = {"name": names.RECORDER, "mountPath": names.RECORDER_MOUNT, "readOnly": True}
    recording = {
        **first,
        "env": [*_with_path(first["env"]), *(_addresses(recorder, job, first["env"]) if reports else ())],
        "volumeMounts": [*(first.get("volumeMounts") or ()), mount],
    }
    return {
        **pod_spec,
        "containers": [recording, *others],
        "volumes": [*(pod_spec.get("volumes") or ()), _volume(recorder)],
    }


def _addresses(recorder: Recorder, job: ObjectKey, env: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield the variables with the report URL, also the ones that Kubeflow's SDK and Hugging Face read."""
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
    """Prepend the recorder to the template's PYTHONPATH, keeping the order of the variables."""
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
