"""A simulated Volcano scheduler: queues PodGroups by a model of capacity, and binds their pods all or none.

    volcano = Volcano(Client(server.transport("volcano")), capacity={"cpu": "8"})
    task = asyncio.create_task(volcano.run())

It follows what Volcano documents of its state machine. A PodGroup is Pending until its `minResources` fit
into what the queue has left; then it is Inqueue, whether or not it has pods. It is Running when `minMember`
pods have a place, which they get together. It is Pending again when it has lost them, Unknown while only some
of them run, Completed when all have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.quantity import ZERO, Quantity, Resources, parse_all, total
from paddlejob.core.gang.requests import pod_requests
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS, Resource
from simkube import virtual_loop
from simkube.binder import Binder
from simkube.virtual_loop import timestamp

POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")


class _Task:
    """A pod as the scheduler sees it."""

    def __init__(self, pod: JsonObject) -> None:
        self.pod = pod
        self.requests = pod_requests(pod["spec"])
        phase = pod.get("status", {}).get("phase")
        self.has_ended = phase in ("Succeeded", "Failed")
        self.runs = phase == "Running"
        self.has_place = bool(pod["spec"].get("nodeName"))
        self.leaves = "deletionTimestamp" in pod["metadata"]

    @property
    def waits(self) -> bool:
        return not (self.has_place or self.has_ended or self.leaves)


class _Group:
    """A PodGroup and its pods during one session."""

    def __init__(self, group: JsonObject, pods: Iterable[JsonObject]) -> None:
        self.namespace: str = group["metadata"]["namespace"]
        self.name: str = group["metadata"]["name"]
        self.uid: str = group["metadata"]["uid"]
        spec = group.get("spec") or {}
        self.min_member: int = spec.get("minMember") or 0
        self.room: Resources = parse_all(spec.get("minResources") or {})
        self.old: JsonObject = group.get("status") or {}
        self.phase: str = self.old.get("phase") or "Pending"
        self.conditions: list[JsonObject] = list(self.old.get("conditions") or ())
        self.is_unschedulable = False
        self.tasks = [_Task(pod) for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))]

    def holds(self) -> dict[str, Quantity]:
        """Return the resources that its pods occupy; a queued group holds the resources it was queued for."""
        occupied = total(task.requests for task in self.tasks if task.has_place and not task.has_ended)
        if self.phase == "Inqueue":
            return {**occupied, **self.room}
        return occupied

    def note(self, kind: str, reason: str, message: str, now: datetime) -> None:
        """Set a condition; its time changes only with its content."""
        entry = {"type": kind, "status": "True", "reason": reason, "message": message}
        for known in self.conditions:
            if entry.items() <= known.items():
                return
        self.conditions = [known for known in self.conditions if known["type"] != kind]
        self.conditions.append({**entry, "lastTransitionTime": timestamp(now)})

    def settle(self) -> JsonObject:
        """Return the status at the end of a session."""
        placed = [task for task in self.tasks if task.has_place]
        running = sum(task.runs for task in placed)
        if running and self.is_unschedulable:
            self.phase = "Unknown"
        elif len(placed) >= self.min_member:
            self.phase = "Completed" if all(task.has_ended for task in placed) else "Running"
        elif self.phase != "Inqueue":
            self.phase = "Pending"
        return {"phase": self.phase, "running": running, "conditions": self.conditions}


class Volcano:
    """Schedules the pods that name it. `capacity` may be changed at any time."""

    def __init__(
        self,
        client: Client,
        *,
        capacity: Mapping[str, str],
        nodes: Sequence[str] = ("node-0", "node-1", "node-2"),
        session_seconds: float = 1.0,
        status_subresource: bool = False,
        now: Callable[[], datetime] = virtual_loop.now,
    ) -> None:
        self.capacity = dict(capacity)
        self.phases: dict[str, list[str]] = {}
        """The phases of each PodGroup in the order in which they came, by namespace/name."""
        self._client = client
        self._binder = Binder(client, nodes)
        self._session_seconds = session_seconds
        self._subresource = "status" if status_subresource else None
        self._now = now

    async def run(self) -> None:
        """Hold a session every now and then until cancelled."""
        while True:
            # A failed session is repeated.
            with contextlib.suppress(errors.TransportError, errors.ApiError):
                await self.session()
            await asyncio.sleep(self._session_seconds)

    async def session(self) -> None:
        """Look at everything once: queue, place, report."""
        groups = await self._groups()
        for group in groups:
            self._enqueue(group, groups)
        for group in groups:
            if group.phase != "Pending":
                await self._allocate(group, groups)
        for group in groups:
            await self._report(group)

    async def _groups(self) -> list[_Group]:
        pods: dict[tuple[str, str], list[JsonObject]] = {}
        listed_pods = (await self._client.list(PODS, type=dict)).items
        self._binder.look(listed_pods)
        for pod in listed_pods:
            name = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_GROUP_NAME, "")
            if pod["spec"].get("schedulerName") == names.VOLCANO and name:
                pods.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
        listed = (await self._client.list(POD_GROUPS, type=dict)).items
        ordered = sorted(listed, key=lambda group: int(group["metadata"]["resourceVersion"]))
        ordered.sort(key=lambda group: str(group["metadata"]["creationTimestamp"]))
        return [
            _Group(group, pods.get((group["metadata"]["namespace"], group["metadata"]["name"]), ()))
            for group in ordered
        ]

    def _enqueue(self, group: _Group, groups: list[_Group]) -> None:
        if group.phase in ("Running", "Unknown", "Completed"):
            group.settle()
        if group.phase == "Pending" and self._fits(group.room, groups, but=group):
            group.phase = "Inqueue"
        elif group.phase == "Pending":
            text = "queue resource quota insufficient"
            group.note("Unschedulable", "NotEnoughResources", text, self._now())

    async def _allocate(self, group: _Group, groups: list[_Group]) -> None:
        """Bind the pods that fit if they form a gang; otherwise bind none."""
        waiting = [task for task in group.tasks if task.waits]
        placed = sum(task.has_place for task in group.tasks)
        if not waiting and placed >= group.min_member:
            return
        fitting: list[_Task] = []
        for task in waiting:
            together = total((*(one.requests for one in fitting), task.requests))
            if self._fits(together, groups, but=group, held=total(_occupied(group))):
                fitting.append(task)
        if placed + len(fitting) >= group.min_member and fitting:
            for task in fitting:
                task.has_place = await self._binder.bind(task.pod)
            group.note("Scheduled", "tasks in gang are ready to be scheduled", "", self._now())
        elif waiting or group.tasks:
            group.is_unschedulable = placed < group.min_member
            missing, present = group.min_member - placed - len(fitting), len(group.tasks)
            text = f"{missing}/{present} tasks in gang unschedulable: pod group is not ready"
            group.note("Unschedulable", "NotEnoughResources", text, self._now())

    def _fits(
        self, wanted: Resources, groups: list[_Group], *, but: _Group, held: Resources | None = None
    ) -> bool:
        taken = total((*(other.holds() for other in groups if other is not but), held or {}, wanted))
        free = parse_all(self.capacity)
        return all(taken[name].amount <= free.get(name, ZERO).amount for name in wanted)

    async def _report(self, group: _Group) -> None:
        status = group.settle()
        known = self.phases.setdefault(f"{group.namespace}/{group.name}", [])
        if not known or known[-1] != status["phase"]:
            known.append(status["phase"])
        if {**group.old, **status} == group.old:
            return
        patch = {"metadata": {"uid": group.uid}, "status": status}
        try:
            await self._client.patch(
                POD_GROUPS, group.namespace, group.name, patch, subresource=self._subresource
            )
        except (errors.NotFoundError, errors.ConflictError):
            return


def _occupied(group: _Group) -> list[Resources]:
    return [task.requests for task in group.tasks if task.has_place and not task.has_ended]
