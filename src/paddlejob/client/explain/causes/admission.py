"""Explain why the API server rejects an object: policies, webhooks, missing names, missing rights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Role
from paddlejob.client.explain.changes import (
    REQUESTS,
    follow_up,
    lower_resources,
    patch,
    remove_op,
    set_op,
    template_path,
)
from paddlejob.client.explain.demand import demands, parse_amounts
from paddlejob.client.explain.evidence import Evidence, template_shape
from paddlejob.client.explain.result import Advice, Finding

_REFUSED = re.compile(r"cannot (\w+) (\w+) (\S+): (.*)", re.DOTALL)
_QUOTA = re.compile(r"exceeded quota: ([^,]+), requested: (.*?), used: (.*?), limited: (.*?)(?:;|$)")
_UNLIMITED = re.compile(r"failed quota: ([^:]+): must specify (.*?)(?:; correct |; retrying|$)")
_POD_SECURITY = re.compile(r'violates PodSecurity "([^"]+)": (.*?)(?:; retrying|$)', re.DOTALL)
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request:? ?(.*?)(?:; retrying|$)', re.DOTALL)
_NO_WEBHOOK = re.compile(r'failed calling webhook "([^"]+)": (.*?)(?:; retrying|$)', re.DOTALL)
_POLICY = re.compile(
    r"ValidatingAdmissionPolicy '([^']+)'.*? denied request: (.*?)(?:; retrying|$)", re.DOTALL
)
_ACCOUNT = re.compile(r'serviceaccount "([^"]+)" not found')
_PRIORITY = re.compile(r"no PriorityClass with name (\S+) was found")
_LIMIT_RANGE = re.compile(r"((?:maximum|minimum) \S+ (?:usage|limit).*?)(?:; retrying|$)")
_OVER_DEFAULT = re.compile(r"must be less than or equal to (\S+) limit of ([^\s;]+)")
NON_ROOT_USER = 1000
_RIGHTS = re.compile(r'User "([^"]+)" cannot (\w+) resource "([^"]+)"')


class Refusal:
    """A write of the operator that the API server rejected."""

    def __init__(self, evidence: Evidence, kind: str, name: str, why: str) -> None:
        self.evidence = evidence
        self.object = f"{kind} {name}"
        self.why = why
        self.rank = name.removeprefix(f"{evidence.job.name}-") if kind == "Pod" else ""
        self.role = next((role for role in Role if self.rank.startswith(f"{role}-")), None)

    @property
    def template(self) -> JsonObject:
        """The pod spec in the template of the rejected pod."""
        spec = dict(self.evidence.roles).get(self.role) if self.role else None
        given = spec.template.get("spec") if spec and template_shape(spec) else None
        return given if isinstance(given, dict) else {}

    def finding(self, cause: str, summary: str, *advice: Advice, details: tuple[str, ...] = ()) -> Finding:
        return Finding(cause, summary, self.rank, details, advice)

    def change(self, text: str, *ops: JsonObject) -> Advice:
        return Advice(text, patch(self.evidence.job, *ops), then=follow_up(self.evidence))


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find an object of the job that the API server rejects."""
    status = evidence.job.status
    refused = _REFUSED.search(status.message) if status.reason == Reason.CREATE_FAILED else None
    if refused is None:
        return
    refusal = Refusal(evidence, refused[2], refused[3], refused[4])
    for read in READERS:
        if finding := read(refusal):
            yield finding
            return
    if not _QUOTA.search(refusal.why):
        yield refusal.finding("CreateFailed", status.message)


def _quota(refusal: Refusal) -> Finding | None:
    """Explain a quota that cannot be read from the rejection."""
    found = _QUOTA.search(refusal.why)
    if found is None or refusal.evidence.quotas:
        return None
    name, requested, used, limited = found.groups()
    text = f"quota {name} has no room for {refusal.rank or refusal.object}: {requested} more than {limited}"
    advice = Advice(f"ask for a larger quota {name}, lower the job's requests or replicas, or wait")
    return refusal.finding(
        "QuotaExceeded", text, advice, details=(f"requested {requested}, used {used} of {limited}",)
    )


def _unlimited(refusal: Refusal) -> Finding | None:
    found = _UNLIMITED.search(refusal.why)
    if found is None:
        return None
    resources = ", ".join(part.strip().replace(" for: ", " for ") for part in found[2].split(";"))
    text = f"quota {found[1]} requires {refusal.rank} to specify {resources}"
    advice = Advice(f"set these resources of the containers in spec.{refusal.role}.template: {resources}")
    return refusal.finding("QuotaNeedsLimits", text, advice)


def _pod_security(refusal: Refusal) -> Finding | None:
    found = _POD_SECURITY.search(refusal.why)
    if found is None:
        return None
    level, violations = found.groups()
    text = f"the namespace's Pod Security level {level} does not allow {refusal.rank}"
    details = tuple(part.strip() for part in re.split(r",\s+(?=[^()]*(?:\(|$))", violations))
    if "host namespaces" in violations or "hostPort" in violations:
        path = ("spec", "intranet")
        advice = refusal.change("set spec.intranet to PodIP or Service", set_op(path, "PodIP"))
    elif ops := _restricted_ops(refusal):
        advice = refusal.change(
            f"run the {refusal.role} as a non-root user that can write where the program writes, with a "
            "restricted securityContext",
            *ops,
        )
    else:
        advice = Advice(f"correct the securityContext in spec.{refusal.role}.template.spec")
    return refusal.finding("PodSecurity", text, advice, details=details)


