"""Jobs on a cluster while they change, and the permissions of a user, for the dashboard and the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from paddlejob.api.meta import JsonObject, ObjectKey, ObjectMeta, View
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob
from paddlejob.client import ranks
from paddlejob.client.job import CHANGES, Job, Jobs, JobWithPods, Listing
from paddlejob.client.watching import watching, watching_job
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import NAMESPACES, Resource

if TYPE_CHECKING:
    from paddlejob.client.cluster import Cluster, ClusterJob

_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_SELF_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
_NEEDS = {
    **dict.fromkeys(("suspend", "resume", "stop"), ("patch", "")),
    **dict.fromkeys(("submit", "retry"), ("create", "")),
    "scale": ("patch", "scale"),
    "delete": ("delete", ""),
}
"""The verb and the subresource that a change needs."""


def within(jobs: Jobs, namespace: str) -> Jobs:
    """Return the jobs of one namespace, over the same connections. Local runs have no namespaces."""
    from paddlejob.client.cluster import Cluster  # noqa: PLC0415 - which imports this module

    if not isinstance(jobs, Cluster) or jobs.namespace == namespace:
        return jobs
    return Cluster(jobs.client, namespace, context=jobs.context)


async def changes(cluster: Cluster, namespace: str | None, selector: str) -> AsyncGenerator[Job, None]:
    """Yield every job now, and each job again after each change. Raises KubeError."""
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
    """Yield all jobs of one or all namespaces now and after each change. Raises KubeError."""
    from paddlejob.client.cluster import ClusterJob  # noqa: PLC0415 - which imports this module

    jobs: dict[ObjectKey, ClusterJob] = {}
    last_trouble: str | None = None
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
            cluster.on_trouble("", watch.trouble)
            if jobs != before or watch.trouble != last_trouble:
                last_trouble = watch.trouble
                yield Listing(tuple(jobs.values()), last_trouble)
            await watch.next_change()


async def watch_with_pods(job: ClusterJob) -> AsyncGenerator[JobWithPods, None]:
    """Yield a job and its pods now and after each change, until it is deleted. Raises KubeError."""
    key, uid = ObjectKey(job.namespace, job.name), job.state.metadata.uid
    last: JobWithPods | None = None
    followed = watching_job(job.client, job.namespace, job.name, pod_selector=job.pod_selector)
    async with followed as (jobs, pods):
        while True:
            state = jobs.objects.get(key)
            if state is None or (uid and state.metadata.uid != uid):
                return
            update = JobWithPods(state, ranks.in_order(state, pods.objects), jobs.trouble or pods.trouble)
            if update != last:
                last = update
                job.see(state)
                yield update
            await jobs.next_change()


async def rights(client: Client, namespace: str) -> frozenset[str]:
    """Return the changes that the user may make; all of them if the API server does not answer."""

    async def is_allowed(verb: str, subresource: str) -> bool:
        try:
            return await _is_allowed(client, namespace, verb, subresource)
        except errors.KubeError:
            # The API server still rejects changes without permission.
            return True

    needs = sorted(set(_NEEDS.values()))
    allowed = dict(zip(needs, await asyncio.gather(*(is_allowed(*each) for each in needs)), strict=True))
    return frozenset(change for change in CHANGES if allowed[_NEEDS[change]])


async def _is_allowed(client: Client, namespace: str, verb: str, subresource: str = "") -> bool:
    """Return whether the user may use a verb on PaddleJobs. Raises KubeError."""
    wanted = {
        "namespace": namespace,
        "verb": verb,
        "group": PADDLE_JOBS.group,
        "resource": PADDLE_JOBS.plural,
        "subresource": subresource,
    }
    body = _body(_REVIEWS) | {"spec": {"resourceAttributes": wanted}}
    return (await client.create(_REVIEWS, None, body, type=_Review)).status.allowed


def _body(resource: Resource) -> JsonObject:
    return {"apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind}


async def may_list_all(client: Client) -> bool:
    """Return whether the user may list the PaddleJobs of all namespaces. Raises KubeError."""
    return await _is_allowed(client, "", "list")


async def user_name(client: Client) -> str:
    """Return the user name of the credentials; empty before Kubernetes 1.28.

    Raises KubeError: UnauthorizedError for credentials that are not accepted.
    """
    try:
        body = _body(_SELF_REVIEWS)
        return (await client.create(_SELF_REVIEWS, None, body, type=_SelfReview)).status.user_info.username
    except (errors.NotFoundError, errors.ForbiddenError):
        # The API server rejects every review of an unknown user.
        await may_list_all(client)
        return ""


async def namespace_names(client: Client) -> list[str]:
    """Return the namespaces of the cluster; none if the user may not list them."""
    try:
        page = await client.list(NAMESPACES, None, type=_Named)
    except errors.ApiError:
        return []
    return sorted(each.metadata.name for each in page.items)


class _ReviewStatus(View, frozen=True):
    allowed: bool = False


class _Review(View, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _UserInfo(View, frozen=True):
    username: str = ""


class _SelfReviewStatus(View, frozen=True):
    user_info: _UserInfo = _UserInfo()


class _SelfReview(View, frozen=True):
    status: _SelfReviewStatus = _SelfReviewStatus()


class _Named(View, frozen=True):
    metadata: ObjectMeta
