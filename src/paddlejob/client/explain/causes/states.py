"""Find states that one sentence explains: new, running, finished, suspended, invalid, terminating."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from paddlejob.api import names
from paddlejob.api.defaulting import effective
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.client.explain.changes import patch, set_op
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.result import Advice, Finding
from paddlejob.client.job import running_seconds
from paddlejob.core.accelerators import unlaunched_cards
from paddlejob.core.pod_set import training_container, training_container_name
from paddlejob.text import duration
from paddlejob.training.hangs import NO_REPORT, NO_STEP

OPERATOR_SECONDS = 30.0
"""A running operator handles a new job within this time."""
NAMED_PODS = 3


def find_unmanaged(evidence: Evidence) -> Iterator[Finding]:
    """Find a job that no operator handles."""
    job = evidence.job
    if job.spec.managed_by not in ("", names.CONTROLLER_NAME):
        text = f"spec.managedBy leaves the job to {job.spec.managed_by}; the PaddleJob operator ignores it"
        yield Finding("ManagedElsewhere", text)
    elif not job.status.phase:
        age = _seconds(job.metadata.creation_timestamp, evidence.now)
        if age < OPERATOR_SECONDS:
            yield Finding("New", f"created {duration(age)} ago; the operator has not looked at it yet")
            return
        check = "check that the operator runs: kubectl get pods -A -l app.kubernetes.io/name=paddlejob"
        yield Finding(
            "NoOperator", f"no operator has looked at the job in {duration(age)}", advice=(Advice(check),)
        )


def find_settled(evidence: Evidence) -> Iterator[Finding]:
    """Find a job that its phase explains."""
    status, now = evidence.job.status, evidence.now
    match status.phase:
        case Phase.COMPLETED:
            seconds = running_seconds(evidence.job, now)
            took = "" if seconds is None else f" in {duration(seconds)}"
            details = (*_past(evidence), *_idle_cards(evidence))
            yield Finding("Completed", f"{status.message}{took}", details=details)
        case Phase.RUNNING if any(f"; {text}" in status.message for text in (NO_STEP, NO_REPORT)):
            stack = Advice(f"print the stacks of all ranks: {evidence.command('stack')}")
            yield Finding(str(Reason.HUNG), status.message, details=_past(evidence), advice=(stack,))
        case Phase.RUNNING if status.reason != Reason.INVALID_SPEC:
            since = status.active_since or status.start_time
            lasts = f" for {duration(_seconds(since, now))}" if since else ""
            details = (*_past(evidence), *_outdated(evidence), *_idle_cards(evidence))
            yield Finding("Running", f"{status.message}{lasts}", details=details)
        case Phase.SUSPENDED:
            resume = Advice(f"resume it: {evidence.command('resume')}", patch(evidence.job, _RESUME))
            yield Finding("Suspended", status.message, advice=(resume,))
        case Phase.TERMINATING:
            yield Finding("Deleting", "being deleted", details=tuple(_terminating(evidence)))


_RESUME = set_op(("spec", "suspend"), value=False)


def find_invalid(evidence: Evidence) -> Iterator[Finding]:
    """Find a job with a spec that the operator rejects."""
    status = evidence.job.status
    if status.reason == Reason.INVALID_SPEC:
        correct = Advice(f"correct these fields: kubectl edit pdj {evidence.job.name}")
        yield Finding("InvalidSpec", status.message, advice=(correct,))
    elif evidence.job.undecodable:
        yield Finding("InvalidSpec", evidence.job.undecodable)


def find_waiting(evidence: Evidence) -> Iterator[Finding]:
    """Repeat the operator's message, and name pods that are still terminating."""
    status, rank = evidence.job.status, evidence.blocking
    details = list(_terminating(evidence))
    if status.observed_generation < evidence.job.metadata.generation:
        details.append("the operator has not looked at the latest change of the job yet")
    left = (status.retry_time - evidence.now).total_seconds() if status.retry_time else 0.0
    soon = f" (in {duration(left)})" if left > 0 else ""
    text = f"{status.message or 'waiting for pods'}{soon}"
    yield Finding(status.reason or "Waiting", text, str(rank or ""), tuple(details))


def _past(evidence: Evidence) -> tuple[str, ...]:
    """Return how often a job was restarted, and its last failure."""
    status, limit = evidence.job.status, evidence.job.spec.backoff_limit
    if status.last_failure is None:
        return ()
    times = f"{status.restarts} of at most {limit} restarts used"
    return (
        f"{times}; last failure, in attempt {status.last_failure.attempt}: {status.last_failure.message}",
    )


def _idle_cards(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence if workers have more cards than processes, which looks like success."""
    if idle := unlaunched_cards(effective(evidence.job.spec)):
        yield idle


def _outdated(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence for each role with a newer template than its pods."""
    if evidence.job.metadata.generation <= 1:
        return
    for role, spec in evidence.job.spec.roles():
        pod = _named(evidence.pod_specs.get(role, {}).get("containers")).get(training_container_name(spec))
        changed = tuple(_changed(training_container(spec), pod)) if pod else ()
        if changed:
            yield (
                f"the {role} pods run with another {', '.join(changed)} than spec.{role}.template: a change "
                "of the template waits for the next restart"
            )


def _changed(template: JsonObject, pod: JsonObject) -> Iterator[str]:
    """Yield the fields of a container that the operator takes from the template and that differ."""
    yield from (field for field in ("image", "command", "args") if template.get(field) != pod.get(field))
    before = _named(pod.get("env"))
    for name, variable in _named(template.get("env")).items():
        if name not in _OWN_ENV and "value" in variable and variable["value"] != _value(before.get(name)):
            yield f"env {name}"


_OWN_ENV = names.PROTECTED_ENV | {"PYTHONPATH"}
"""Variables that the operator and the recorder override."""


def _value(variable: JsonObject | None) -> object:
    return None if variable is None else variable.get("value", "")


def _named(items: object) -> dict[str, JsonObject]:
    """Return the objects of a list, by name."""
    listed = items if isinstance(items, list) else []
    return {str(each["name"]): each for each in listed if isinstance(each, dict) and "name" in each}


def _terminating(evidence: Evidence) -> Iterator[str]:
    """Yield the pods that are being deleted, with the finalizers that hold them."""
    terminating = [pod for pod in evidence.pods if pod.metadata.deletion_timestamp is not None]
    for pod in terminating[:NAMED_PODS]:
        since = duration(_seconds(pod.metadata.deletion_timestamp, evidence.now))
        held = (
            f", held by the finalizer {', '.join(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
        )
        where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
        yield f"pod {pod.metadata.name}{where} has been terminating for {since}{held}"
    if len(terminating) > NAMED_PODS:
        yield f"{len(terminating) - NAMED_PODS} more pods are terminating"


def _seconds(since: datetime | None, until: datetime) -> float:
    return (until - since).total_seconds() if since else 0.0
