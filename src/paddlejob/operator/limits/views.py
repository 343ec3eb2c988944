"""Bounded views of the objects that users write.

An object of 1.5 MB, which etcd accepts, can decode to 30 MB. Labels, annotations, owners and finalizers are
kept by an allow-list, the templates of jobs and the data of ConfigMaps only in encoded form (see `packed`),
and a view that is still too large is reduced to its metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectKey, ObjectMeta, OwnerReference
from paddlejob.api.pod import ConfigMap, Pod, PodStatus, Service
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import (
    PaddleJob,
    PaddleJobSpec,
    PaddleJobStatus,
    Phase,
    RestartPolicy,
    Role,
    RoleSpec,
    SchedulingPolicy,
)
from paddlejob.api.validation.job import MAX_SPEC_BYTES, too_large
from paddlejob.core.gang.choose import scheduler_names
from paddlejob.core.pod_set import training_container_name
from paddlejob.core.recording.recorder import fingerprint_of, is_recorder_name
from paddlejob.kube import decoding

T = TypeVar("T", bound=Pod | Service | PodGroup)

LABELS = (
    names.LABEL_JOB,
    names.LABEL_RESOURCE_TYPE,
    names.LABEL_ATTEMPT,
    names.LABEL_KUEUE_QUEUE,
)
ANNOTATIONS = (names.ANNOTATION_CONFIG_HASH, names.ANNOTATION_GANG, names.ANNOTATION_POD_SETS)
MAX_WORD = 253
"""Maximum length of a label, annotation or name that is kept."""
MAX_STATUS_BYTES = 64 << 10
"""Maximum size of a job's status: its longest lists, the indexes of 5,000 workers, take 25 KiB each."""
MAX_VIEW_BYTES = 64 << 10


def bounded_metadata(metadata: ObjectMeta) -> ObjectMeta:
    """Return the metadata that decisions depend on."""
    controllers = (_shortened(owner) for owner in metadata.owner_references if owner.controller)
    return msgspec.structs.replace(
        metadata,
        labels=_kept(metadata.labels, LABELS),
        annotations=_kept(metadata.annotations, ANNOTATIONS),
        owner_references=tuple(islice(controllers, 1)),
        finalizers=(names.LEGACY_FINALIZER,) if names.LEGACY_FINALIZER in metadata.finalizers else (),
    )


def owning_job(metadata: ObjectMeta) -> ObjectKey | None:
    """Return the job that controls an object, by name; a StatefulSet may have the same name."""
    for owner in metadata.owner_references:
        group = owner.api_version.partition("/")[0]
        if owner.controller and (group, owner.kind) == (names.GROUP, names.KIND):
            return ObjectKey(metadata.namespace, owner.name)
    return None


def _shortened(owner: OwnerReference) -> OwnerReference:
    texts = {field: getattr(owner, field)[:MAX_WORD] for field in ("api_version", "kind", "name", "uid")}
    return OwnerReference(**texts, controller=owner.controller)


def _kept(texts: Mapping[str, str], wanted: tuple[str, ...]) -> dict[str, str]:
    return {name: texts[name] for name in wanted if name in texts and len(texts[name]) <= MAX_WORD}


def decoder_of(kind: type[T], *, owned: bool) -> Callable[[msgspec.Raw], T | None]:
    """Return the decoder of a kind; if `owned`, it leaves out objects that no job controls."""
    decoder = msgspec.json.Decoder(kind)

    def decode(encoded: msgspec.Raw) -> T | None:
        read = decoding.decode(decoder, encoded)
        metadata = bounded_metadata(read.metadata)
        if owned and owning_job(metadata) is None:
            return None
        view = msgspec.structs.replace(read, metadata=metadata)
        is_small = _size(encoded) <= MAX_VIEW_BYTES or len(msgspec.json.encode(view)) <= MAX_VIEW_BYTES
        return view if is_small else _reduced(view)

    return decode


def _size(encoded: msgspec.Raw) -> int:
    return memoryview(encoded).nbytes


def _reduced(view: Any) -> Any:
    """Return the part of a view that has a fixed size."""
    if not isinstance(view, Pod):
        return type(view)(view.metadata)
    status = PodStatus(view.status.phase, pod_ip=view.status.pod_ip)
    return msgspec.structs.replace(view, status=status)


