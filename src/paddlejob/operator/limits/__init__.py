"""Bounded views of the objects that users write.

An object of 1.5 MB, which etcd accepts, can decode to 30 MB. Labels, annotations, owners and finalizers are
kept by an allow-list. Job templates and ConfigMap data are kept only in encoded form, within a budget that
all namespaces share; a part above it is read again when it is needed. A view that is still too large is
reduced to its metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import HasMeta, JsonObject, ObjectKey, ObjectMeta, OwnerReference
from paddlejob.api.pod import ConfigMap, Pod, PodStatus, Service
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import (
    PaddleJob,
    PaddleJobSpec,
    PaddleJobStatus,
    RestartPolicy,
    Role,
    RoleSpec,
    SchedulingPolicy,
)
from paddlejob.api.validation.job import MAX_SPEC_BYTES, too_large
from paddlejob.core.gang.choose import scheduler_names
from paddlejob.core.pod_set import training_container_name
from paddlejob.core.recorder import fingerprint_of, is_recorder_name
from paddlejob.kube import decoding

T = TypeVar("T", bound=Pod | Service | PodGroup)

LABELS = (
    names.LABEL_JOB,
    names.LABEL_RESOURCE_TYPE,
    names.LABEL_ATTEMPT,
    names.LABEL_KUEUE_QUEUE,
)
ANNOTATIONS = (
    names.ANNOTATION_CONFIG_HASH,
    names.ANNOTATION_GANG,
    names.ANNOTATION_POD_SETS,
    names.ANNOTATION_SPARE,
    names.ANNOTATION_SUPERVISED,
    names.ANNOTATION_TOTAL_STEPS,
)
MAX_WORD = 253
"""Maximum length of labels, annotations and names."""
MAX_STATUS_BYTES = 64 << 10
"""Maximum size of a job's status. Its longest lists, indexes of 5,000 workers, take 25 KiB each."""
MAX_VIEW_BYTES = 64 << 10
MAX_PACKED_BYTES = 96 << 20
"""Enough for 10,000 running jobs of 10 KiB; the manifests give the operator 512 MiB."""
MAX_JOBS = 10_000
"""Maximum number of unfinished jobs of one namespace that are kept, and of finished ones."""
MAX_CHILDREN = 20_000
"""The same for each kind of object that belongs to jobs."""
ENTRY_BYTES = 200
"""Overhead of an entry."""


def bounded_metadata(metadata: ObjectMeta) -> ObjectMeta:
    """Return the metadata that decisions depend on."""
    controllers = (_shorten_owner(owner) for owner in metadata.owner_references if owner.controller)
    return msgspec.structs.replace(
        metadata,
        labels=_select(metadata.labels, LABELS),
        annotations=_select(metadata.annotations, ANNOTATIONS),
        owner_references=tuple(islice(controllers, 1)),
        finalizers=(names.LEGACY_FINALIZER,) if names.LEGACY_FINALIZER in metadata.finalizers else (),
    )


def owning_job(metadata: ObjectMeta) -> ObjectKey | None:
    """Return the key of the PaddleJob that controls an object; owners of other kinds are ignored."""
    for owner in metadata.owner_references:
        group = owner.api_version.partition("/")[0]
        if owner.controller and (group, owner.kind) == (names.GROUP, names.KIND):
            return ObjectKey(metadata.namespace, owner.name)
    return None


def _shorten_owner(owner: OwnerReference) -> OwnerReference:
    texts = {field: getattr(owner, field)[:MAX_WORD] for field in ("api_version", "kind", "name", "uid")}
    return OwnerReference(**texts, controller=owner.controller)


def _select(texts: Mapping[str, str], wanted: tuple[str, ...]) -> dict[str, str]:
    return {name: texts[name] for name in wanted if name in texts and len(texts[name]) <= MAX_WORD}


def decoder_of(kind: type[T], *, owned: bool) -> Callable[[msgspec.Raw], T | None]:
    """Return a decoder for a kind; if `owned`, it skips objects that no job controls."""
    decoder = msgspec.json.Decoder(kind)

    def decode(encoded: msgspec.Raw) -> T | None:
        read = decoding.decode(decoder, encoded)
        metadata = bounded_metadata(read.metadata)
        if owned and owning_job(metadata) is None:
            return None
        view = msgspec.structs.replace(read, metadata=metadata)
        is_small = _size(encoded) <= MAX_VIEW_BYTES or len(msgspec.json.encode(view)) <= MAX_VIEW_BYTES
        return view if is_small else _reduce_view(view)

    return decode


