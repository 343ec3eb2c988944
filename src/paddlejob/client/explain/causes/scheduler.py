"""Translate the scheduler's message about a pod, the only source if the nodes cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from paddlejob.api.quantity import ZERO
from paddlejob.client.explain.changes import follow_up, patch, set_op, template_path
from paddlejob.client.explain.demand import Demand, demands
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.objects import Toleration
from paddlejob.client.explain.result import Advice, Finding
from paddlejob.core.pod_set import ObservedPod
from paddlejob.text import duration

_MESSAGE = re.compile(r"0/(\d+) nodes are available: (.*)", re.DOTALL)
_PREEMPTION = re.compile(r"[.,]? (?:no new claims to deallocate|preemption:).*", re.DOTALL)
_REASON = re.compile(r"(\d+) (?:node\(s\) )?(.*)")
_TAINT = re.compile(r"had untolerated taint \{([^:}]+): ?([^}]*)\}")
_STORAGE = re.compile(r"persistentvolume", re.IGNORECASE)
_NO_MATCH = "didn't match Pod's node affinity/selector"
_PLAIN = {
    "had untolerated taint(s)": "have taints that the pod does not tolerate",
    _NO_MATCH: "do not match the pod's nodeSelector or node affinity",
    "were unschedulable": "are cordoned",
    "didn't match pod anti-affinity rules": "are ruled out by the pod's anti-affinity",
    "didn't match pod affinity rules": "do not satisfy the pod's affinity",
    "didn't match pod topology spread constraints": "are ruled out by the pod's topologySpreadConstraints",
    "didn't have free ports for the requested pod ports": "have the pod's host ports in use",
    "had volume node affinity conflict": "cannot reach the pod's volumes",
    "didn't find available persistent volumes to bind": "have no free volume for the pod's claims",
    "Too many pods": "have reached their pod limit",
}
_MAX_MESSAGE = 4096
SCHEDULER_SECONDS = 30.0
"""A running scheduler handles a pod within this time."""


class SchedulerVerdict(msgspec.Struct, frozen=True):
    """Why the scheduler has no node for a pod."""

    rank: str
    nodes: int
    reasons: tuple[tuple[int, str], ...]
    """The number of nodes for each reason, in plain words."""
    message: str
    """The original message."""
    insufficient: tuple[str, ...] = ()
    taints: tuple[Toleration, ...] = ()
    """The missing tolerations that the message names."""

    def __str__(self) -> str:
        if not self.reasons:
            return self.message
        parts = (f"{count} of {self.nodes} nodes {words}" for count, words in self.reasons)
        return ", ".join(parts)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find that the scheduler has no node for a pod, or that there is no scheduler for it."""
    for demand in demands(evidence):
        verdict = next(verdicts(evidence, demand), None)
        if verdict is None:
            yield from _unscheduled(evidence, demand)
        elif evidence.claims is None or not _STORAGE.search(verdict.message):
            summary = f"the scheduler has no node for {verdict.rank}: {verdict}"
            yield Finding(
                "Unschedulable", summary, verdict.rank, advice=tuple(_advice(evidence, demand, verdict))
            )


def _unscheduled(evidence: Evidence, demand: Demand) -> Iterator[Finding]:
    """Find a pod that no scheduler has handled for a while."""
    for member in evidence.unscheduled:
        created = member.pod.metadata.creation_timestamp
        if member.replica.role is not demand.role or created is None:
            continue
        if (waited := (evidence.now - created).total_seconds()) < SCHEDULER_SECONDS:
            continue
        name, rank = demand.shape.scheduler_name or "default-scheduler", str(member.replica)
        field = f"spec.{demand.role}.template.spec.schedulerName"
        text = f"no scheduler has looked at {rank} in {duration(waited)}: its schedulerName is {name}"
        check = f"check that a scheduler called {name} runs, or change {field}"
        yield Finding("NoScheduler", text, rank, advice=(Advice(check),))
        return


def _advice(evidence: Evidence, demand: Demand, verdict: SchedulerVerdict) -> Iterator[Advice]:
    role = demand.role
    if verdict.taints:
        tolerations = [msgspec.to_builtins(each) for each in verdict.taints]
        given = demand.template.get("tolerations") or ()
        op = set_op(template_path(role, "tolerations"), [*given, *tolerations])
        named = " and ".join(f"{each.key}={each.value}".rstrip("=") for each in verdict.taints)
        yield Advice(f"let the {role} tolerate {named}", patch(evidence.job, op), then=follow_up(evidence))
    for resource in verdict.insufficient:
        now = demand.requests.get(resource, ZERO)
        yield Advice(
            f"lower the {resource} request of each {role} (now {now}) or spec.{role}.replicas "
            f"(now {demand.replicas}), or wait; by how much is unknown without access to the nodes"
        )
    if any(words == _PLAIN[_NO_MATCH] for _, words in verdict.reasons):
        yield Advice(f"relax nodeSelector and affinity in spec.{role}.template.spec, or label a node")


def verdicts(evidence: Evidence, demand: Demand | None = None) -> Iterator[SchedulerVerdict]:
    """Yield the scheduler's verdicts on pods without a node, those with their own reason first."""
    refusals = [
        (member, message)
        for member in evidence.unscheduled
        if (message := _message(member)) and (demand is None or member.replica.role is demand.role)
    ]
    # Most members of a gang only wait for the others; the one that does not fit has the reason.
    refusals.sort(key=lambda entry: _MESSAGE.search(entry[1]) is None)
    for member, message in refusals:
        yield _read(str(member.replica), message[:_MAX_MESSAGE])


def _message(member: ObservedPod) -> str:
    for condition in member.pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    return ""


def _read(rank: str, message: str) -> SchedulerVerdict:
    found = _MESSAGE.search(message)
    if found is None:
        return SchedulerVerdict(rank, 0, (), message)
    own = _PREEMPTION.sub("", found[2]).rstrip(". ")
    parts = [_REASON.fullmatch(part.strip()) for part in own.split(", ")]
    reasons = tuple((int(part[1][:9]), part[2]) for part in parts if part)
    if len(reasons) < len(parts):
        return SchedulerVerdict(rank, 0, (), own)
    taints = (_TAINT.fullmatch(text) for _, text in reasons)
    return SchedulerVerdict(
        rank,
        int(found[1][:9]),
        tuple((count, _plain(text)) for count, text in reasons),
        own,
        tuple(text.removeprefix("Insufficient ") for _, text in reasons if text.startswith("Insufficient ")),
        tuple(Toleration(taint[1], "Equal", taint[2].strip()) for taint in taints if taint),
    )


def _plain(text: str) -> str:
    if text.startswith("Insufficient "):
        return f"have too little {text.removeprefix('Insufficient ')} left"
    if taint := _TAINT.fullmatch(text):
        return f"have the taint {taint[1]}={taint[2].strip()}".rstrip("=")
    return _PLAIN.get(text, text)
