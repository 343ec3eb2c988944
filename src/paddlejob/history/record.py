"""The record of a job that outlives the job and its pods, and its bounded form on a cluster."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectKey, ObjectMeta, View
from paddlejob.api.v1 import Failure, Goodput, Phase
from paddlejob.core.messages import MESSAGE_LENGTH
from paddlejob.kube.decoding import DECODE_ERRORS, decode

T = TypeVar("T")
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""Records are compared by time, and anybody can write one: a time without an offset is refused."""

MAX_BYTES = 256 * 1024
"""The compressed record of a job is never larger than this."""
MAX_PLAIN_BYTES = 1024 * 1024
"""Nor is it larger than this when it is decompressed; what says otherwise was not written by us."""
MAX_SUMMARY_LENGTH = 16 * 1024
"""Maximum length of an encoded summary; its longest texts are two messages of a status."""
MAX_WORD_LENGTH = 64
MAX_ATTEMPTS = 64
MAX_PHASES = 128
MAX_POINTS = 512

MIN_YEAR, MAX_YEAR = 2000, 2200
"""Years of all times in a record. Time zones and local clocks cannot represent times far outside of them."""
MAX_TIME = int(datetime(MAX_YEAR, 1, 1, tzinfo=UTC).timestamp())

DELETED = "Deleted"
"""The result of a job that was deleted before it had ended; otherwise the result is its phase."""
RECORD_KEY = "record.json.gz"
_FINAL = frozenset({str(Phase.COMPLETED), str(Phase.FAILED), DELETED})


class RankEnd(View, frozen=True):
    """How a rank ended in an attempt, and the last that it printed."""

    rank: str
    state: str = ""
    """failed or succeeded; running where it was stopped because its job hung."""
    exit_code: int = 0
    reason: str = ""
    node: str = ""
    time: Moment | None = None
    text: str = ""
    """The last lines of its log, or its termination message where the log was not read."""
    from_log: bool = False


class Change(View, frozen=True):
    """Something that was not the same as in the attempt before; empty where it was not there."""

    name: str
    before: str = ""
    after: str = ""


class AttemptRecord(View, frozen=True):
    """One attempt of a job, and what ended it."""

    attempt: int = 0
    result: str = ""
    """Completed, Failed, Deleted, the next phase of the job (Restarting, Scaling), or Running in a hang."""
    reason: str = ""
    message: str = ""
    began: Moment | None = None
    ended: Moment | None = None
    failure: Failure | None = None
    """Who failed first."""
    ranks: tuple[RankEnd, ...] = ()
    """The ranks that had ended, the one that failed first before all others; of a hang, also running ones."""
    more_ranks: int = 0
    """How many more had ended."""
    changes: tuple[Change, ...] = ()


class PhaseEntry(View, frozen=True):
    """The job entered a phase, or another reason for it."""

    time: Moment
    phase: str
    reason: str = ""
    message: str = ""


class Point(View, frozen=True, array_like=True):
    """How far training was at a time."""

    time: Annotated[int, msgspec.Meta(ge=0, lt=MAX_TIME)]
    """Seconds since the epoch."""
    epoch: int = 0
    step: int = 0
    loss: str = ""
    attempt: int = 0


class Summary(View, frozen=True):
    """What a list of jobs shows."""

    name: str
    namespace: str = ""
    uid: str = ""
    mode: str = ""
    result: str = ""
    """Completed, Failed or Deleted; of a job that has not ended, its phase."""
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
    """Where its time went."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more is to come."""
        return self.result in _FINAL


class Record(View, frozen=True):
    """All that is kept of a job."""

    summary: Summary
    attempts: tuple[AttemptRecord, ...] = ()
    more_attempts: int = 0
    """How many attempts are left out, after the first that is kept."""
    timeline: tuple[PhaseEntry, ...] = ()
    curve: tuple[Point, ...] = ()
    environment: dict[str, str] = {}
    """What the pods of the last attempt were made from, by name."""


class StoredRecord(View, frozen=True):
    """The ConfigMap that a record is kept in."""

    metadata: ObjectMeta
    binary_data: dict[str, bytes] = {}