def _size(encoded: msgspec.Raw) -> int:
    return memoryview(encoded).nbytes


def _reduce_view(view: Any) -> Any:
    """Return the part of a view that has a fixed size."""
    if not isinstance(view, Pod):
        return type(view)(view.metadata)
    status = PodStatus(view.status.phase, pod_ip=view.status.pod_ip)
    return msgspec.structs.replace(view, status=status)


class _JobParts(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


_Seconds = Annotated[int, msgspec.Meta(ge=1)] | None


class _IndependentFields(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a spec that keep their meaning if others are invalid."""

    managed_by: Annotated[str, msgspec.Meta(max_length=MAX_WORD)] = ""
    active_deadline_seconds: _Seconds = None
    startup_deadline_seconds: _Seconds = None


_JOB_DECODER = msgspec.json.Decoder(PaddleJob)
_SPEC_DECODER = msgspec.json.Decoder(PaddleJobSpec)
_PARTS_DECODER = msgspec.json.Decoder(_JobParts)
_ABSENT = msgspec.Raw(b"")


class _FieldDecoder:
    """Decodes the fields of a struct one by one, with decoders that are built once; skips unknown keys."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        fields = msgspec.structs.fields(kind)
        encoded = msgspec.defstruct(
            f"{kind.__name__}Fields",
            [(field.name, msgspec.Raw, _ABSENT) for field in fields],
            rename={field.name: field.encode_name for field in fields},
        )
        self._encoded = msgspec.json.Decoder(encoded)
        self._decoders = {field.name: msgspec.json.Decoder(field.type) for field in fields}

    def decode(self, encoded: msgspec.Raw) -> dict[str, Any]:
        """Return the fields that decode into their types and together stay below MAX_STATUS_BYTES."""
        found: dict[str, Any] = {}
        with suppress(*decoding.DECODE_ERRORS):
            texts = decoding.decode(self._encoded, encoded)
            left = MAX_STATUS_BYTES
            for name, decoder in self._decoders.items():
                text = getattr(texts, name)
                if not 0 < _size(text) <= left:
                    continue
                with suppress(*decoding.DECODE_ERRORS):
                    found[name] = decoder.decode(text)
                    left -= _size(text)
        return found


_SPEC_FIELDS = _FieldDecoder(_IndependentFields)
_STATUS_FIELDS = _FieldDecoder(PaddleJobStatus)


def decode_job(encoded: msgspec.Raw) -> tuple[PaddleJob, bytes]:
    """Return the outline of a job, and its encoded spec. Raises one of DECODE_ERRORS."""
    parts = decoding.decode(_PARTS_DECODER, encoded)
    if (size := _size(parts.spec)) > MAX_SPEC_BYTES:
        raise msgspec.ValidationError(too_large(size))
    if (size := _size(parts.status)) > MAX_STATUS_BYTES:
        raise msgspec.ValidationError(
            f"status has {size >> 10} KiB, at most {MAX_STATUS_BYTES >> 10} KiB are allowed"
        )
    return outline_of(decoding.decode(_JOB_DECODER, encoded)), bytes(parts.spec)


def decode_spec(packed: bytes) -> PaddleJobSpec:
    """Return a whole spec from its encoded form."""
    return _SPEC_DECODER.decode(packed)


def outline_of(job: PaddleJob) -> PaddleJob:
    """Return a job whose templates are reduced to the names of scheduler and training container."""
    spec, schedulers = job.spec, scheduler_names(job)
    roles = ((Role.PS, spec.ps), (Role.WORKER, spec.worker), (Role.HETER, spec.heter))
    changes: dict[str, Any] = {
        role.value: _outline_role(each, schedulers.get(role, "")) for role, each in roles if each is not None
    }
    if spec.scheduling_policy is not None:
        changes["scheduling_policy"] = SchedulingPolicy()
    for field in spec.__struct_fields__:
        text = getattr(spec, field)
        if isinstance(text, str) and len(text) > MAX_WORD:
            changes[field] = text[:MAX_WORD]
    outlined = msgspec.structs.replace(spec, restart_policy=RestartPolicy(), **changes)
    return msgspec.structs.replace(job, metadata=bounded_metadata(job.metadata), spec=outlined)


def _outline_role(role: RoleSpec, scheduler: str) -> RoleSpec:
    pod_spec: JsonObject = {}
    if scheduler and len(scheduler) <= MAX_WORD:
        pod_spec["schedulerName"] = scheduler
    if (name := training_container_name(role)) and len(name) <= MAX_WORD:
        pod_spec["containers"] = [{"name": name}]
    return msgspec.structs.replace(role, template={"spec": pod_spec} if pod_spec else {})


def readable_job(encoded: msgspec.Raw, metadata: ObjectMeta, message: str) -> PaddleJob:
    """Return the readable part of a job that does not decode: its status and a few fields of its spec.

    Fields are decoded one by one: a finished job stays finished, and the attempt in the status shows which
    pods belong to the job.
    """
    parts = _JobParts()
    with suppress(*decoding.DECODE_ERRORS):
        parts = decoding.decode(_PARTS_DECODER, encoded)
    spec = PaddleJobSpec(**_SPEC_FIELDS.decode(parts.spec))
    status = PaddleJobStatus(**_STATUS_FIELDS.decode(parts.status))
    return PaddleJob(bounded_metadata(metadata), spec, status=status, undecodable=message)


class _ConfigParts(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    data: msgspec.Raw = msgspec.Raw(b"{}")
    binary_data: msgspec.Raw = msgspec.Raw(b"null")
    immutable: bool | None = None


_CONFIG_DECODER = msgspec.json.Decoder(_ConfigParts)
_DATA_DECODER = msgspec.json.Decoder(dict[str, str] | None)


def decode_config_map(encoded: msgspec.Raw) -> tuple[ConfigMap, bytes] | None:
    """Return a ConfigMap without its data, and its encoded data. Raises one of DECODE_ERRORS.

    Returns None unless it is the environment of a job or has a recorder's name.
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


class PackedParts:
    """One part of each object, by UID and version."""

    def __init__(self, max_bytes: int = MAX_PACKED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: dict[str, dict[str, tuple[str, bytes]]] = {}
        """Version and part, by namespace and UID, the oldest first."""
        self._sizes: Counter[str] = Counter()
        self.size = 0
        """Bytes that all parts take."""

    def get(self, metadata: ObjectMeta, version: str) -> bytes | None:
        """Return a part, or None if this version is not in memory."""
        known = self._parts.get(metadata.namespace, {}).get(metadata.uid)
        return known[1] if known and known[0] == version else None

    def put(self, metadata: ObjectMeta, version: str, part: bytes) -> None:
        """Keep a part. Above the budget, drop the oldest parts of the namespace with the most bytes."""
        if self.get(metadata, version) is not None:
            return
        namespace = metadata.namespace
        self.drop(metadata)
        self._parts.setdefault(namespace, {})[metadata.uid] = (version, part)
        self._add(namespace, ENTRY_BYTES + len(part))
        while self.size > self._max_bytes:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._drop(largest, next(iter(self._parts[largest])))

    def drop(self, metadata: ObjectMeta) -> None:
        """Forget the part of an object."""
        if metadata.uid in self._parts.get(metadata.namespace, {}):
            self._drop(metadata.namespace, metadata.uid)

    def _drop(self, namespace: str, uid: str) -> None:
        _, part = self._parts[namespace].pop(uid)
        self._add(namespace, -ENTRY_BYTES - len(part))
        if not self._parts[namespace]:
            del self._parts[namespace], self._sizes[namespace]

    def _add(self, namespace: str, size: int) -> None:
        self._sizes[namespace] += size
        self.size += size


def needs_templates(job: PaddleJob) -> bool:
    """Return whether pods may still be created for a job."""
    is_ours = job.spec.managed_by in ("", names.CONTROLLER_NAME)
    return is_ours and not job.status.phase.is_terminal and not job.undecodable


def owner_index(child: HasMeta) -> tuple[str, ...]:
    uid = child.metadata.controller_uid
    return (uid,) if uid else ()


def owner_name_index(child: HasMeta) -> tuple[str, ...]:
    owner = owning_job(child.metadata)
    return (str(owner),) if owner else ()
