"""Explain why a job is not running or why it failed, and the smallest change that helps.

    explanation = await explain_job(client, "team-a", "resnet")
    print(explanation)

`gather` reads with the caller's rights, and `explain` is pure. The explanation starts from the operator's
status message and adds objects that the operator does not watch: quotas, nodes and their pods, claims,
queues, the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paddlejob.client.explain.causes import (
    admission,
    containers,
    failure,
    gang,
    nodes,
    quota,
    scheduler,
    states,
    volumes,
)
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.gather import gather
from paddlejob.client.explain.result import (
    MAX_FINDINGS,
    Advice,
    Change,
    Explanation,
    Finding,
    FollowUp,
    tidy,
)
from paddlejob.kube.client import Client

__all__ = ["Advice", "Change", "Explanation", "Finding", "FollowUp", "explain", "explain_job"]

Check = Callable[[Evidence], Iterator[Finding]]

COMPLETE: tuple[Check, ...] = (
    states.find_unmanaged,
    failure.find,
    states.find_invalid,
    states.find_settled,
)
"""Checks that explain a job completely: the first with a finding is used."""

OBSTACLES: tuple[Check, ...] = (
    admission.find,
    quota.find,
    gang.find,
    volumes.find,
    nodes.find,
    containers.find,
)
"""Obstacles for a waiting job: all findings are used, in the order in which to deal with them."""

CERTAIN = frozenset({admission.find, quota.find, volumes.find, containers.find})
"""Obstacles that objects without read access could not explain better: gaps are not reported then."""

FALLBACKS: tuple[Check, ...] = (scheduler.find, states.find_waiting)
"""Fallbacks when no cause was found: the messages of the scheduler and of the operator."""


async def explain_job(client: Client, namespace: str, name: str) -> Explanation:
    """Return why a job is in its state, from the objects that the client may read.

    Raises KubeError when the job itself cannot be read: NotFoundError, ForbiddenError, TransportError.
    """
    return explain(await gather(client, namespace, name))


def explain(evidence: Evidence) -> Explanation:
    """Return why a job is in its state. Never raises, also for malformed objects."""
    complete = _first(COMPLETE, evidence)
    obstacles = [] if complete else [(find, finding) for find in OBSTACLES for finding in find(evidence)]
    found = complete or [finding for _, finding in obstacles] or _first(FALLBACKS, evidence)
    is_certain = any(find in CERTAIN for find, _ in obstacles)
    last = evidence.job.status.last_failure
    return Explanation(
        namespace=evidence.job.metadata.namespace,
        name=evidence.job.name,
        phase=str(evidence.job.status.phase),
        findings=tuple(tidy(finding, local=bool(evidence.run)) for finding in found[:MAX_FINDINGS]),
        exit_code=last.exit_code if last and last.exit_code else None,
        log=failure.last_lines(evidence.log) if any(failure.find(evidence)) else (),
        unseen=() if is_certain else evidence.unseen,
    )


def _first(checks: tuple[Check, ...], evidence: Evidence) -> list[Finding]:
    return next((found for find in checks if (found := list(find(evidence)))), [])