def object_key(summary: Summary) -> ObjectKey:
    """Return where a job's record is kept; jobs that have the same name one after the other differ in it."""
    return ObjectKey(summary.namespace, f"{summary.name}-history-{summary.uid[:8]}")


def manifest(record: Record, resource_version: str = "") -> JsonObject:
    """Return the ConfigMap of a record, which belongs to nobody, so that it outlives the job."""
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
    """Return the summary on a ConfigMap, None for one that is not a record: anybody can label one."""
    return _summary(metadata.annotations.get(names.ANNOTATION_SUMMARY, ""), metadata.key)


def outline_of_record(encoded: msgspec.Raw) -> Summary | None:
    """Return the summary of an encoded ConfigMap without texts; of the ConfigMap, nothing else is decoded.

    Of a job that has not ended, the last failure is kept: it may be all that is left for its record.
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
    """Return a record in at most MAX_BYTES; what is least needed is left out first."""
    packed = b""
    for smaller in _smaller_and_smaller(bounded(record)):
        plain = msgspec.json.encode(smaller)
        packed = gzip.compress(plain, mtime=0) if len(plain) <= MAX_PLAIN_BYTES else b""
        if packed and len(packed) <= MAX_BYTES:
            break
    return packed


def unpack(packed: bytes) -> Record | None:
    """Return a record, None where the bytes are not one."""
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


def bounded(record: Record) -> Record:
    """Return a record whose lists are as long as they may be: its beginning and its end stay."""
    kept = _ends(record.attempts, MAX_ATTEMPTS)
    return msgspec.structs.replace(
        record,
        attempts=kept,
        more_attempts=record.more_attempts + len(record.attempts) - len(kept),
        timeline=_ends(record.timeline, MAX_PHASES),
        curve=thinned(record.curve, MAX_POINTS),
    )


def thinned(curve: tuple[Point, ...], most: int) -> tuple[Point, ...]:
    """Return a curve of so many points, spread over its whole time; the first and the newest stay.

    However often it is called while a curve grows, no part of it is left out more than another.
    """
    while len(curve) > most:
        inner = range(1, len(curve) - 1)
        # Those with the closest neighbours go, but no two neighbours at once.
        out: set[int] = set()
        for at in sorted(inner, key=lambda at: curve[at + 1].time - curve[at - 1].time):
            if len(curve) - len(out) > most and at - 1 not in out and at + 1 not in out:
                out.add(at)
        curve = tuple(point for at, point in enumerate(curve) if at not in out)
    return curve


def _ends(items: tuple[T, ...], most: int) -> tuple[T, ...]:
    return items if len(items) <= most else (items[0], *items[len(items) - most + 1 :])


_STEPS = ((8, 400, None), (1, 400, None), (1, 120, 2048), (1, 120, 400), (1, 0, 120))
"""How many ranks of earlier attempts stay, with how much text each; and how much text of the last attempt."""


def _smaller_and_smaller(record: Record) -> Iterator[Record]:
    """Leave out ranks and lines of earlier attempts first, then lines of the last, then all but the end."""
    yield record
    for ranks, earlier, last in _STEPS if record.attempts else ():
        *before, newest = record.attempts
        shortened = [_shortened(each, ranks, earlier) for each in before]
        newest = newest if last is None else _shortened(newest, len(newest.ranks), last)
        yield msgspec.structs.replace(record, attempts=(*shortened, newest))
    ends = tuple(_shortened(each, 1, 120) for each in record.attempts)
    yield msgspec.structs.replace(record, attempts=ends, curve=thinned(record.curve, 64))
    yield Record(record.summary, attempts=ends[-1:])
    yield Record(record.summary)


def _shortened(attempt: AttemptRecord, most: int, length: int) -> AttemptRecord:
    """Keep so many ranks of an attempt, and so much text of each; who failed first keeps more."""
    kept = [
        msgspec.structs.replace(each, text=_end(each.text, length if position else 4 * max(length, 120)))
        for position, each in enumerate(attempt.ranks[:most])
    ]
    left_out = attempt.more_ranks + len(attempt.ranks) - len(kept)
    return msgspec.structs.replace(attempt, ranks=tuple(kept), more_ranks=left_out)


def _end(text: str, length: int) -> str:
    return text[-length:] if length else ""
