"""Validates a whole job.

The CRD's schema rejects most of these errors at the API server. The operator checks everything again: a job
may be older than the schema, a cluster too old for its rules, and a local run has no API server.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from itertools import combinations, islice
from typing import Any

import msgspec
import msgspec.inspect as shape

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec, effective, read_clean_pod_policy, read_intranet
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import (
    MAX_REPLICAS,
    CleanPodPolicy,
    Intranet,
    PaddleJob,
    PaddleJobSpec,
    RestartPolicy,
    Role,
    RoleSpec,
    SchedulingPolicy,
)
from paddlejob.api.validation.env import env_errors
from paddlejob.api.validation.errors import (
    DNS_LABEL,
    DNS_LABEL_MAX,
    FieldError,
    duplicate,
    entry,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from paddlejob.api.validation.spares import spares_errors
from paddlejob.api.validation.template import quantity_errors, template_errors, unworkable_errors

MAX_VARIABLE_BYTES = 128 * 1024
"""Linux does not start a program with a longer variable (MAX_ARG_STRLEN)."""

MAX_SPEC_BYTES = 256 * 1024
"""Maximum size of a spec as JSON; usual specs have 2 to 20 KiB. The operator does not decode larger ones."""

MAX_MIN_RESOURCES, MAX_EXIT_CODES, WORD_MAX = 64, 255, 32
_TOO_LARGE = "Too large: "
_DECODER_MESSAGE = re.compile(r"(?P<detail>.*) - at `\$\.(?P<path>.+)`")


def validate(job: PaddleJob, *, pods_have_ipv6: bool = False) -> tuple[FieldError, ...]:
    """Return all errors of a job, in the order of its fields.

    If pods have IPv6 addresses, which Paddle does not support, all jobs use Services.
    """
    if job.undecodable:
        return (_undecodable(job.undecodable),)
    return tuple(_errors(job, effective(job.spec), pods_have_ipv6=pods_have_ipv6))


def too_large(size: int) -> str:
    """Return the message for a spec of this many bytes."""
    return (
        f"{_TOO_LARGE}{-(-size // 1024)} KiB as JSON, at most {MAX_SPEC_BYTES // 1024} KiB are allowed; "
        "put data into a ConfigMap, a volume or the image"
    )


def _errors(job: PaddleJob, spec: EffectiveSpec, *, pods_have_ipv6: bool) -> Iterator[FieldError]:
    yield from _name_errors(job, spec, pods_have_ipv6=pods_have_ipv6)
    yield from _size_errors(job.spec)
    yield from _bounds_errors("spec", job.spec)
    yield from _word_errors(job.spec)
    yield from _role_set_errors(job.spec)
    yield from _roles_errors(job, spec)
    if job.spec.scheduling_policy is not None:
        yield from _scheduling_errors("spec.schedulingPolicy", job.spec.scheduling_policy, job.spec)
    yield from _restart_policy_errors("spec.restartPolicy", job.spec.restart_policy)
    if job.spec.restart_policy.parked and job.spec.recorder is False:
        yield forbidden("spec.restartPolicy.parked", "needs the recorder; remove recorder: false")
    yield from spares_errors(job.spec, spec)
    if pods_have_ipv6 or spec.intranet is Intranet.SERVICE:
        yield from _endpoint_list_errors(job, spec)


def _size_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    try:
        size = len(msgspec.json.encode(spec))
    except (RecursionError, TypeError, ValueError):
        return  # other checks report templates that are nested too deeply or are not JSON
    if size > MAX_SPEC_BYTES:
        yield FieldError("spec", too_large(size))


def _undecodable(reason: str) -> FieldError:
    if reason.startswith(_TOO_LARGE):
        return FieldError("spec", reason)
    if found := _DECODER_MESSAGE.fullmatch(reason):
        return FieldError(found["path"], f"Invalid value: cannot be decoded: {found['detail']}")
    return FieldError("spec", f"Invalid value: cannot be decoded: {reason}")


def _name_errors(job: PaddleJob, spec: EffectiveSpec, *, pods_have_ipv6: bool) -> Iterator[FieldError]:
    """Check the job's name, the prefix of the names of its pods and Services."""
    name, path = job.name, "metadata.name"
    if not name:
        yield required(path, "give the job a name")
    elif "." in name:
        yield invalid(path, name, "must not contain '.', which pods' hostnames cannot contain; use '-'")
    elif not DNS_LABEL.fullmatch(name):
        yield invalid(
            path,
            name,
            "must consist of lower-case letters, digits and '-', with a letter or digit at both ends",
        )
    elif pods_have_ipv6 and not name[0].isalpha():
        yield invalid(
            path, name, "must begin with a letter, because every pod gets a Service on this IPv6 cluster"
        )
    elif spec.intranet is Intranet.SERVICE and not name[0].isalpha():
        yield invalid(
            path,
            name,
            "must begin with a letter, as names of Services do; rename the job or choose another intranet",
        )
    spares = {Role.WORKER: max(0, job.spec.spares)}
    longest = max(
        (_highest_pod_name(name, *role, spares.get(role[0], 0)) for role in spec.roles), key=len, default=name
    )
    if len(longest) > DNS_LABEL_MAX:
        yield invalid(
            path,
            name,
            f"must be at most {len(name) - len(longest) + DNS_LABEL_MAX} characters long, because pod "
            f"{longest} would have {len(longest)} and a hostname has at most {DNS_LABEL_MAX}",
        )


