"""Reads the file that would go to `kubectl apply`: the job, and what else in it a laptop can honour."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.v1 import PaddleJob
from paddlejob.api.validation import validate
from paddlejob.api.validation.errors import FieldError, invalid, is_dns_label
from paddlejob.kubelet.environment import Contents
from paddlejob.local.errors import InputError
from paddlejob.local.input import strict, yaml_text

_BUILTIN = "v1"
_DATA_KEY = re.compile(r"(?!\.\.)(?!\.$)[-._a-zA-Z0-9]{1,253}")
_TEXT_MAPS = frozenset(
    ("annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "stringData")
)
_EXPLAINED = {
    "PodGroup": "local runs start all pods together",
    "PersistentVolume": "claims are directories; choose them with --volume CLAIM=DIR",
    "Namespace": "namespaces have no effect locally",
}


class JobFile(msgspec.Struct, frozen=True):
    """A job and the objects beside it in its file."""

    job: PaddleJob
    config_maps: Mapping[str, Contents] = {}
    secrets: Mapping[str, Contents] = {}
    notes: tuple[str, ...] = ()
    """What was read but has no effect here, one sentence each."""


def read(text: str, *, name: str = "", namespace: str = "", source: str = "the file") -> JobFile:
    """Read a file's text; `name` renames its job or, where it has several, chooses one.

    Raises InputError.
    """
    try:
        return _read(text, name, namespace, source)
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply") from error


def _read(text: str, name: str, namespace: str, source: str) -> JobFile:
    documents = list(load(text, source))
    chosen = _choose(documents, name, source)
    job = _job(chosen, name, namespace)
    others = [each for each in documents if each is not chosen and not _is_job(each)]
    return JobFile(
        job=job,
        config_maps={_name(each): _config_map(each) for each in others if _is(each, _BUILTIN, "ConfigMap")},
        secrets={_name(each): _secret(each) for each in others if _is(each, _BUILTIN, "Secret")},
        notes=tuple(_notes(others)),
    )


def load(text: str, source: str) -> Iterator[JsonObject]:
    """Yield the objects of a text, those in a List one by one, without fields that are null.

    Raises InputError.
    """
    for position, document in enumerate(yaml_text.load_all(text, source), start=1):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise InputError(f"document {position} of {source} is not an object; check its indentation")
        items = document.get("items") if document.get("kind") == "List" else None
        for each in items if isinstance(items, list) else (document,):
            if not isinstance(each, dict):
                raise InputError(f"the List in {source} has an item that is not an object")
            yield _without_nulls(each)


def _without_nulls(value: Any, *, is_text_map: bool = False) -> Any:
    """Leave out fields that are null, as an API server does; in a map of texts null is an empty text."""
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    if is_text_map:
        return {key: "" if each is None else each for key, each in value.items()}
    return {
        key: _without_nulls(each, is_text_map=key in _TEXT_MAPS)
        for key, each in value.items()
        if each is not None
    }


def _choose(documents: list[JsonObject], name: str, source: str) -> JsonObject:
    jobs = [each for each in documents if _is_job(each)]
    if not jobs:
        raise InputError(_no_job(documents, source))
    if len(jobs) == 1:
        return jobs[0]
    found = next((each for each in jobs if _name(each) == name), None)
    if found is None:
        known = ", ".join(_name(each) for each in jobs)
        raise InputError(f"{source} has {len(jobs)} jobs; choose one with --name ({known})")
    return found


def _no_job(documents: list[JsonObject], source: str) -> str:
    foreign = next((each for each in documents if each.get("kind") == names.KIND), None)
    if foreign is not None:
        version = str(foreign.get("apiVersion"))
        advice = "; convert it with `paddlejob convert`" if "kubeflow" in version else ""
        return f"apiVersion is {version}; only {names.API_VERSION} is understood{advice}"
    kinds = [str(each.get("kind")) for each in documents]
    if misspelt := next((kind for kind in kinds if strict.suggestion(kind, (names.KIND,))), None):
        return f"kind is {misspelt}; write {names.KIND}"
    return f"{source} has no {names.KIND}" + (f", only {', '.join(kinds)}" if kinds else "; it is empty")


def _job(document: JsonObject, name: str, namespace: str) -> PaddleJob:
    given = document.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    try:
        job = msgspec.convert({**document, "metadata": metadata, "status": {}}, PaddleJob)
    except msgspec.ValidationError as error:
        job = PaddleJob(metadata=ObjectMeta(name=_name(document)), undecodable=str(error))
    settled = msgspec.structs.replace(
        job.metadata,
        name=name or job.name,
        namespace=namespace or job.metadata.namespace or "default",
        uid=str(uuid.uuid4()),
        generation=1,
        resource_version="1",
        creation_timestamp=datetime.now(UTC),
        deletion_timestamp=None,
        finalizers=(),
    )
    job = msgspec.structs.replace(job, metadata=settled)
    if errors := _errors(job, document):
        raise InputError.of(errors)
    return job


def _errors(job: PaddleJob, document: JsonObject) -> list[FieldError]:
    """Return everything that is wrong with a job: its fields one by one, then as a whole."""
    fields = [*strict.field_errors(document), *_namespace_errors(job.metadata.namespace)]
    reported = {each.field for each in fields}
    if job.undecodable and fields:
        return fields
    return [*fields, *(each for each in validate(job) if each.field not in reported)]


def _namespace_errors(namespace: str) -> Iterator[FieldError]:
    """Refuse a namespace that the API server would refuse: it becomes the name of a directory."""
    if not is_dns_label(namespace):
        yield invalid("metadata.namespace", namespace, "must consist of lower-case letters, digits and '-'")


def _check_data(document: JsonObject) -> None:
    """Refuse what the API server would refuse; a key becomes the name of a file."""
    where = f"{document['kind']} {_name(document)}"
    errors = [f"{where}: {each}" for each in strict.field_errors(document)]
    for field in ("data", "binaryData", "stringData"):
        values = document.get(field)
        errors += [
            f"{where}: {field} has the key {key!r}; use letters, digits, '-', '_' and '.'"
            for key in (values if isinstance(values, dict) else ())
            if not _DATA_KEY.fullmatch(str(key))
        ]
    if errors:
        raise InputError(*errors)


def _config_map(document: JsonObject) -> Contents:
    _check_data(document)
    plain = {key: str(value).encode() for key, value in (document.get("data") or {}).items()}
    return {**plain, **_decoded(document, "binaryData")}


def _secret(document: JsonObject) -> Contents:
    _check_data(document)
    plain = {key: str(value).encode() for key, value in (document.get("stringData") or {}).items()}
    return {**_decoded(document, "data"), **plain}


def _decoded(document: JsonObject, field: str) -> Contents:
    values: dict[str, Any] = document.get(field) or {}
    try:
        return {key: base64.b64decode(value, validate=True) for key, value in values.items()}
    except (binascii.Error, ValueError, TypeError) as error:
        raise InputError(f"{document['kind']} {_name(document)}: {field} is not base64: {error}") from error


def _notes(others: list[JsonObject]) -> Iterator[str]:
    for each in others:
        kind = str(each.get("kind"))
        if _is(each, _BUILTIN, "ConfigMap", "Secret", "PersistentVolumeClaim"):
            continue
        why = _EXPLAINED.get(kind, "this kind has no effect locally")
        yield f"ignoring {kind} {_name(each)}: {why}"


def _is_job(document: JsonObject) -> bool:
    return _is(document, names.API_VERSION, names.KIND)


def _is(document: JsonObject, api_version: str, *kinds: str) -> bool:
    return document.get("apiVersion") == api_version and document.get("kind") in kinds


def _name(document: JsonObject) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
