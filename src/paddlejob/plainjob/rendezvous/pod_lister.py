"""List the pods of a Job: from the API server, or the local pods of `start --local`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paddlejob.api.meta import ObjectMeta, View
from paddlejob.api.pod import Pod, PodStatus
from paddlejob.kube import errors as kube_errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS, Resource
from paddlejob.plainjob import errors
from paddlejob.plainjob.rendezvous.peers import JobShape

JOBS = Resource("batch", "v1", "jobs", "Job")


class ListingError(Exception):
    """A request failed; a retry may succeed."""


class PodLister(Protocol):
    """The requests of `paddlejob start` to a cluster."""

    async def list_pods(self, namespace: str, label_selector: str) -> Sequence[Pod]:
        """Return the pods with these labels. Raises ListingError, or SettingsError if it is forbidden."""
        ...

    async def job_shape(self, namespace: str, name: str) -> JobShape | None:
        """Return the number of pods of a Job, None if it may not be read. Raises ListingError."""
        ...


class _Job(View, frozen=True):
    spec: JobShape = JobShape()


class ClusterLister:
    """Lists pods through the API server, with the pod's service account."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_pods(self, namespace: str, label_selector: str) -> Sequence[Pod]:
        """Return the pods with these labels."""
        try:
            found = await self._client.list(PODS, namespace, label_selector=label_selector, type=Pod)
        except (kube_errors.ForbiddenError, kube_errors.UnauthorizedError) as error:
            raise errors.SettingsError(
                f"the service account may not list pods in {namespace}: "
                f"run `kubectl apply -n {namespace} -f deploy/examples/job/rbac.yaml` ({error})"
            ) from error
        except kube_errors.KubeError as error:
            raise ListingError(str(error)) from error
        return found.items

    async def job_shape(self, namespace: str, name: str) -> JobShape | None:
        """Return parallelism and completions."""
        try:
            job = await self._client.get(JOBS, namespace, name, type=_Job)
        except kube_errors.ForbiddenError:
            return None
        except kube_errors.UnauthorizedError as error:
            raise errors.SettingsError(
                f"the API server does not know the service account: {error}"
            ) from error
        except kube_errors.NotFoundError as error:
            raise errors.SettingsError(
                f"there is no Job {name!r} in {namespace}: set JOB_NAME and JOB_NAMESPACE to this Job's"
            ) from error
        except kube_errors.KubeError as error:
            raise ListingError(str(error)) from error
        return job.spec


class LoopbackLister:
    """The pods of `start --local`, each with its own loopback address."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)

    async def list_pods(self, namespace: str, label_selector: str) -> Sequence[Pod]:
        """Return a running pod for each address."""
        del namespace, label_selector
        return [
            Pod(metadata=ObjectMeta(name=f"node-{index}"), status=PodStatus(phase="Running", pod_ip=address))
            for index, address in enumerate(self._addresses)
        ]

    async def job_shape(self, namespace: str, name: str) -> JobShape | None:
        """Return the number of addresses."""
        del namespace, name
        return JobShape(len(self._addresses), len(self._addresses))