def _restricted_ops(refusal: Refusal) -> tuple[JsonObject, ...]:
    """Add the fields that the level `restricted` requires to the template's own."""
    if "restricted" not in refusal.why or refusal.role is None or not refusal.template:
        return ()
    pod = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} | non_root(refusal.template)
    container = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    places: list[tuple[tuple[str | int, ...], JsonObject, JsonObject]] = [((), refusal.template, pod)]
    for group in ("initContainers", "containers"):
        given = enumerate(refusal.template.get(group) or ())
        places += [((group, index), each, container) for index, each in given]
    return tuple(_secured(refusal.role, *each) for each in places)


def non_root(template: JsonObject) -> JsonObject:
    """Return a non-root user for a pod spec, because most images run as root by default."""
    context = template.get("securityContext")
    user = context.get("runAsUser") if isinstance(context, dict) else None
    return {"runAsUser": user or NON_ROOT_USER}


def _secured(role: Role, place: tuple[str | int, ...], holder: JsonObject, more: JsonObject) -> JsonObject:
    given = holder.get("securityContext")
    context = {**(given if isinstance(given, dict) else {}), **more}
    return set_op(template_path(role, *place, "securityContext"), context)


def _webhook(refusal: Refusal) -> Finding | None:
    if found := _DENIED.search(refusal.why):
        text = f"admission webhook {found[1]} refuses {refusal.rank or refusal.object}: {found[2]}"
        return refusal.finding("WebhookDenied", text, Advice("change the job as the webhook asks"))
    if found := _NO_WEBHOOK.search(refusal.why):
        text = f"admission webhook {found[1]} does not answer, so {refusal.rank or refusal.object} is refused"
        ask = f"ask the owner of webhook {found[1]}; if it was uninstalled, delete its configuration"
        # The operator recognises the webhooks that an uninstalled Volcano leaves behind.
        known = refusal.why.partition("; retrying; ")[2]
        return refusal.finding("WebhookDown", text, Advice(known or ask), details=(found[2],))
    if found := _POLICY.search(refusal.why):
        text = f"ValidatingAdmissionPolicy {found[1]} refuses {refusal.rank or refusal.object}: {found[2]}"
        return refusal.finding("PolicyDenied", text, Advice("change the job as the policy asks"))
    return None


def _missing_name(refusal: Refusal) -> Finding | None:
    """Find a ServiceAccount or a PriorityClass that does not exist."""
    for pattern, kind, field in (
        (_ACCOUNT, "ServiceAccount", "serviceAccountName"),
        (_PRIORITY, "PriorityClass", "priorityClassName"),
    ):
        found = pattern.search(refusal.why)
        if found is None:
            continue
        text = f"{refusal.rank} names {kind} {found[1]}, which does not exist"
        advice = [Advice(f"create {kind} {found[1]}")]
        if refusal.role and refusal.template.get(field) == found[1]:
            op = remove_op(template_path(refusal.role, field))
            where = f"spec.{refusal.role}.template.spec.{field}"
            advice.insert(0, refusal.change(f"remove {where}", op))
        return refusal.finding(f"{kind}NotFound", text, *advice)
    return None


def _limit_range(refusal: Refusal) -> Finding | None:
    """Find resources that a LimitRange forbids, or that exceed its default limit."""
    if found := _OVER_DEFAULT.search(refusal.why):
        resource, limit = found.groups()
        text = f"{refusal.rank} requests more {resource} than the limit {limit} that a LimitRange gives it"
        return refusal.finding("LimitRange", text, *_within_limit(refusal, resource, limit))
    if found := _LIMIT_RANGE.search(refusal.why):
        text = f"a LimitRange of the namespace does not allow {refusal.rank}: {found[1]}"
        advice = Advice(f"change the resources in spec.{refusal.role}.template.spec")
        return refusal.finding("LimitRange", text, advice)
    return None


def _within_limit(refusal: Refusal, resource: str, limit: str) -> Iterator[Advice]:
    most = parse_amounts({resource: limit}).get(resource)
    for demand in demands(refusal.evidence):
        if demand.role == refusal.role and most is not None:
            advice = lower_resources(refusal.evidence, demand, {(REQUESTS, resource): most})
            if advice is not None:
                yield advice
    yield Advice(f"set limits.{resource} in spec.{refusal.role}.template, if the LimitRange allows more")


def _rights(refusal: Refusal) -> Finding | None:
    found = _RIGHTS.search(refusal.why)
    if found is None:
        return None
    text = f"the operator may not {found[2]} {found[3]}: it runs as {found[1]}"
    return refusal.finding(
        "OperatorForbidden", text, Advice("install the operator's ClusterRole of this version")
    )


READERS: tuple[Callable[[Refusal], Finding | None], ...] = (
    _quota,
    _unlimited,
    _pod_security,
    _webhook,
    _missing_name,
    _limit_range,
    _rights,
)
