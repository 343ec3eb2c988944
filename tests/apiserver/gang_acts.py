"""Acts in which the operator does all that it may do with gangs; their schedulers are played by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from behaviour.stage import Stage
from paddlejob.api.resources import (
    FLAVORS_V1BETA2,
    PADDLE_JOBS,
    POD_GROUPS_V1ALPHA2,
    VOLCANO_POD_GROUPS,
    WORKLOADS_V1BETA2,
)
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import PODS, Resource
from paddlejob.kube.transport import Stream
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import JobBuilder, job

Act = Callable[[Stage], Awaitable[None]]

FLAVORS = FLAVORS_V1BETA2
GANG_KINDS = (VOLCANO_POD_GROUPS, WORKLOADS_V1BETA2)
"""Those that may be missing from Kubernetes; its own PodGroups are either served or cannot be added."""
QUEUE = {"kueue.x-k8s.io/queue-name": "research"}


def definition(resource: Resource) -> dict[str, Any]:
    """Return a definition that accepts anything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


class Deaf(HttpTransport):
    """Lists gangs page by page, and hears nothing of what becomes of them afterwards."""

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        if path.rpartition("/")[2] in ("podgroups", "workloads"):
            return _refused() if "sendInitialEvents" in (query or {}) else _never()
        return super().stream(path, query=query, idle_timeout_seconds=idle_timeout_seconds)


class Refusal:
    """What a server that does not stream lists answers."""

    status = 422
    headers: Mapping[str, str] = {}

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b'{"kind":"Status","code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden"}'


@asynccontextmanager
async def _refused() -> AsyncIterator[Stream]:
    yield Refusal()


@asynccontextmanager
async def _never() -> AsyncIterator[Stream]:
    await asyncio.Event().wait()
    yield Refusal()


def plain(name: str = "demo") -> JobBuilder:
    """Return a job that is a gang of whatever the cluster has."""
    return job(name).worker(2).spec(schedulingPolicy={})


def queued(name: str = "demo") -> JobBuilder:
    """Return a job in a queue of Kueue's."""
    return job(name).worker(2).metadata(labels=QUEUE)


JOBS = {VOLCANO_POD_GROUPS: plain, POD_GROUPS_V1ALPHA2: plain, WORKLOADS_V1BETA2: queued}


async def submit(stage: Stage, built: JobBuilder) -> None:
    """Create a job with its labels."""
    metadata = built.manifest["metadata"]
    kept = {"name": metadata["name"], "labels": metadata.get("labels", {})}
    await stage.client.create(PADDLE_JOBS, stage.namespace, {**built.manifest, "metadata": kept})


async def gang(stage: Stage, resource: Resource) -> dict[str, Any] | None:
    try:
        return await stage.client.get(resource, stage.namespace, "demo")
    except NotFoundError:
        return None


async def appears(stage: Stage, resource: Resource, size: int, path: Callable[[dict[str, Any]], int]) -> None:
    async def is_there() -> bool:
        found = await gang(stage, resource)
        return found is not None and path(found) == size

    await stage.until(is_there, f"{resource.plural} of {size} is there")


async def says(stage: Stage, resource: Resource, **status: Any) -> None:
    """Write, as the scheduler does, into the gang's status."""
    await stage.client.patch(resource, stage.namespace, "demo", {"status": status}, subresource="status")


async def volcano_gang(stage: Stage) -> None:
    """A PodGroup is made, follows the job, and goes."""
    await submit(stage, plain())
    await appears(stage, VOLCANO_POD_GROUPS, 2, lambda group: group["spec"]["minMember"])

    async def knows_the_queues() -> bool:
        return "queue default does not exist" in (await stage.status()).get("message", "")

    await stage.until(knows_the_queues, "the job says that its queue does not exist")
    await says(stage, VOLCANO_POD_GROUPS, phase="Inqueue")

    async def pods_are_let_in() -> bool:
        return len(await stage.names()) == 2

    await stage.until(pods_are_let_in, "the pods are there")
    await stage.edit(worker={"replicas": 3})
    await appears(stage, VOLCANO_POD_GROUPS, 3, lambda group: group["spec"]["minMember"])
    await stage.edit(suspend=True)
    await stage.gone(VOLCANO_POD_GROUPS)


async def native_gang(stage: Stage) -> None:
    """The same with Kubernetes' own PodGroup, which is recreated for another size."""

    def size(group: dict[str, Any]) -> int:
        return group["spec"]["schedulingPolicy"]["gang"]["minCount"]

    await submit(stage, plain())
    await appears(stage, POD_GROUPS_V1ALPHA2, 2, size)
    await stage.phase("Running")
    await stage.edit(worker={"replicas": 3})
    await appears(stage, POD_GROUPS_V1ALPHA2, 3, size)
    await stage.edit(suspend=True)
    await stage.gone(POD_GROUPS_V1ALPHA2)


async def queued_gang(stage: Stage) -> None:
    """A Workload is made, admitted, evicted, given back, and goes."""

    def condition(kind: str) -> dict[str, str]:
        moment = "2030-01-01T00:00:00Z"
        return {
            "type": kind,
            "status": "True",
            "reason": "Preempted",
            "message": "",
            "lastTransitionTime": moment,
        }

    await submit(stage, queued())
    await appears(stage, WORKLOADS_V1BETA2, 2, lambda workload: workload["spec"]["podSets"][0]["count"])
    labels = {"kueue.x-k8s.io/queue-name": "teaching"}
    await stage.client.patch(PADDLE_JOBS, stage.namespace, "demo", {"metadata": {"labels": labels}})

    async def has_moved() -> bool:
        return (await gang(stage, WORKLOADS_V1BETA2) or {})["spec"]["queueName"] == "teaching"

    await stage.until(has_moved, "the Workload is in the other queue")
    assigned = [{"name": "worker", "flavors": {"cpu": "default"}}]
    admission = {"clusterQueue": "all", "podSetAssignments": assigned}
    reserved = [condition("QuotaReserved"), condition("Admitted")]
    await says(stage, WORKLOADS_V1BETA2, admission=admission, conditions=reserved)
    await stage.phase("Running")
    await says(stage, WORKLOADS_V1BETA2, conditions=[*reserved, condition("Evicted")])
    await stage.gone(PODS)

    async def is_given_back() -> bool:
        return "admission" not in (await gang(stage, WORKLOADS_V1BETA2) or {}).get("status", {})

    await stage.until(is_given_back, "the quota is given back")
    await stage.edit(suspend=True)
    await stage.gone(WORKLOADS_V1BETA2)


GANG_ACTS: tuple[Act, ...] = (volcano_gang, queued_gang)


def unseen(resource: Resource, has_looked: Callable[[], bool]) -> Act:
    """Return an act for a deaf operator: the gang's object is there, and it does not know.

    A first job makes it list the gangs; what it does not hear of afterwards it has to look up.
    """

    async def act(stage: Stage) -> None:
        await submit(stage, JOBS[resource]("scout"))

        async def scout_has_one() -> bool:
            return "scout" in await stage.names(resource)

        await stage.until(scout_has_one, "the first gang is there")
        first = await stage.client.get(resource, stage.namespace, "scout")
        await stage.client.create(resource, stage.namespace, {**first, "metadata": {"name": "demo"}})
        await submit(stage, JOBS[resource]())

        async def looked() -> bool:
            return has_looked()

        await stage.until(looked, "the operator has looked it up")

    return act
