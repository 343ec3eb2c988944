"""Move running Kubeflow jobs: suspend the Kubeflow job, and create a PaddleJob with its name and queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import WORKLOADS_V1BETA1, WORKLOADS_V1BETA2
from paddlejob.client import manifest as manifests
from paddlejob.client.cluster import Cluster, ClusterJob
from paddlejob.client.errors import ClientError, InvalidJobError, WaitTimeoutError
from paddlejob.kube import errors
from paddlejob.kube.resource import PODS, Resource
from paddlejob.kubeflow import Converted, convert

KUBEFLOW_JOBS = Resource("kubeflow.org", "v1", names.PLURAL, names.KIND)
ANNOTATION_IMPORTED = f"{names.GROUP}/imported-from"
"""On a job that `import` created: the UID of the Kubeflow job."""
_JOB_LABEL = "training.kubeflow.org/job-name"
_POLL_SECONDS = 0.5
_ENDED = ("Succeeded", "Failed")

Report = Callable[[str], None]
Workloads = list[tuple[Resource, str]]


async def kubeflow_jobs(cluster: Cluster, names_: tuple[str, ...]) -> list[JsonObject]:
    """Return Kubeflow jobs by name, or all jobs of the namespace to move. Raises ClientError."""
    try:
        if not names_:
            listed = await cluster.client.list(KUBEFLOW_JOBS, cluster.namespace)
            moved = {job.state.metadata.annotations.get(ANNOTATION_IMPORTED) for job in await cluster.list()}
            left = (each for each in listed.items if each["metadata"]["uid"] not in moved)
            return [{**_HEAD, **each} for each in left if not _end(each)]
        return [await cluster.client.get(KUBEFLOW_JOBS, cluster.namespace, name) for name in names_]
    except errors.NotFoundError as error:
        details = error.status.details
        if details is None or not details.name:
            raise ClientError("this cluster does not know PaddleJobs of kubeflow.org/v1") from None
        raise ClientError(
            f"there is no PaddleJob {details.name} of kubeflow.org/v1 in namespace {cluster.namespace}"
        ) from None


def convert_job(body: JsonObject, *, elastic: bool) -> Converted:
    """Convert a Kubeflow job. Raises ClientError if it has ended, InvalidJobError if it is invalid."""
    name = body["metadata"]["name"]
    if end := _end(body):
        raise ClientError(f"PaddleJob {name} of kubeflow.org/v1 has {end.lower()}: there is nothing to move")
    result = convert(body, elastic=elastic)
    result.manifest["metadata"].setdefault("annotations", {})[ANNOTATION_IMPORTED] = body["metadata"]["uid"]
    if names.LABEL_KUEUE_QUEUE in (result.manifest["metadata"].get("labels") or {}):
        # Kueue suspended the Kubeflow job. The new job waits in the queue again.
        result.manifest["spec"].pop("suspend", None)
    if problems := manifests.problems(result.manifest):
        raise InvalidJobError(*problems)
    return result


async def move(
    cluster: Cluster, body: JsonObject, ours: JsonObject, *, seconds: float, report: Report
) -> ClusterJob:
    """Suspend the Kubeflow job, wait until its pods are gone, and create ours with the same pod names.

    If that fails or takes too long, the Kubeflow job is resumed. Raises ClientError.
    """
    name = body["metadata"]["name"]
    await cluster.submit(ours, dry_run=True)
    was_suspended = bool(((body["spec"].get("runPolicy")) or {}).get("suspend"))
    workloads = await _deactivate(cluster, body)
    try:
        await _suspend(cluster, name, suspended=True)
        report(f"paddlejob.kubeflow.org/{name} suspended")
        await _wait_for_no_pods(cluster, name, seconds)
        return await cluster.submit(ours)
    except BaseException:
        await asyncio.shield(_resume(cluster, name, workloads, suspended=was_suspended))
        report(f"paddlejob.kubeflow.org/{name} resumed")
        raise


async def _suspend(cluster: Cluster, name: str, *, suspended: bool) -> None:
    patch = {"spec": {"runPolicy": {"suspend": suspended}}}
    await cluster.client.patch(KUBEFLOW_JOBS, cluster.namespace, name, patch)


async def _resume(cluster: Cluster, name: str, workloads: Workloads, *, suspended: bool) -> None:
    await _suspend(cluster, name, suspended=suspended)
    for resource, each in workloads:
        await cluster.client.patch(resource, cluster.namespace, each, {"spec": {"active": True}})


async def _deactivate(cluster: Cluster, body: JsonObject) -> Workloads:
    """Make Kueue release the Kubeflow job. Otherwise Kueue would resume an admitted job."""
    if names.LABEL_KUEUE_QUEUE not in (body["metadata"].get("labels") or {}):
        return []
    selector = f"kueue.x-k8s.io/job-uid={body['metadata']['uid']}"
    for resource in (WORKLOADS_V1BETA2, WORKLOADS_V1BETA1):
        try:
            listed = await cluster.client.list(resource, cluster.namespace, label_selector=selector)
        except errors.NotFoundError:
            continue
        found = [(resource, str(each["metadata"]["name"])) for each in listed.items]
        for _, name in found:
            await cluster.client.patch(resource, cluster.namespace, name, {"spec": {"active": False}})
        return found
    return []


async def _wait_for_no_pods(cluster: Cluster, name: str, seconds: float) -> None:
    left: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                listed = await cluster.client.list(
                    PODS, cluster.namespace, label_selector=f"{_JOB_LABEL}={name}"
                )
                left = [str(each["metadata"]["name"]) for each in listed.items]
                if not left:
                    return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise WaitTimeoutError(
            f"pods of {name} are left after {seconds:g}s: {', '.join(left[:3])}; is Kubeflow's training "
            "operator running?"
        ) from None


def _end(body: JsonObject) -> str:
    """Return the final condition of a Kubeflow job, empty if it has not ended."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next(
        (str(each["type"]) for each in conditions if each["type"] in _ENDED and each["status"] == "True"), ""
    )


_HEAD = {"apiVersion": KUBEFLOW_JOBS.api_version, "kind": KUBEFLOW_JOBS.kind}
