"""The causes that are checked, in order."""

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
from paddlejob.client.explain.result import MOST_FINDINGS, Explanation, Finding, tidy
from paddlejob.kube.client import Client

Find = Callable[[Evidence], Iterator[Finding]]

ALONE: tuple[Find, ...] = (states.not_looked_at, failure.find, states.invalid, states.settled)
"""What explains a job alone: the first that applies."""

OBSTACLES: tuple[Find, ...] = (
    admission.find,
    quota.find,
    gang.find,
    volumes.find,
    nodes.find,
    containers.find,
)
"""What holds up a job that waits: all that apply, those to deal with first in front."""

CERTAIN = frozenset({admission.find, quota.find, volumes.find, containers.find})
"""Obstacles that no unread object could explain better: gaps are not worth a line then."""

OTHERWISE: tuple[Find, ...] = (scheduler.find, states.waiting)
"""What others say of a job that waits for a reason which is not seen: the first that applies."""


async def explain_job(client: Client, namespace: str, name: str) -> Explanation:
    """Return why a job is where it is, as far as the client's rights let one see.

    Raises KubeError when the job itself cannot be read: NotFoundError, ForbiddenError, TransportError.
    """
    return explain(await gather(client, namespace, name))


def explain(evidence: Evidence) -> Explanation:
    """Return why a job is where it is. Never raises, whatever is in the objects."""
    alone = _first(ALONE, evidence)
    obstacles = [] if alone else [(find, finding) for find in OBSTACLES for finding in find(evidence)]
    found = alone or [finding for _, finding in obstacles] or _first(OTHERWISE, evidence)
    is_certain = any(find in CERTAIN for find, _ in obstacles)
    last = evidence.job.status.last_failure
    return Explanation(
        namespace=evidence.job.metadata.namespace,
        name=evidence.job.name,
        phase=str(evidence.job.status.phase),
        findings=tuple(tidy(finding, local=bool(evidence.run)) for finding in found[:MOST_FINDINGS]),
        exit_code=last.exit_code if last and last.exit_code else None,
        log=failure.last_lines(evidence.log) if any(failure.find(evidence)) else (),
        unseen=() if is_certain else evidence.unseen,
    )


def _first(finds: tuple[Find, ...], evidence: Evidence) -> list[Finding]:
    return next((found for find in finds if (found := list(find(evidence)))), [])
