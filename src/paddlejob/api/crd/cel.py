"""Rules of the CRD that need more than one field or a sentence of their own, in CEL.

The API server evaluates them when a job is written, so that its author sees the error at once. `validation`
checks the same, and more, where there is no such API server. Every text and list that a rule reads is bounded
in the schema: the API server refuses a CRD whose rules could become expensive.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from paddlejob.api import names
from paddlejob.api.defaulting import CLEAN_POD_POLICIES, INTRANETS
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import CleanPodPolicy, Intranet, Role
from paddlejob.api.validation.errors import DNS_LABEL_MAX
from paddlejob.api.validation.template import HOST_NETWORK, POD_IP_SOURCE

_ENV = "self.containers[0].env"
_NO_ENV = f"size(self.containers) == 0 || !has({_ENV})"


def rule(expression: str, message: str, *, say: str = "", field: str = "") -> JsonObject:
    """Return a validation rule; `say` is an expression that words the message with the values at hand."""
    made: JsonObject = {"rule": expression, "message": message}
    if say:
        made["messageExpression"] = say
    if field:
        made["fieldPath"] = field
    return made


def job_rules() -> list[JsonObject]:
    """Return the rules of the whole object: its name, and fields of the spec that depend on each other."""
    no_dot = rule(
        "!self.metadata.name.contains('.')",
        "must not contain '.', which pods' hostnames cannot contain; use '-'",
        field=".metadata.name",
    )
    letter_first = rule(
        f"!has(self.spec.intranet) || self.spec.intranet.lowerAscii() != '{Intranet.SERVICE.lower()}'"
        " || self.metadata.name.matches('^[a-z]')",
        "must begin with a letter, as names of Services do; rename the job or choose another intranet",
        field=".metadata.name",
    )
    return [
        no_dot,
        letter_first,
        *(make(role) for make in (_name_length_rule, _network_rule) for role in Role),
    ]


def spec_rules() -> list[JsonObject]:
    """Return the rules about which roles go together."""
    return [
        rule("has(self.worker)", "a job needs workers; add spec.worker with replicas and a template"),
        rule(
            "!has(self.heter) || self.heter.replicas == 0 || (has(self.ps) && self.ps.replicas > 0)",
            "heter pods need parameter servers; add spec.ps with 1 replica or more, or remove spec.heter",
            field=".heter",
        ),
        rule(
            "!has(self.schedulingPolicy) || !has(self.schedulingPolicy.minAvailable)"
            f" || self.schedulingPolicy.minAvailable <= {_total('self')}",
            "must not exceed the job's number of pods",
            field=".schedulingPolicy.minAvailable",
        ),
    ]


def restart_policy_rules() -> list[JsonObject]:
    """Return the rules about how failures count and how long restarts wait."""
    fields = [f"self.{kind}ExitCodes" for kind in ("permanent", "retryable", "ignored")]
    overlaps = [
        f"(has({one}) && has({other}) && {one}.exists(code, code in {other}))"
        for one, other in combinations(fields, 2)
    ]
    return [
        rule(
            f"!({' || '.join(overlaps)})", "an exit code is in more than one list; remove it from all but one"
        ),
        rule(
            "self.maxDelaySeconds >= self.delaySeconds",
            "must not be less than delaySeconds",
            field=".maxDelaySeconds",
        ),
    ]


def managed_by_rules() -> list[JsonObject]:
    """Return the rule that a job's controller stays the same."""
    return [rule("self == oldSelf", "field is immutable; create a new job")]


def role_rules() -> list[JsonObject]:
    """Return the rules about the pods of one role."""
    return [
        rule(
            "self.replicas == 0 || has(self.template)",
            "template is missing; describe the pods there, at least spec.containers",
        ),
        rule(
            "!has(self.requests) || self.requests <= self.replicas",
            "must not exceed replicas",
            field=".requests",
        ),
        rule(
            "!has(self.limits) || self.limits == 0 || self.limits >= self.replicas",
            "must not be less than replicas",
            field=".limits",
        ),
    ]


