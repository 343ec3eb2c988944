"""What is wrong with a job, in sentences for its author.

The CRD's schema refuses most of this at the API server. The operator still checks everything: jobs may be
older than the schema, clusters older than its rules, and the laptop has no API server at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from paddlejob.api import names
from paddlejob.api.defaulting import (
    WITH_GLOO_RANGE,
    EffectiveSpec,
    effective,
    read_clean_pod_policy,
    read_intranet,
)
from paddlejob.api.field_error import DNS_LABEL, DNS_LABEL_MAX, FieldError, describe, entry, kind_errors
from paddlejob.api.lifecycle import lifecycle_errors
from paddlejob.api.template import bounds_errors, quantity_errors, template_errors
from paddlejob.api.v1 import CleanPodPolicy, Intranet, PaddleJob, PaddleJobSpec, Role, RoleSpec
from paddlejob.api.variables import variable_errors

__all__ = ["FieldError", "validate"]

MAX_REPLICAS = 5000
"""The endpoints of this many pods, written as IPv4, still fit into one environment variable."""

MAX_VARIABLE_BYTES = 128 * 1024
"""Linux refuses to start a program with a longer variable (MAX_ARG_STRLEN)."""

MAX_NAME_LENGTH = 253
"""Of the objects that a schedulingPolicy names."""
MAX_MIN_RESOURCES = 64

_DECODER_MESSAGE = re.compile(r"(?P<what>.*) - at `\$\.(?P<path>.+)`")


def validate(job: PaddleJob, *, pods_have_ipv6: bool = False) -> tuple[FieldError, ...]:
    """Return everything that is wrong with a job, in the order in which its author reads the file.

    Where pods have IPv6 addresses, which Paddle cannot read, every job finds its pods by Services.
    """
    if job.undecodable:
        return (_undecodable(job.undecodable),)
    return tuple(_errors(job, effective(job.spec), pods_have_ipv6=pods_have_ipv6))


def _errors(job: PaddleJob, spec: EffectiveSpec, *, pods_have_ipv6: bool) -> Iterator[FieldError]:
    yield from _name_errors(job, spec, pods_have_ipv6=pods_have_ipv6)
    yield from _text_errors(job.spec)
    yield from _role_set_errors(job.spec)
    yield from _roles_errors(job.spec, spec)
    yield from _scheduling_errors(job.spec)
    yield from lifecycle_errors(job.spec)
    if pods_have_ipv6 or spec.intranet is Intranet.SERVICE:
        yield from _endpoint_list_errors(job, spec)


def _roles_errors(written: PaddleJobSpec, spec: EffectiveSpec) -> Iterator[FieldError]:
    """Whoever looks into a template relies on its bounds, so these come first."""
    is_bounded = True
    for role, role_spec in _declared_roles(written):
        path = f"spec.{role}.template"
        yield from _replicas_errors(role, role_spec)
        unbounded = tuple(bounds_errors(path, role_spec.template, min(role_spec.replicas, MAX_REPLICAS)))
        yield from unbounded
        if not unbounded and role_spec.replicas > 0:
            yield from template_errors(path, role_spec.template, role, spec.intranet)
        is_bounded = is_bounded and not unbounded
    if is_bounded:
        yield from variable_errors(spec)


def _undecodable(reason: str) -> FieldError:
    if found := _DECODER_MESSAGE.fullmatch(reason):
        return FieldError(found["path"], f"cannot be read: {found['what']}; correct the value")
    return FieldError("spec", f"cannot be read: {reason}; correct it")


def _name_errors(job: PaddleJob, spec: EffectiveSpec, *, pods_have_ipv6: bool) -> Iterator[FieldError]:
    """The job's name is the beginning of its pods' hostnames and of its services' names, if there are any."""
    name, path = job.name, "metadata.name"
    if not name:
        yield FieldError(path, "is missing; name the job")
    elif "." in name:
        yield FieldError(path, f"is {describe(name)}, but a hostname begins with it; write '-' for each '.'")
    elif not DNS_LABEL.fullmatch(name):
        yield FieldError(
            path, f"is {describe(name)}; use lower-case letters, digits and '-', and no '-' at either end"
        )
    elif pods_have_ipv6 and not name[0].isalpha():
        yield FieldError(
            path,
            f"is {describe(name)}, but on this IPv6 cluster every pod gets a service, whose name begins with "
            "a letter; put one in front",
        )
    elif spec.intranet is Intranet.SERVICE and not name[0].isalpha():
        yield FieldError(
            path,
            f"is {describe(name)}, but a service's name begins with a letter; "
            "put one in front or choose another intranet than Service",
        )
    longest = max((_highest_pod_name(name, *role) for role in spec.roles), key=len, default=name)
    if len(longest) > DNS_LABEL_MAX:
        yield FieldError(
            path,
            f"is {len(name)} characters long, so that the pod {longest} would have {len(longest)}, but a "
            f"hostname has at most {DNS_LABEL_MAX}; shorten it by {len(longest) - DNS_LABEL_MAX}",
        )


