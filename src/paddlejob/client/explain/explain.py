"""The list of what is looked at, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paddlejob.client.explain import states
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.gather import gather
from paddlejob.client.explain.result import MOST_FINDINGS, Explanation, Finding, tidy
from paddlejob.kube.client import Client

Find = Callable[[Evidence], Iterator[Finding]]

STATES: tuple[Find, ...] = (
    states.unseen_by_operator,
    states.settled,
)
"""What explains a job alone: the first that applies."""

OBSTACLES: tuple[Find, ...] = ()
"""What holds up a job that waits: all that apply, the ones to deal with first in front."""


async def explain_job(client: Client, namespace: str, name: str) -> Explanation:
    """Return why a job is where it is, as far as the client's rights let one see.

    Raises KubeError when the job itself cannot be read: NotFoundError, ForbiddenError, TransportError.
    """
    return explain(await gather(client, namespace, name))


def explain(evidence: Evidence) -> Explanation:
    """Return why a job is where it is. Never raises, whatever is in the objects."""
    found = [finding for find in STATES for finding in find(evidence)][:1]
    found = found or [finding for find in OBSTACLES for finding in find(evidence)]
    found = found or list(states.waiting(evidence))
    failure = evidence.job.status.last_failure
    return Explanation(
        namespace=evidence.job.metadata.namespace,
        name=evidence.job.name,
        phase=str(evidence.job.status.phase),
        findings=tuple(tidy(finding) for finding in found[:MOST_FINDINGS]),
        exit_code=failure.exit_code if failure and failure.exit_code else None,
        unseen=evidence.unseen,
    )