def _highest_pod_name(job_name: str, role: Role, spec: RoleSpec, spares: int = 0) -> str:
    return f"{job_name}-{role}-{spec.replicas + spares - 1}"


def _word_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    """Check the fields with several accepted spellings; too long texts are reported by their bounds."""
    for field, text in (("cleanPodPolicy", spec.clean_pod_policy), ("cleanPolicy", spec.clean_policy)):
        if read_clean_pod_policy(text) is None and len(text) <= WORD_MAX:
            yield unsupported(f"spec.{field}", text, CleanPodPolicy)
    if read_intranet(spec.intranet) is None and len(spec.intranet) <= WORD_MAX:
        yield unsupported("spec.intranet", spec.intranet, Intranet)


def _role_set_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    if spec.worker is None:
        yield required("spec.worker", "a job needs workers; add replicas and a template")
    if spec.replicas(Role.HETER) and not spec.replicas(Role.PS):
        yield forbidden("spec.heter", "heter pods need parameter servers; add spec.ps or remove spec.heter")


def _roles_errors(job: PaddleJob, spec: EffectiveSpec) -> Iterator[FieldError]:
    """Check the size of each template first, because all other checks rely on it."""
    is_workable, allows_host_network = True, _allows_host_network(job, spec)
    for role, role_spec in _declared_roles(job.spec):
        path = f"spec.{role}.template"
        yield from _replicas_errors(role, role_spec)
        unworkable = tuple(unworkable_errors(path, role_spec.template, min(role_spec.replicas, MAX_REPLICAS)))
        yield from unworkable
        if not unworkable and role_spec.replicas > 0:
            yield from template_errors(
                path, role_spec.template, role, spec.intranet, allows_host_network=allows_host_network
            )
        is_workable = is_workable and not unworkable
    if is_workable:
        yield from env_errors(spec)


def _allows_host_network(job: PaddleJob, spec: EffectiveSpec) -> bool:
    """Return whether templates may set hostNetwork, because no two pods can share an endpoint.

    A job that has run before was accepted by an operator without this check and can still restart. Its pods
    do not start while two of them share an address.
    """
    pods = sum(role.replicas for _, role in job.spec.roles())
    return spec.intranet is Intranet.HOST or pods == 1 or job.status.start_time is not None


def _declared_roles(spec: PaddleJobSpec) -> Iterator[tuple[Role, RoleSpec]]:
    for role, role_spec in ((Role.PS, spec.ps), (Role.WORKER, spec.worker), (Role.HETER, spec.heter)):
        if role_spec is not None:
            yield role, role_spec


def _replicas_errors(role: Role, spec: RoleSpec) -> Iterator[FieldError]:
    path = f"spec.{role}"
    yield from _bounds_errors(path, spec, {"replicas": 1} if role is Role.WORKER else None)
    if spec.requests is not None and spec.requests > spec.replicas:
        yield invalid(f"{path}.requests", spec.requests, f"must not exceed replicas ({spec.replicas})")
    if spec.limits and spec.limits < spec.replicas:
        yield invalid(f"{path}.limits", spec.limits, f"must not be less than replicas ({spec.replicas})")


def _scheduling_errors(path: str, policy: SchedulingPolicy, spec: PaddleJobSpec) -> Iterator[FieldError]:
    yield from _bounds_errors(path, policy)
    pods = sum(role.replicas for _, role in spec.roles())
    if policy.min_available is not None and MAX_REPLICAS >= policy.min_available > pods:
        yield invalid(
            f"{path}.minAvailable", policy.min_available, f"must not exceed the job's number of pods ({pods})"
        )
    for resource, amount in islice(policy.min_resources.items(), MAX_MIN_RESOURCES):
        yield from quantity_errors(entry(f"{path}.minResources", resource), amount)


