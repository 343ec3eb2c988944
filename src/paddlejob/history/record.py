"""The record of a job, which outlives the job and its pods, and its ConfigMap."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectKey, ObjectMeta, View
from paddlejob.api.v1 import Failure, Goodput, Phase, Recovery
from paddlejob.kube.decoding import DECODE_ERRORS, decode
from paddlejob.text import MESSAGE_LENGTH

T = TypeVar("T")
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with an offset. Records are sorted by time, and any user can write one."""

MAX_BYTES = 256 * 1024
"""Maximum size of a compressed record."""
MAX_PLAIN_BYTES = 1024 * 1024
"""Maximum size of a decompressed record; a larger one was not written by the operator."""
MAX_SUMMARY_LENGTH = 16 * 1024
"""Maximum length of an encoded summary; its longest fields are two status messages."""
MAX_WORD_LENGTH = 64
MAX_ATTEMPTS = 64
MAX_PHASES = 128
MAX_POINTS = 512

MIN_YEAR, MAX_YEAR = 2000, 2200
"""Range of valid years. Time zone conversion fails for years far outside of it."""
MAX_TIME = int(datetime(MAX_YEAR, 1, 1, tzinfo=UTC).timestamp())

DELETED = "Deleted"
"""Result of a job that was deleted before it ended; otherwise the result is its phase."""
RECORD_KEY = "record.json.gz"
_FINAL = frozenset({str(Phase.COMPLETED), str(Phase.FAILED), DELETED})


class RankEnd(View, frozen=True):
    """How a rank ended in an attempt, and its last output."""

    rank: str
    state: str = ""
    """failed or succeeded; running if it was stopped because its job hung."""
    exit_code: int = 0
    reason: str = ""
    node: str = ""
    time: Moment | None = None
    text: str = ""
    """Last lines of its log, or its termination message if the log was not read."""
    from_log: bool = False


class Change(View, frozen=True):
    """A value that differs from the previous attempt; empty if it did not exist."""

    name: str
    before: str = ""
    after: str = ""


class AttemptRecord(View, frozen=True):
    """One attempt of a job and the reason for its end."""

    attempt: int = 0
    result: str = ""
    """Completed, Failed, Deleted, the next phase of the job (Restarting, Scaling), or Running for a hang."""
    reason: str = ""
    message: str = ""
    began: Moment | None = None
    ended: Moment | None = None
    failure: Failure | None = None
    """First failure."""
    ranks: tuple[RankEnd, ...] = ()
    """Ended ranks, beginning with the one that failed first; for a hang, also running ranks."""
    more_ranks: int = 0
    """Number of further ended ranks."""
    changes: tuple[Change, ...] = ()
    recovery: Recovery | None = None
    """The restart that began the attempt."""


class PhaseEntry(View, frozen=True):
    """A change of the job's phase or reason."""

    time: Moment
    phase: str
    reason: str = ""
    message: str = ""


class Point(View, frozen=True, array_like=True):
    """Training progress at a time."""

    time: Annotated[int, msgspec.Meta(ge=0, lt=MAX_TIME)]
    """Seconds since the epoch."""
    epoch: int = 0
    step: int = 0
    loss: str = ""
    attempt: int = 0


class Summary(View, frozen=True):
    """The part of a record that lists show."""

    name: str
    namespace: str = ""
    uid: str = ""
    mode: str = ""
    result: str = ""
    """Completed, Failed or Deleted; the phase of an unfinished job."""
    reason: str = ""
    message: str = ""
    created: Moment | None = None
    started: Moment | None = None
    ended: Moment | None = None
    attempt: int = 0
    restarts: int = 0
    failure: Failure | None = None
    """First failure of the last failed attempt."""
    goodput: Goodput | None = None
    """How the job spent its time."""

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.result in _FINAL


class Record(View, frozen=True):
    """The whole record of a job."""

    summary: Summary
    attempts: tuple[AttemptRecord, ...] = ()
    more_attempts: int = 0
    """Number of attempts left out after the first one."""
    timeline: tuple[PhaseEntry, ...] = ()
    curve: tuple[Point, ...] = ()
    environment: dict[str, str] = {}
    """Fields of the last attempt's pods, by name."""


class StoredRecord(View, frozen=True):
    """The ConfigMap of a record."""

    metadata: ObjectMeta
    binary_data: dict[str, bytes] = {}


def object_key(summary: Summary) -> ObjectKey:
    """Return the key of a record's ConfigMap; the UID distinguishes jobs that reuse a name."""
    return ObjectKey(summary.namespace, f"{summary.name}-history-{summary.uid[:8]}")


def manifest(record: Record, resource_version: str = "") -> JsonObject:
    """Return the ConfigMap of a record. It has no owner, so that it outlives the job."""
    key = object_key(record.summary)
    metadata: JsonObject = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": {names.LABEL_HISTORY: "v1", names.LABEL_JOB: record.summary.name},
        "annotations": {names.ANNOTATION_SUMMARY: msgspec.json.encode(record.summary).decode()},
    }
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData": {RECORD_KEY: pack(record)},
    }


def summary_of_object(metadata: ObjectMeta) -> Summary | None:
    """Return the summary in a ConfigMap, or None if it is not a record: any user can set the label."""
    return _summary(metadata.annotations.get(names.ANNOTATION_SUMMARY, ""), metadata.key)


