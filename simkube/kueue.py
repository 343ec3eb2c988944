"""A simulated Kueue: gives Workloads the quota of one queue, first come first served, and takes it back.

It follows the documentation of a Workload's conditions: QuotaReserved and Admitted while it has quota;
Evicted when that is wanted back, until the controller of the job has stopped its pods and given it up.
Nothing here was run against Kueue itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from paddlejob.api.meta import JsonObject
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import Resource
from simkube import virtual_loop
from simkube.virtual_loop import timestamp


class Kueue:
    """Admits Workloads as long as all their pods fit. `capacity` may be changed at any time."""

    def __init__(
        self,
        client: Client,
        workloads: Resource,
        *,
        capacity: int,
        flavor: str,
        now: Callable[[], datetime] = virtual_loop.now,
    ) -> None:
        self.capacity = capacity
        self._client = client
        self._workloads = workloads
        self._flavor = flavor
        self._now = now

    async def session(self) -> None:
        """Look at all Workloads once.

        Raises KubeError.
        """
        listed = (await self._client.list(self._workloads, type=dict)).items
        here = [each for each in listed if "deletionTimestamp" not in each["metadata"]]
        here.sort(key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
        # Admission is first come, first served; the remaining quota goes to Workloads that already hold some.
        free = self.capacity
        for workload in here:
            size = sum(pods["count"] for pods in workload["spec"]["podSets"])
            fits = size <= free
            if fits or _holds(workload, "QuotaReserved"):
                free -= size
            await self._decide(workload, fits=fits)

    async def _decide(self, workload: JsonObject, *, fits: bool) -> None:
        reserved, evicted = _holds(workload, "QuotaReserved"), _holds(workload, "Evicted")
        if reserved and not fits and not evicted:
            await self._report(workload, Evicted=(True, "Preempted", "Preempted to make room for others"))
        elif not reserved and fits:
            verdict = (True, "QuotaReserved", "Quota reserved in ClusterQueue all")
            await self._report(
                workload,
                admission=self._admission(workload),
                QuotaReserved=verdict,
                Admitted=(True, "Admitted", "The workload is admitted"),
                Evicted=(False, "QuotaReserved", "Previously: Preempted"),
            )
        elif not reserved and not _holds(workload, "QuotaReserved", "False"):
            await self._report(workload, QuotaReserved=(False, "Pending", "insufficient unused quota"))

    def _admission(self, workload: JsonObject) -> JsonObject:
        pod_sets = [each["name"] for each in workload["spec"]["podSets"]]
        assigned = [{"name": name, "flavors": {"cpu": self._flavor}} for name in pod_sets]
        return {"clusterQueue": "all", "podSetAssignments": assigned}

    async def _report(
        self, workload: JsonObject, *, admission: JsonObject | None = None, **verdicts: tuple[bool, str, str]
    ) -> None:
        """Set conditions, unless the Workload has changed: then the next session looks at it again."""
        kept = [each for each in _conditions(workload) if each["type"] not in verdicts]
        fresh = [
            {
                "type": kind,
                "status": str(holds),
                "reason": reason,
                "message": message,
                "lastTransitionTime": timestamp(self._now()),
            }
            for kind, (holds, reason, message) in verdicts.items()
        ]
        metadata = workload["metadata"]
        version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        status: JsonObject = {"conditions": [*kept, *fresh]}
        if admission is not None:
            status["admission"] = admission
        try:
            await self._client.patch(
                self._workloads,
                metadata["namespace"],
                metadata["name"],
                {"metadata": version, "status": status},
                subresource="status",
            )
        except (errors.NotFoundError, errors.ConflictError):
            return


def _conditions(workload: JsonObject) -> list[JsonObject]:
    return list((workload.get("status") or {}).get("conditions") or ())


def _holds(workload: JsonObject, kind: str, status: str = "True") -> bool:
    return any(each["type"] == kind and each["status"] == status for each in _conditions(workload))