class _JobParts(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _StatusOnly(msgspec.Struct, frozen=True):
    status: PaddleJobStatus = PaddleJobStatus()


class _Phase(msgspec.Struct, frozen=True):
    phase: Phase = Phase.NONE


class _PhaseOnly(msgspec.Struct, frozen=True):
    status: _Phase = _Phase()


_Seconds = Annotated[int, msgspec.Meta(ge=1)] | None


class _Apart(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a spec that are independent of the others."""

    managed_by: Annotated[str, msgspec.Meta(max_length=MAX_WORD)] = ""
    active_deadline_seconds: _Seconds = None
    startup_deadline_seconds: _Seconds = None


class _ApartOnly(msgspec.Struct, frozen=True):
    spec: _Apart = _Apart()


_JOB_DECODER = msgspec.json.Decoder(PaddleJob)
_SPEC_DECODER = msgspec.json.Decoder(PaddleJobSpec)
_PARTS_DECODER = msgspec.json.Decoder(_JobParts)
_APART_DECODER = msgspec.json.Decoder(_ApartOnly)
_STATUS_DECODER = msgspec.json.Decoder(_StatusOnly)
_PHASE_DECODER = msgspec.json.Decoder(_PhaseOnly)


def decode_job(encoded: msgspec.Raw) -> tuple[PaddleJob, bytes]:
    """Return the outline of a job, and its encoded spec. Raises one of DECODE_ERRORS."""
    parts = decoding.decode(_PARTS_DECODER, encoded)
    if (size := _size(parts.spec)) > MAX_SPEC_BYTES:
        raise msgspec.ValidationError(too_large(size))
    if (size := _size(parts.status)) > MAX_STATUS_BYTES:
        raise msgspec.ValidationError(f"status has {size >> 10} KiB, {MAX_STATUS_BYTES >> 10} KiB are read")
    return outline_of(decoding.decode(_JOB_DECODER, encoded)), bytes(parts.spec)


def decode_spec(packed: bytes) -> PaddleJobSpec:
    """Return a whole spec from its encoded form."""
    return _SPEC_DECODER.decode(packed)


def outline_of(job: PaddleJob) -> PaddleJob:
    """Return a job with no more of its templates than the names of scheduler and training container."""
    spec, schedulers = job.spec, scheduler_names(job)
    roles = ((Role.PS, spec.ps), (Role.WORKER, spec.worker), (Role.HETER, spec.heter))
    changes: dict[str, Any] = {
        role.value: _outlined(each, schedulers.get(role, "")) for role, each in roles if each is not None
    }
    if spec.scheduling_policy is not None:
        changes["scheduling_policy"] = SchedulingPolicy()
    for field in spec.__struct_fields__:
        text = getattr(spec, field)
        if isinstance(text, str) and len(text) > MAX_WORD:
            changes[field] = text[:MAX_WORD]
    outlined = msgspec.structs.replace(spec, restart_policy=RestartPolicy(), **changes)
    return msgspec.structs.replace(job, metadata=bounded_metadata(job.metadata), spec=outlined)


def _outlined(role: RoleSpec, scheduler: str) -> RoleSpec:
    pod_spec: JsonObject = {}
    if scheduler and len(scheduler) <= MAX_WORD:
        pod_spec["schedulerName"] = scheduler
    if (name := training_container_name(role)) and len(name) <= MAX_WORD:
        pod_spec["containers"] = [{"name": name}]
    return msgspec.structs.replace(role, template={"spec": pod_spec} if pod_spec else {})


def readable_job(encoded: msgspec.Raw, metadata: ObjectMeta, message: str) -> PaddleJob:
    """Return a job without a readable spec: its status and its time limits are still known."""
    return PaddleJob(
        bounded_metadata(metadata),
        _readable_spec(encoded),
        status=_readable_status(encoded),
        undecodable=message,
    )


def _readable_spec(encoded: msgspec.Raw) -> PaddleJobSpec:
    with suppress(*decoding.DECODE_ERRORS):
        return PaddleJobSpec(**msgspec.structs.asdict(decoding.decode(_APART_DECODER, encoded).spec))
    return PaddleJobSpec()


def _readable_status(encoded: msgspec.Raw) -> PaddleJobStatus:
    """Return the status of a job that does not decode, or at least its phase: an ended job stays ended."""
    with suppress(*decoding.DECODE_ERRORS):
        if _size(decoding.decode(_PARTS_DECODER, encoded).status) <= MAX_STATUS_BYTES:
            return decoding.decode(_STATUS_DECODER, encoded).status
    with suppress(*decoding.DECODE_ERRORS):
        return PaddleJobStatus(phase=decoding.decode(_PHASE_DECODER, encoded).status.phase)
    return PaddleJobStatus()


class _ConfigParts(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    data: msgspec.Raw = msgspec.Raw(b"{}")
    binary_data: msgspec.Raw = msgspec.Raw(b"null")
    immutable: bool | None = None


_CONFIG_DECODER = msgspec.json.Decoder(_ConfigParts)
_DATA_DECODER = msgspec.json.Decoder(dict[str, str] | None)


def decode_config_map(encoded: msgspec.Raw) -> tuple[ConfigMap, bytes] | None:
    """Return a ConfigMap without its data, and its encoded data. Raises one of DECODE_ERRORS.

    None, unless it is the environment of a job or has the name of a recorder: no other is read.
    """
    parts = decoding.decode(_CONFIG_DECODER, encoded)
    metadata = bounded_metadata(parts.metadata)
    if owning_job(metadata) == metadata.key:
        return ConfigMap(metadata), bytes(parts.data)
    if is_recorder_name(metadata.name):
        is_plain = parts.immutable and bytes(parts.binary_data) == b"null"
        fingerprint = fingerprint_of(decode_data(bytes(parts.data))) if is_plain else ""
        return ConfigMap(metadata, fingerprint=fingerprint), b""
    return None


def decode_data(packed: bytes) -> dict[str, str]:
    """Return the data of a ConfigMap from its encoded form."""
    return _DATA_DECODER.decode(packed) or {}
