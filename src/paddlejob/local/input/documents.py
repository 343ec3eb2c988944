"""Reads a job file as `kubectl apply` would: the job, and the ConfigMaps and Secrets in the same file.

Keys of a YAML mapping may not repeat, and dates stay strings. Errors name the line.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import yaml

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.v1 import PaddleJob
from paddlejob.api.validation import validate
from paddlejob.api.validation.errors import FieldError, invalid, is_dns_label
from paddlejob.kube.decoding import without_nulls
from paddlejob.kubelet import Contents
from paddlejob.local.errors import InputError
from paddlejob.local.input import strict
from paddlejob.yaml_depth import check_depth

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_BUILTIN = "v1"
_DATA_KEY = re.compile(r"(?!\.\.)(?!\.$)[-._a-zA-Z0-9]{1,253}")
_STRING_MAPS = frozenset(
    ("annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "stringData")
)
_IGNORED_KINDS = {
    "PodGroup": "local runs start all pods together",
    "PersistentVolume": "claims are directories; choose them with --volume CLAIM=DIR",
    "Namespace": "namespaces have no effect locally",
}


class JobFile(msgspec.Struct, frozen=True):
    """A job and the other objects in its file."""

    job: PaddleJob
    config_maps: Mapping[str, Contents] = {}
    secrets: Mapping[str, Contents] = {}
    notes: tuple[str, ...] = ()
    """Objects without effect on this machine, one sentence each."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The fast loader, without implicit dates."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load_yaml(text: str, source: str) -> list[Any]:
    """Return the documents of a YAML text. Raises InputError, which calls the text `source`."""
    try:
        check_depth(text, _Loader)
        return list(_yaml_documents(text))
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply") from error
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not valid YAML: {_yaml_problem(error, text)}") from error
    except ValueError as error:
        # Raised for a scalar that looks like a number but cannot be converted.
        raise InputError(f"{source} is not valid YAML: {error}") from error


def _yaml_documents(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            _refuse_repeated_keys(node, set())
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_repeated_keys(node: yaml.Node, seen: set[int]) -> None:
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _refuse_repeated_keys(each, seen)
        return
    lines: dict[Any, int] = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in lines:
                problem = f"{key.value} is set twice, here and in line {lines[key.value]}; remove one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        _refuse_repeated_keys(value, seen)


def _yaml_problem(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    line = next(iter(text.splitlines()[mark.line : mark.line + 1]), "")
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {mark.line + 1} is indented with a tab; use spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', error)}"


def read(text: str, *, name: str = "", namespace: str = "", source: str = "the file") -> JobFile:
    """Read a job file. `name` renames its job, or selects one if there are several.

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
        config_maps=_contents(others, "ConfigMap", plain="data", encoded="binaryData"),
        secrets=_contents(others, "Secret", plain="stringData", encoded="data"),
        notes=tuple(_notes(others)),
    )


def load(text: str, source: str) -> Iterator[JsonObject]:
    """Yield the objects of a text and the items of a List, without null fields. Raises InputError."""
    for position, document in enumerate(load_yaml(text, source), start=1):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise InputError(f"document {position} of {source} is not an object; check its indentation")
        items = document.get("items") if document.get("kind") == "List" else None
        for each in items if isinstance(items, list) else (document,):
            if not isinstance(each, dict):
                raise InputError(f"the List in {source} has an item that is not an object")
            yield without_nulls(each, string_maps=_STRING_MAPS)


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
    completed = msgspec.structs.replace(
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
    job = msgspec.structs.replace(job, metadata=completed)
    if errors := _errors(job, document):
        raise InputError.of(errors)
    return job


def _errors(job: PaddleJob, document: JsonObject) -> list[FieldError]:
    """Return the errors of single fields, then those of the job as a whole."""
    fields, namespace = list(strict.field_errors(document)), job.metadata.namespace
    if not is_dns_label(namespace):
        # The namespace becomes the name of a directory.
        problem = "must consist of lower-case letters, digits and '-'"
        fields.append(invalid("metadata.namespace", namespace, problem))
    reported = {each.field for each in fields}
    if job.undecodable and fields:
        return fields
    return [*fields, *(each for each in validate(job) if each.field not in reported)]


def _check_data(document: JsonObject) -> None:
    """Reject data that the API server would reject: a key becomes the name of a file."""
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


def _contents(others: list[JsonObject], kind: str, *, plain: str, encoded: str) -> dict[str, Contents]:
    """Return the data of all ConfigMaps or Secrets by name."""
    found: dict[str, Contents] = {}
    for document in others:
        if _is(document, _BUILTIN, kind):
            _check_data(document)
            texts = {key: str(value).encode() for key, value in (document.get(plain) or {}).items()}
            found[_name(document)] = {**_decoded(document, encoded), **texts}
    return found


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
        why = _IGNORED_KINDS.get(kind, "this kind has no effect locally")
        yield f"ignoring {kind} {_name(each)}: {why}"


def _is_job(document: JsonObject) -> bool:
    return _is(document, names.API_VERSION, names.KIND)


def _is(document: JsonObject, api_version: str, *kinds: str) -> bool:
    return document.get("apiVersion") == api_version and document.get("kind") in kinds


def _name(document: JsonObject) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