def outline_of_record(encoded: msgspec.Raw) -> Summary | None:
    """Return the summary in an encoded ConfigMap, without texts. The rest of the ConfigMap is not decoded.

    The last failure of an unfinished job is kept: if the job is deleted, its record needs it.
    """
    try:
        metadata = decode(_RECORD_DECODER, encoded).metadata
    except DECODE_ERRORS:
        return None
    found = _summary(metadata.annotations.summary, ObjectKey(metadata.namespace, metadata.name))
    if found is None:
        return None
    failure = None if found.is_final else found.failure
    return msgspec.structs.replace(found, reason="", message="", goodput=None, failure=failure)


def _summary(text: str, key: ObjectKey) -> Summary | None:
    if len(text) > MAX_SUMMARY_LENGTH:
        return None
    try:
        found = msgspec.json.decode(text, type=Summary)
    except DECODE_ERRORS:
        return None
    is_plausible = object_key(found) == key and _is_bounded(found) and _has_plausible_times(found)
    return found if is_plausible else None


def _is_bounded(summary: Summary) -> bool:
    failure = summary.failure or Failure()
    words = (summary.uid, summary.mode, summary.result)
    texts = (summary.reason, summary.message, failure.pod, failure.reason, failure.message)
    return max(map(len, words)) <= MAX_WORD_LENGTH and max(map(len, texts)) <= MESSAGE_LENGTH


class _Annotations(msgspec.Struct, frozen=True):
    summary: str = msgspec.field(name=names.ANNOTATION_SUMMARY, default="")


class _RecordMeta(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    annotations: _Annotations = _Annotations()


class _RecordObject(msgspec.Struct, frozen=True):
    metadata: _RecordMeta


_RECORD_DECODER = msgspec.json.Decoder(_RecordObject)


def pack(record: Record) -> bytes:
    """Compress a record to at most MAX_BYTES, leaving out the least important parts first."""
    packed = b""
    for smaller in _shrink(bound_record(record)):
        plain = msgspec.json.encode(smaller)
        packed = gzip.compress(plain, mtime=0) if len(plain) <= MAX_PLAIN_BYTES else b""
        if packed and len(packed) <= MAX_BYTES:
            break
    return packed


def unpack(packed: bytes) -> Record | None:
    """Return a record, or None if the bytes are invalid."""
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = reader.decompress(packed, MAX_PLAIN_BYTES)
        record = msgspec.json.decode(content, type=Record) if reader.eof else None
    except (zlib.error, *DECODE_ERRORS):
        return None
    return record if _has_plausible_times(record) else None


def _has_plausible_times(part: object) -> bool:
    match part:
        case datetime():
            return MIN_YEAR <= part.year < MAX_YEAR
        case msgspec.Struct():
            return all(_has_plausible_times(getattr(part, field)) for field in part.__struct_fields__)
        case tuple():
            return all(map(_has_plausible_times, part))
    return True


def bound_record(record: Record) -> Record:
    """Return a record with lists of limited length; the first and the last entries are kept."""
    kept = _ends(record.attempts, MAX_ATTEMPTS)
    return msgspec.structs.replace(
        record,
        attempts=kept,
        more_attempts=record.more_attempts + len(record.attempts) - len(kept),
        timeline=_ends(record.timeline, MAX_PHASES),
        curve=thin_curve(record.curve, MAX_POINTS),
    )


def thin_curve(curve: tuple[Point, ...], most: int) -> tuple[Point, ...]:
    """Return a curve of at most `most` points, evenly spread; the first and the newest are kept.

    Repeated calls on a growing curve keep the points evenly spread.
    """
    while len(curve) > most:
        inner = range(1, len(curve) - 1)
        # Drop the points with the closest neighbours, but no two adjacent points in one pass.
        out: set[int] = set()
        for at in sorted(inner, key=lambda at: curve[at + 1].time - curve[at - 1].time):
            if len(curve) - len(out) > most and at - 1 not in out and at + 1 not in out:
                out.add(at)
        curve = tuple(point for at, point in enumerate(curve) if at not in out)
    return curve


def _ends(items: tuple[T, ...], most: int) -> tuple[T, ...]:
    return items if len(items) <= most else (items[0], *items[len(items) - most + 1 :])


_STEPS = ((8, 400, None), (1, 400, None), (1, 120, 2048), (1, 120, 400), (1, 0, 120))
"""For earlier attempts: number of ranks and text length of each; then the text length of the last attempt."""


def _shrink(record: Record) -> Iterator[Record]:
    """Yield smaller records: first without ranks and text of earlier attempts, then of the last, then all."""
    yield record
    for ranks, earlier, last in _STEPS if record.attempts else ():
        *before, newest = record.attempts
        shortened = [_shorten_attempt(each, ranks, earlier) for each in before]
        newest = newest if last is None else _shorten_attempt(newest, len(newest.ranks), last)
        yield msgspec.structs.replace(record, attempts=(*shortened, newest))
    ends = tuple(_shorten_attempt(each, 1, 120) for each in record.attempts)
    yield msgspec.structs.replace(record, attempts=ends, curve=thin_curve(record.curve, 64))
    yield Record(record.summary, attempts=ends[-1:])
    yield Record(record.summary)


def _shorten_attempt(attempt: AttemptRecord, most: int, length: int) -> AttemptRecord:
    """Limit the ranks of an attempt and the text of each; the rank that failed first keeps more."""
    kept = [
        msgspec.structs.replace(each, text=_end(each.text, length if position else 4 * max(length, 120)))
        for position, each in enumerate(attempt.ranks[:most])
    ]
    left_out = attempt.more_ranks + len(attempt.ranks) - len(kept)
    return msgspec.structs.replace(attempt, ranks=tuple(kept), more_ranks=left_out)


def _end(text: str, length: int) -> str:
    return text[-length:] if length else ""
