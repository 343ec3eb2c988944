"""Jobs that one sentence explains: new, running, done, suspended, invalid, waiting for pods to go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.client.explain.changes import patch, set_op
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.result import Advice, Finding
from paddlejob.client.job import running_seconds
from paddlejob.core.messages import duration
from paddlejob.core.pod_set import training_container, training_container_name
from paddlejob.core.recording.hangs import NO_REPORT, NO_STEP

OPERATOR_SECONDS = 30.0
"""An operator that runs has looked at a job by then."""
NAMED_PODS = 3


def not_looked_at(evidence: Evidence) -> Iterator[Finding]:
    """Find a job that no operator works on."""
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


def settled(evidence: Evidence) -> Iterator[Finding]:
    """Find a job whose phase says it all."""
    status, now = evidence.job.status, evidence.now
    match status.phase:
        case Phase.COMPLETED:
            seconds = running_seconds(evidence.job, now)
            took = "" if seconds is None else f" in {duration(seconds)}"
            yield Finding("Completed", f"{status.message}{took}", details=_past(evidence))
        case Phase.RUNNING if any(f"; {what}" in status.message for what in (NO_STEP, NO_REPORT)):
            look = Advice(f"see where in its code each rank is: {evidence.command('stack')}")
            yield Finding(str(Reason.HUNG), status.message, details=_past(evidence), advice=(look,))
        case Phase.RUNNING if status.reason != Reason.INVALID_SPEC:
            since = status.active_since or status.start_time
            lasts = f" for {duration(_seconds(since, now))}" if since else ""
            details = (*_past(evidence), *_outdated(evidence))
            yield Finding("Running", f"{status.message}{lasts}", details=details)
        case Phase.SUSPENDED:
            resume = Advice(f"resume it: {evidence.command('resume')}", patch(evidence.job, _RESUME))
            yield Finding("Suspended", status.message, advice=(resume,))
        case Phase.TERMINATING:
            yield Finding("Deleting", "being deleted", details=tuple(_leaving(evidence)))


_RESUME = set_op(("spec", "suspend"), value=False)


def invalid(evidence: Evidence) -> Iterator[Finding]:
    """Find a job whose spec the operator refuses."""
    status = evidence.job.status
    if status.reason == Reason.INVALID_SPEC:
        correct = Advice(f"correct these fields: kubectl edit pdj {evidence.job.name}")
        yield Finding("InvalidSpec", status.message, advice=(correct,))
    elif evidence.job.undecodable:
        yield Finding("InvalidSpec", evidence.job.undecodable)


def waiting(evidence: Evidence) -> Iterator[Finding]:
    """Say what the operator says, and which pods are still on their way out."""
    status, rank = evidence.job.status, evidence.blocking
    details = list(_leaving(evidence))
    if status.observed_generation < evidence.job.metadata.generation:
        details.append("the operator has not looked at the latest change of the job yet")
    left = (status.retry_time - evidence.now).total_seconds() if status.retry_time else 0.0
    soon = f" (in {duration(left)})" if left > 0 else ""
    text = f"{status.message or 'waiting for pods'}{soon}"
    yield Finding(status.reason or "Waiting", text, str(rank or ""), tuple(details))


def _past(evidence: Evidence) -> tuple[str, ...]:
    """Say how often a job was restarted, and after what."""
    status, limit = evidence.job.status, evidence.job.spec.backoff_limit
    if status.last_failure is None:
        return ()
    times = f"{status.restarts} of at most {limit} restarts used"
    return (
        f"{times}; last failure, in attempt {status.last_failure.attempt}: {status.last_failure.message}",
    )


def _outdated(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence for each role with a template that was changed after its pods were created."""
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
"""Variables that the operator and the recorder set in place of the template."""


def _value(variable: JsonObject | None) -> object:
    return None if variable is None else variable.get("value", "")


def _named(items: object) -> dict[str, JsonObject]:
    """Return the objects of a list by name."""
    listed = items if isinstance(items, list) else []
    return {str(each["name"]): each for each in listed if isinstance(each, dict) and "name" in each}


def _leaving(evidence: Evidence) -> Iterator[str]:
    """Name pods that are being deleted, and what holds them."""
    leaving = [pod for pod in evidence.pods if pod.metadata.deletion_timestamp is not None]
    for pod in leaving[:NAMED_PODS]:
        since = duration(_seconds(pod.metadata.deletion_timestamp, evidence.now))
        held = (
            f", held by the finalizer {', '.join(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
        )
        where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
        yield f"pod {pod.metadata.name}{where} has been terminating for {since}{held}"
    if len(leaving) > NAMED_PODS:
        yield f"{len(leaving) - NAMED_PODS} more pods are terminating"


def _seconds(since: datetime | None, until: datetime) -> float:
    return (until - since).total_seconds() if since else 0.0
