"""CEL rules of the CRD that need several fields or a specific message.

The API server evaluates them when a job is written, so that its author sees the error immediately.
`validation` checks the same and more, also without such an API server. The schema limits every text and list
in a rule, because the API server rejects a CRD with potentially expensive rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from paddlejob.api import names
from paddlejob.api.defaulting import INTRANETS
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import Intranet, Role
from paddlejob.api.validation.errors import DNS_LABEL_MAX
from paddlejob.api.validation.spares import NEEDS_IN_PLACE, NEEDS_POD_IP, NOT_ELASTIC, ONLY_COLLECTIVE
from paddlejob.api.validation.template import HOST_NETWORK, POD_IP_SOURCE

_ENV = "self.containers[0].env"
_NO_ENV = f"size(self.containers) == 0 || !has({_ENV})"


def _rule(expression: str, message: str, **optional: str) -> JsonObject:
    """Return a validation rule; `optional` has messageExpression or fieldPath."""
    return {"rule": expression, "message": message, **optional}


def job_rules() -> list[JsonObject]:
    """Return the rules of the whole object: its name, and spec fields that depend on each other."""
    no_dot = _rule(
        "!self.metadata.name.contains('.')",
        "must not contain '.', which pods' hostnames cannot contain; use '-'",
        fieldPath=".metadata.name",
    )
    letter_first = _rule(
        f"!has(self.spec.intranet) || self.spec.intranet.lowerAscii() != '{Intranet.SERVICE.lower()}'"
        " || self.metadata.name.matches('^[a-z]')",
        "must begin with a letter, as names of Services do; rename the job or choose another intranet",
        fieldPath=".metadata.name",
    )
    return [
        no_dot,
        letter_first,
        *(make(role) for make in (_name_length_rule, _network_rule) for role in Role),
    ]


def spec_rules() -> list[JsonObject]:
    """Return the rules on combinations of roles."""
    return [
        _rule("has(self.worker)", "a job needs workers; add spec.worker with replicas and a template"),
        _rule(
            "!has(self.heter) || self.heter.replicas == 0 || (has(self.ps) && self.ps.replicas > 0)",
            "heter pods need parameter servers; add spec.ps with 1 replica or more, or remove spec.heter",
            fieldPath=".heter",
        ),
        _rule(
            "!has(self.schedulingPolicy) || !has(self.schedulingPolicy.minAvailable)"
            f" || self.schedulingPolicy.minAvailable <= {_total('self')}",
            "must not exceed the job's number of pods",
            fieldPath=".schedulingPolicy.minAvailable",
        ),
        _rule(
            "!has(self.restartPolicy) || !has(self.restartPolicy.parked) || !self.restartPolicy.parked"
            " || !has(self.recorder) || self.recorder",
            "needs the recorder; remove recorder: false",
            fieldPath=".restartPolicy.parked",
        ),
        *_spares_rules(),
    ]


def _spares_rules() -> list[JsonObject]:
    by_address = _list(["", *(text for text, intranet in INTRANETS.items() if intranet is Intranet.POD_IP)])
    bounds = ("requests", "limits")
    is_fixed = " && ".join(f"(!has(self.worker.{each}) || self.worker.{each} == 0)" for each in bounds)
    no_servers = " && ".join(f"(!has(self.{role}) || self.{role}.replicas == 0)" for role in ("ps", "heter"))
    conditions = {
        no_servers: ONLY_COLLECTIVE,
        f"!has(self.elastic) && (!has(self.worker) || ({is_fixed}))": NOT_ELASTIC,
        f"!has(self.intranet) || self.intranet.lowerAscii() in {by_address}": NEEDS_POD_IP,
        "(!has(self.recorder) || self.recorder)"
        " && (!has(self.restartPolicy) || self.restartPolicy.inPlace)": NEEDS_IN_PLACE,
    }
    return [
        _rule(f"!has(self.spares) || self.spares == 0 || ({condition})", message, fieldPath=".spares")
        for condition, message in conditions.items()
    ]


def restart_policy_rules() -> list[JsonObject]:
    fields = [f"self.{kind}ExitCodes" for kind in ("permanent", "retryable", "ignored")]
    overlaps = [
        f"(has({one}) && has({other}) && {one}.exists(code, code in {other}))"
        for one, other in combinations(fields, 2)
    ]
    return [
        _rule(
            f"!({' || '.join(overlaps)})", "an exit code is in more than one list; remove it from all but one"
        ),
        _rule(
            "self.maxDelaySeconds >= self.delaySeconds",
            "must not be less than delaySeconds",
            fieldPath=".maxDelaySeconds",
        ),
        _rule(
            "!has(self.parked) || !self.parked || self.inPlace",
            "needs restarts in place; remove inPlace: false",
            fieldPath=".parked",
        ),
    ]


def managed_by_rules() -> list[JsonObject]:
    return [_rule("self == oldSelf", "field is immutable; create a new job")]


def role_rules() -> list[JsonObject]:
    return [
        _rule(
            "self.replicas == 0 || has(self.template)",
            "template is missing; describe the pods there, at least spec.containers",
        ),
        _rule(
            "!has(self.requests) || self.requests <= self.replicas",
            "must not exceed replicas",
            fieldPath=".requests",
        ),
        _rule(
            "!has(self.limits) || self.limits == 0 || self.limits >= self.replicas",
            "must not be less than replicas",
            fieldPath=".limits",
        ),
    ]


def pod_rules(role: Role) -> list[JsonObject]:
    """Return the rules on a role's `template.spec`."""
    rules = [_no_protected_variable_rule(), _own_address_rule()]
    if role is not Role.PS:
        rules.append(
            _rule(
                "!has(self.restartPolicy) || self.restartPolicy != 'Always'",
                f"must be OnFailure or Never: otherwise a {role} that succeeded would be restarted, "
                "and the job would never complete",
                fieldPath=".restartPolicy",
            )
        )
    return rules