def _restart_policy_errors(path: str, policy: RestartPolicy) -> Iterator[FieldError]:
    yield from _bounds_errors(path, policy)
    codes = {
        "permanentExitCodes": policy.permanent_exit_codes[:MAX_EXIT_CODES],
        "retryableExitCodes": policy.retryable_exit_codes[:MAX_EXIT_CODES],
        "ignoredExitCodes": policy.ignored_exit_codes[:MAX_EXIT_CODES],
    }
    for (field, listed), (other, others) in combinations(codes.items(), 2):
        for code in sorted(set(listed) & set(others)):
            yield duplicate(f"{path}.{other}", code, f"also in {field}; remove it from one of them")
    if policy.max_delay_seconds < policy.delay_seconds:
        yield invalid(
            f"{path}.maxDelaySeconds",
            policy.max_delay_seconds,
            f"must not be less than delaySeconds ({policy.delay_seconds})",
        )
    if policy.parked and not policy.in_place:
        yield forbidden(f"{path}.parked", "needs restarts in place; remove inPlace: false")


def _endpoint_list_errors(job: PaddleJob, spec: EffectiveSpec) -> Iterator[FieldError]:
    """Check that the list of Service names, which are longer than addresses, fits into a variable."""
    by_choice = spec.intranet is Intranet.SERVICE
    fix = "shorten the job's name or choose intranet PodIP" if by_choice else "shorten the job's name"
    for role, role_spec in spec.roles:
        host = f"{_highest_pod_name(job.name, role, role_spec)}.{job.metadata.namespace}"
        room = MAX_VARIABLE_BYTES - len(names.Env.ALL_HETER_ENDPOINTS) - 2
        fitting = room // len(f"{host}:{names.BASE_PORT},")
        if fitting < role_spec.replicas <= MAX_REPLICAS:
            yield invalid(
                f"spec.{role}.replicas",
                role_spec.replicas,
                f"must be at most {fitting}, because the names of all pods are in one environment variable; "
                f"{fix}",
            )


def _bounds_errors(
    path: str, values: msgspec.Struct, minima: Mapping[str, int] | None = None
) -> Iterator[FieldError]:
    """Check the bounds of a struct's fields (`meta.about`), not of nested structs; `minima` win."""
    for name, field, bounds in _bounded_fields(type(values)):
        value = getattr(values, name)
        if value is not None and value != "":
            stated = {**bounds, "minimum": minima[name]} if minima and name in minima else bounds
            yield from _value_errors(f"{path}.{field}", value, stated)


@functools.cache
def _bounded_fields(struct: type) -> tuple[tuple[str, str, JsonObject], ...]:
    info = shape.type_info(struct)
    assert isinstance(info, shape.StructType)
    return tuple(
        (field.name, field.encode_name, field.type.extra_json_schema)
        for field in info.fields
        if isinstance(field.type, shape.Metadata) and field.type.extra_json_schema
    )


def _value_errors(path: str, value: Any, bounds: JsonObject) -> Iterator[FieldError]:
    match value:
        case bool():
            return
        case int():
            yield from _number_errors(path, value, bounds)
        case str():
            yield from _text_errors(path, value, bounds)
        case tuple() if "maxItems" in bounds:
            if len(value) > bounds["maxItems"]:
                yield too_many(path, len(value), bounds["maxItems"])
            for index, item in enumerate(value[: bounds["maxItems"]]):
                yield from _value_errors(f"{path}[{index}]", item, bounds["items"])
        case dict() if len(value) > bounds.get("maxProperties", len(value)):
            yield too_many(path, len(value), bounds["maxProperties"])


def _number_errors(path: str, number: int, bounds: JsonObject) -> Iterator[FieldError]:
    minimum, maximum = bounds.get("minimum", number), bounds.get("maximum", number)
    if not minimum <= number <= maximum:
        allowed = f"between {minimum} and {maximum}" if "maximum" in bounds else f"at least {minimum}"
        yield invalid(path, number, f"must be {allowed}")


def _text_errors(path: str, text: str, bounds: JsonObject) -> Iterator[FieldError]:
    if len(text) > bounds.get("maxLength", len(text)):
        yield too_long(path, bounds["maxLength"])
    if text not in bounds.get("enum", (text,)):
        yield unsupported(path, text, bounds["enum"])