def pod_rules(role: Role) -> list[JsonObject]:
    """Return the rules about a role's `template.spec`."""
    rules = [_no_protected_variable_rule(), _own_address_rule()]
    if role is not Role.PS:
        rules.append(
            rule(
                "!has(self.restartPolicy) || self.restartPolicy != 'Always'",
                f"must be OnFailure or Never: a {role} that succeeded would start again, "
                "the job never complete",
                field=".restartPolicy",
            )
        )
    return rules


def clean_pod_policy_rules() -> list[JsonObject]:
    """Return the rule about the spellings of a clean policy."""
    return [_spelling_rule(CLEAN_POD_POLICIES, CleanPodPolicy)]


def intranet_rules() -> list[JsonObject]:
    """Return the rule about the spellings of a network."""
    return [_spelling_rule(INTRANETS, Intranet)]


def _spelling_rule(accepted: Iterable[str], known: Iterable[str]) -> JsonObject:
    *first, last = known
    return rule(f"self.lowerAscii() in {_list(['', *accepted])}", f"write {', '.join(first)} or {last}")


def _name_length_rule(role: Role) -> JsonObject:
    replicas = f"self.spec.{role}.replicas"
    size = f"size(self.metadata.name) + {len(f'-{role}-')} + size(string({replicas} - 1))"
    return rule(
        f"!has(self.spec.{role}) || {replicas} < 1 || {size} <= {DNS_LABEL_MAX}",
        f"the hostname <name>-{role}-<highest index> would have more than {DNS_LABEL_MAX} characters; "
        "shorten the name",
        field=".metadata.name",
    )


def _network_rule(role: Role) -> JsonObject:
    """Refuse hostNetwork in a new job of several pods only.

    The API server also checks a job when its status is written; before Kubernetes 1.30 a stored job that
    breaks a new rule could never get a status again. The operator reports it instead.
    """
    network, replicas = f"self.spec.{role}.template.spec.hostNetwork", f"self.spec.{role}.replicas"
    by_host = _list(text for text, intranet in INTRANETS.items() if intranet is Intranet.HOST)
    return rule(
        f"has(self.status) || {_total('self.spec')} == 1"
        f" || !has(self.spec.{role}) || {replicas} < 1 || !has(self.spec.{role}.template)"
        f" || !has({network}) || !{network}"
        f" || (has(self.spec.intranet) && self.spec.intranet.lowerAscii() in {by_host})",
        HOST_NETWORK,
        field=f".spec.{role}.template.spec.hostNetwork",
    )


def _no_protected_variable_rule() -> JsonObject:
    """POD_IP has a rule of its own.

    `in` a constant list is one look-up for each variable. The message is put together the other way round: by
    the API server's estimate, which counts the variables that there may be at most, that is cheaper.
    """
    protected = _list(sorted(names.PROTECTED_ENV - {Env.POD_IP}))
    return rule(
        f"{_NO_ENV} || !{_ENV}.exists(v, v.name in {protected})",
        "env of the first container sets a variable that the operator sets for every pod; remove it",
        say=f"{protected}.filter(name, {_ENV}.exists(v, v.name == name))[0]"
        " + ' is set by the operator for every pod; remove it from env of the first container'",
    )


def _own_address_rule() -> JsonObject:
    reference = "v.valueFrom.fieldRef"
    is_ours = f"has(v.valueFrom) && has({reference}) && {reference}.fieldPath == '{POD_IP_SOURCE}'"
    return rule(
        f"{_NO_ENV} || {_ENV}.all(v, v.name != '{Env.POD_IP}' || ({is_ours}))",
        f"{Env.POD_IP} is set by the operator for every pod; remove it from env of the first container",
    )


def _total(spec: str) -> str:
    """Return the expression for the number of pods of a job."""
    return " + ".join(f"(has({spec}.{role}) ? {spec}.{role}.replicas : 0)" for role in Role)


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"