def _highest_pod_name(job_name: str, role: Role, spec: RoleSpec) -> str:
    return f"{job_name}-{role}-{spec.replicas - 1}"


def _text_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    for field, text in (("cleanPodPolicy", spec.clean_pod_policy), ("cleanPolicy", spec.clean_policy)):
        if read_clean_pod_policy(text) is None:
            yield _unknown_text(field, text, tuple(CleanPodPolicy))
    if read_intranet(spec.intranet) is None:
        yield _unknown_text("intranet", spec.intranet, tuple(Intranet))
    if spec.with_gloo is not None and spec.with_gloo not in WITH_GLOO_RANGE:
        yield FieldError(
            "spec.withGloo", f"is {spec.with_gloo}; write 0 (off), 1 (workers) or 2 (workers and servers)"
        )


def _unknown_text(field: str, text: str, known: tuple[str, ...]) -> FieldError:
    return FieldError(f"spec.{field}", f"is {describe(text)}; write {', '.join(known[:-1])} or {known[-1]}")


def _role_set_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    if spec.worker is None:
        reason = (
            "its parameter servers would serve nobody" if spec.replicas(Role.PS) else "nobody would train"
        )
        yield FieldError("spec.worker", f"is missing and {reason}; add it with replicas and a template")
    if spec.replicas(Role.HETER) and not spec.replicas(Role.PS):
        yield FieldError(
            "spec.heter", "needs parameter servers; add spec.ps with 1 replica or more, or remove spec.heter"
        )


def _declared_roles(spec: PaddleJobSpec) -> Iterator[tuple[Role, RoleSpec]]:
    for role, role_spec in ((Role.PS, spec.ps), (Role.WORKER, spec.worker), (Role.HETER, spec.heter)):
        if role_spec is not None:
            yield role, role_spec


def _replicas_errors(role: Role, spec: RoleSpec) -> Iterator[FieldError]:
    path, lowest = f"spec.{role}", 1 if role is Role.WORKER else 0
    if not lowest <= spec.replicas <= MAX_REPLICAS:
        yield FieldError(
            f"{path}.replicas", f"is {spec.replicas}; write a number from {lowest} to {MAX_REPLICAS}"
        )
    for field, count in (("requests", spec.requests), ("limits", spec.limits)):
        if count is not None and not 0 <= count <= MAX_REPLICAS:
            yield FieldError(f"{path}.{field}", f"is {count}; write a number from 0 to {MAX_REPLICAS}")
    if spec.requests is not None and spec.requests > spec.replicas:
        yield FieldError(
            f"{path}.requests",
            f"is {spec.requests}, more than the {spec.replicas} replicas whose minimum it is; lower it",
        )
    if spec.limits and spec.limits < spec.replicas:
        yield FieldError(
            f"{path}.limits",
            f"is {spec.limits}, less than the {spec.replicas} replicas whose maximum it is; raise it",
        )


def _scheduling_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    policy = spec.scheduling_policy
    if policy is None:
        return
    path, pods = "spec.schedulingPolicy", sum(role.replicas for _, role in spec.roles())
    if policy.min_available is not None and not 0 <= policy.min_available <= pods:
        yield FieldError(
            f"{path}.minAvailable",
            f"is {policy.min_available}, but the job has {pods} pods; write a number from 0 to {pods}",
        )
    for field, text in (("queue", policy.queue), ("priorityClass", policy.priority_class)):
        if len(text) > MAX_NAME_LENGTH:
            yield FieldError(
                f"{path}.{field}", f"is {describe(text)}; write at most {MAX_NAME_LENGTH} characters"
            )
    here = f"{path}.minResources"
    yield from kind_errors(here, policy.min_resources, dict, most=MAX_MIN_RESOURCES)
    for resource, amount in islice(policy.min_resources.items(), MAX_MIN_RESOURCES):
        yield from quantity_errors(entry(here, resource), amount)


def _endpoint_list_errors(job: PaddleJob, spec: EffectiveSpec) -> Iterator[FieldError]:
    """Service names are longer than addresses, so that their list reaches the limit of a variable first."""
    by_choice = spec.intranet is Intranet.SERVICE
    way_out = (
        ", shorten the job's name or choose intranet PodIP" if by_choice else " or shorten the job's name"
    )
    for role, role_spec in spec.roles:
        host = f"{_highest_pod_name(job.name, role, role_spec)}.{job.metadata.namespace}"
        room = MAX_VARIABLE_BYTES - len(names.Env.ALL_HETER_ENDPOINTS) - 2
        fitting = room // len(f"{host}:{names.BASE_PORT},")
        if fitting < role_spec.replicas <= MAX_REPLICAS:
            yield FieldError(
                f"spec.{role}.replicas",
                f"is {role_spec.replicas}, but only the names of {fitting} pods fit into an environment "
                f"variable; write less{way_out}",
            )
