"""Jobs on a cluster while they change, and what a user may do with them: for whoever shows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from paddlejob.api.meta import ObjectKey, View
from paddlejob.api.v1 import PaddleJob
from paddlejob.client import ranks
from paddlejob.client.job import CHANGES, Job, Jobs, Listing, Look
from paddlejob.client.watching import watching, watching_job
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import Resource
from paddlejob.operator.resources import PADDLE_JOBS

if TYPE_CHECKING:
    from paddlejob.client.cluster import Cluster, ClusterJob

_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_NEEDS = {
    **dict.fromkeys(("suspend", "resume", "stop"), ("patch", "")),
    **dict.fromkeys(("submit", "retry"), ("create", "")),
    "scale": ("patch", "scale"),
    "delete": ("delete", ""),
}
"""The verb and the subresource that a change needs."""


def within(jobs: Jobs, namespace: str) -> Jobs:
    """Return the jobs of one namespace, over the same connections; this machine has only one."""
    from paddlejob.client.cluster import Cluster  # noqa: PLC0415 - which imports this module

    if not isinstance(jobs, Cluster) or jobs.namespace == namespace:
        return jobs
    return Cluster(jobs.client, namespace, context=jobs.context)


async def changes(cluster: Cluster, namespace: str | None, selector: str) -> AsyncGenerator[Job, None]:
    """Yield every job now, and each again whenever it changes. Raises KubeError."""
    seen: set[Job] = set()
    async with aclosing(listings(cluster, namespace, selector)) as found:
        async for listing in found:
            for job in listing.jobs:
                if job not in seen:
                    yield job
            seen = set(listing.jobs)


async def listings(
    cluster: Cluster, namespace: str | None, selector: str = ""
) -> AsyncGenerator[Listing, None]:
    """Yield all jobs of a namespace, or of all, now and after each change. Raises KubeError."""
    from paddlejob.client.cluster import ClusterJob  # noqa: PLC0415 - which imports this module

    jobs: dict[ObjectKey, ClusterJob] = {}
    told: str | None = None
    async with watching(
        cluster.client, PADDLE_JOBS, namespace, type=PaddleJob, label_selector=selector
    ) as watch:
        while True:
            before, jobs = jobs, {}
            for state in sorted(watch.objects, key=lambda each: each.metadata.key):
                key = state.metadata.key
                job = before.get(key)
                if job is None or job.state is not state:
                    job = ClusterJob(cluster, {"metadata": {"name": key.name, "namespace": key.namespace}})
                    job.see(state)
                jobs[key] = job
            if jobs != before or watch.trouble != told:
                told = watch.trouble
                yield Listing(tuple(jobs.values()), told)
            await watch.next_change()


async def looks(job: ClusterJob) -> AsyncGenerator[Look, None]:
    """Yield a job and its pods now and after each change, until it is deleted. Raises KubeError."""
    key, uid = ObjectKey(job.namespace, job.name), job.state.metadata.uid
    last: Look | None = None
    followed = watching_job(job.client, job.namespace, job.name, pod_selector=job.pod_selector)
    async with followed as (jobs, pods):
        while True:
            state = jobs.objects.get(key)
            if state is None or (uid and state.metadata.uid != uid):
                return
            look = Look(state, ranks.in_order(state, pods.objects), jobs.trouble or pods.trouble)
            if look != last:
                last = look
                job.see(state)
                yield look
            await jobs.next_change()


async def rights(client: Client, namespace: str) -> frozenset[str]:
    """Return the changes that the user may make; all of them where the API server does not tell."""

    async def is_allowed(verb: str, subresource: str) -> bool:
        wanted = {
            "namespace": namespace,
            "verb": verb,
            "group": PADDLE_JOBS.group,
            "resource": PADDLE_JOBS.plural,
            "subresource": subresource,
        }
        body = {
            "apiVersion": f"{_REVIEWS.group}/{_REVIEWS.version}",
            "kind": _REVIEWS.kind,
            "spec": {"resourceAttributes": wanted},
        }
        try:
            return (await client.create(_REVIEWS, None, body, type=_Review)).status.allowed
        except errors.KubeError:
            # Whoever presses a button without the right for it is told so by the API server.
            return True

    needs = sorted(set(_NEEDS.values()))
    allowed = dict(zip(needs, await asyncio.gather(*(is_allowed(*each) for each in needs)), strict=True))
    return frozenset(change for change in CHANGES if allowed[_NEEDS[change]])


class _ReviewStatus(View, frozen=True):
    allowed: bool = False


class _Review(View, frozen=True):
    status: _ReviewStatus = _ReviewStatus()