def spelling_rules(accepted: Iterable[str], known: Iterable[str]) -> list[JsonObject]:
    """Return the rule on the accepted spellings of a word; the message lists the known ones."""
    *first, last = known
    return [_rule(f"self.lowerAscii() in {_list(['', *accepted])}", f"must be {', '.join(first)} or {last}")]


def _name_length_rule(role: Role) -> JsonObject:
    replicas = f"self.spec.{role}.replicas"
    size = f"size(self.metadata.name) + {len(f'-{role}-')} + size(string({replicas} - 1))"
    return _rule(
        f"!has(self.spec.{role}) || {replicas} < 1 || {size} <= {DNS_LABEL_MAX}",
        f"the hostname <name>-{role}-<highest index> would have more than {DNS_LABEL_MAX} characters; "
        "shorten the name",
        fieldPath=".metadata.name",
    )


def _network_rule(role: Role) -> JsonObject:
    """Reject hostNetwork only in a new job with several pods.

    The API server also checks a job when its status is written. Before Kubernetes 1.30, a stored job that
    violates a new rule could therefore never get a status again. The operator reports the error instead.
    """
    network, replicas = f"self.spec.{role}.template.spec.hostNetwork", f"self.spec.{role}.replicas"
    by_host = _list(text for text, intranet in INTRANETS.items() if intranet is Intranet.HOST)
    return _rule(
        f"has(self.status) || {_total('self.spec')} == 1"
        f" || !has(self.spec.{role}) || {replicas} < 1 || !has(self.spec.{role}.template)"
        f" || !has({network}) || !{network}"
        f" || (has(self.spec.intranet) && self.spec.intranet.lowerAscii() in {by_host})",
        HOST_NETWORK,
        fieldPath=f".spec.{role}.template.spec.hostNetwork",
    )


def _no_protected_variable_rule() -> JsonObject:
    """Reject variables of the operator, except POD_IP, which has another rule.

    `in` with a constant list is one lookup for each variable. The message iterates over the list instead of
    the variables, which is cheaper in the API server's worst-case estimate.
    """
    protected = _list(sorted(names.PROTECTED_ENV - {Env.POD_IP}))
    return _rule(
        f"{_NO_ENV} || !{_ENV}.exists(v, v.name in {protected})",
        "env of the first container sets a variable that the operator sets for every pod; remove it",
        messageExpression=f"{protected}.filter(name, {_ENV}.exists(v, v.name == name))[0]"
        " + ' is set by the operator for every pod; remove it from env of the first container'",
    )


def _own_address_rule() -> JsonObject:
    reference = "v.valueFrom.fieldRef"
    is_ours = f"has(v.valueFrom) && has({reference}) && {reference}.fieldPath == '{POD_IP_SOURCE}'"
    return _rule(
        f"{_NO_ENV} || {_ENV}.all(v, v.name != '{Env.POD_IP}' || ({is_ours}))",
        f"{Env.POD_IP} is set by the operator for every pod; remove it from env of the first container",
    )


def _total(spec: str) -> str:
    """Return the CEL expression for the number of pods of a job."""
    return " + ".join(f"(has({spec}.{role}) ? {spec}.{role}.replicas : 0)" for role in Role)


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"
