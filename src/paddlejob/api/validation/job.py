"""What is wrong with a job, in sentences for its author.

The CRD's schema refuses most of this at the API server. The operator still checks everything: jobs may be
older than the schema, clusters older than its rules, and the laptop has no API server at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, islice

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec, effective, read_clean_pod_policy, read_intranet
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
from paddlejob.api.validation.bounds import bounds_errors
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
    unsupported,
)
from paddlejob.api.validation.template import quantity_errors, template_errors, unworkable_errors

MAX_VARIABLE_BYTES = 128 * 1024
"""Linux refuses to start a program with a longer variable (MAX_ARG_STRLEN)."""

MAX_SPEC_BYTES = 256 * 1024
"""Maximum size of a spec as JSON; an ordinary one has 2 to 20 KiB. The operator reads no larger one."""

MAX_MIN_RESOURCES, MAX_EXIT_CODES, WORD_MAX = 64, 255, 32
_TOO_LARGE = "Too large: "
_DECODER_MESSAGE = re.compile(r"(?P<what>.*) - at `\$\.(?P<path>.+)`")


def validate(job: PaddleJob, *, pods_have_ipv6: bool = False) -> tuple[FieldError, ...]:
    """Return everything that is wrong with a job, in the order in which its author reads the file.

    Where pods have IPv6 addresses, which Paddle cannot read, every job finds its pods by Services.
    """
    if job.undecodable:
        return (_undecodable(job.undecodable),)
    return tuple(_errors(job, effective(job.spec), pods_have_ipv6=pods_have_ipv6))


def too_large(size: int) -> str:
    """Return why a spec of so many bytes is refused."""
    return (
        f"{_TOO_LARGE}{-(-size // 1024)} KiB as JSON, at most {MAX_SPEC_BYTES // 1024} KiB are allowed; "
        "put data into a ConfigMap, a volume or the image"
    )


def _errors(job: PaddleJob, spec: EffectiveSpec, *, pods_have_ipv6: bool) -> Iterator[FieldError]:
    yield from _name_errors(job, spec, pods_have_ipv6=pods_have_ipv6)
    yield from _size_errors(job.spec)
    yield from bounds_errors("spec", job.spec)
    yield from _word_errors(job.spec)
    yield from _role_set_errors(job.spec)
    yield from _roles_errors(job, spec)
    if job.spec.scheduling_policy is not None:
        yield from _scheduling_errors("spec.schedulingPolicy", job.spec.scheduling_policy, job.spec)
    yield from _restart_policy_errors("spec.restartPolicy", job.spec.restart_policy)
    if pods_have_ipv6 or spec.intranet is Intranet.SERVICE:
        yield from _endpoint_list_errors(job, spec)


def _size_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    try:
        size = len(msgspec.json.encode(spec))
    except (RecursionError, TypeError, ValueError):
        return  # a template that is nested too deeply, or is YAML and no JSON, is refused elsewhere
    if size > MAX_SPEC_BYTES:
        yield FieldError("spec", too_large(size))


def _undecodable(reason: str) -> FieldError:
    if reason.startswith(_TOO_LARGE):
        return FieldError("spec", reason)
    if found := _DECODER_MESSAGE.fullmatch(reason):
        return FieldError(found["path"], f"Invalid value: cannot be decoded: {found['what']}")
    return FieldError("spec", f"Invalid value: cannot be decoded: {reason}")


def _name_errors(job: PaddleJob, spec: EffectiveSpec, *, pods_have_ipv6: bool) -> Iterator[FieldError]:
    """The job's name is the beginning of its pods' hostnames and of its services' names, if there are any."""
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
    longest = max((_highest_pod_name(name, *role) for role in spec.roles), key=len, default=name)
    if len(longest) > DNS_LABEL_MAX:
        yield invalid(
            path,
            name,
            f"must be at most {len(name) - len(longest) + DNS_LABEL_MAX} characters long, because pod "
            f"{longest} would have {len(longest)} and a hostname has at most {DNS_LABEL_MAX}",
        )


def _highest_pod_name(job_name: str, role: Role, spec: RoleSpec) -> str:
    return f"{job_name}-{role}-{spec.replicas - 1}"


def _word_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    """Check the words that are accepted in several spellings; a longer text is out of bounds already."""
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
    """Check the bounds of a template first: all other checks of a template rely on them."""
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
    """Return whether templates may have hostNetwork: each pod has an endpoint of its node alone.

    A job that has run was accepted by an operator without this check, and can still be restarted. Its pods
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
    yield from bounds_errors(path, spec, {"replicas": 1} if role is Role.WORKER else None)
    if spec.requests is not None and spec.requests > spec.replicas:
        yield invalid(f"{path}.requests", spec.requests, f"must not exceed replicas ({spec.replicas})")
    if spec.limits and spec.limits < spec.replicas:
        yield invalid(f"{path}.limits", spec.limits, f"must not be less than replicas ({spec.replicas})")


def _scheduling_errors(path: str, policy: SchedulingPolicy, spec: PaddleJobSpec) -> Iterator[FieldError]:
    yield from bounds_errors(path, policy)
    pods = sum(role.replicas for _, role in spec.roles())
    if policy.min_available is not None and MAX_REPLICAS >= policy.min_available > pods:
        yield invalid(
            f"{path}.minAvailable", policy.min_available, f"must not exceed the job's number of pods ({pods})"
        )
    for resource, amount in islice(policy.min_resources.items(), MAX_MIN_RESOURCES):
        yield from quantity_errors(entry(f"{path}.minResources", resource), amount)


def _restart_policy_errors(path: str, policy: RestartPolicy) -> Iterator[FieldError]:
    yield from bounds_errors(path, policy)
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


def _endpoint_list_errors(job: PaddleJob, spec: EffectiveSpec) -> Iterator[FieldError]:
    """Service names are longer than addresses, so that their list reaches the limit of a variable first."""
    by_choice = spec.intranet is Intranet.SERVICE
    way_out = "shorten the job's name or choose intranet PodIP" if by_choice else "shorten the job's name"
    for role, role_spec in spec.roles:
        host = f"{_highest_pod_name(job.name, role, role_spec)}.{job.metadata.namespace}"
        room = MAX_VARIABLE_BYTES - len(names.Env.ALL_HETER_ENDPOINTS) - 2
        fitting = room // len(f"{host}:{names.BASE_PORT},")
        if fitting < role_spec.replicas <= MAX_REPLICAS:
            yield invalid(
                f"spec.{role}.replicas",
                role_spec.replicas,
                f"must be at most {fitting}, because the names of all pods are in one environment variable; "
                f"{way_out}",
            )
