"""Gang schedulers in a history: which one, which jobs it schedules, and when its capacity changes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Protocol

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import (
    POD_GROUPS_V1ALPHA2,
    POD_GROUPS_V1BETA1,
    VOLCANO_POD_GROUPS,
    WORKLOADS_V1BETA1,
    WORKLOADS_V1BETA2,
)
from paddlejob.core.gang.model import FLAVORS
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import Resource
from paddlejob.operator.executor import RESOURCE_OF
from simkube.apiserver.rules.kinds import custom_resource
from simkube.apiserver.server import ApiServer
from simkube.kueue import Kueue
from simkube.native_gangs import NativeGangs
from simkube.volcano import Volcano
from tests.support.definitions import VOLCANO_CRD

SESSION_SECONDS = 2.0
PLENTY = 1000
FLAVOR = "any"
KINDS = {
    "volcano": (VOLCANO_POD_GROUPS,),
    "native": (POD_GROUPS_V1ALPHA2, POD_GROUPS_V1BETA1),
    "kueue": (WORKLOADS_V1BETA1, WORKLOADS_V1BETA2),
}
SCHEDULING = {"volcano": ("", "volcano", "auto"), "native": ("", "native", "auto"), "kueue": ("",)}


class Gangs(msgspec.Struct, frozen=True):
    """The gang scheduler of a history; without a resource there is none."""

    system: str = ""
    resource: Resource | None = None
    scheduling: str = ""
    """The operator's `--scheduling`."""
    users_groups: tuple[str, ...] = ()
    """Jobs for which the user also creates a PodGroup."""
    capacities: tuple[tuple[float, int], ...] = ()
    """For how many pods there is room, each since some time; after the last fault there is room for all."""


def draw(rng: random.Random, jobs: tuple[JsonObject, ...]) -> Gangs:
    """Draw a gang scheduler, which most histories have none of, and mark the jobs that want it."""
    if rng.random() < 0.65:
        return Gangs()
    system = rng.choice(tuple(KINDS))
    marked = [job for job in jobs if rng.random() < 0.8]
    users = tuple(job["metadata"]["name"] for job in marked if system == "volcano" and rng.random() < 0.3)
    for job in marked:
        _mark(job, system, has_group=job["metadata"]["name"] in users)
    return Gangs(
        system=system,
        resource=rng.choice(KINDS[system]),
        scheduling=rng.choice(SCHEDULING[system]),
        users_groups=users,
        capacities=tuple(
            sorted(
                (rng.uniform(0, 120), rng.choice((0, 2, 4, 8, PLENTY))) for _ in range(rng.choice((0, 1, 3)))
            )
        ),
    )


def _mark(job: JsonObject, system: str, *, has_group: bool) -> None:
    spec = job["spec"]
    if system == "kueue":
        job["metadata"].setdefault("labels", {})[names.LABEL_KUEUE_QUEUE] = "team"
    elif has_group:
        spec["worker"]["template"]["spec"]["schedulerName"] = names.VOLCANO
    else:
        spec["schedulingPolicy"] = {}
    for role in ("ps", "worker", "heter"):
        if role in spec:
            container = spec[role]["template"]["spec"]["containers"][0]
            container["resources"] = {"requests": {"cpu": "1"}}


class _Scheduler(Protocol):
    async def session(self) -> None:
        """Look at everything once."""


class Scheduler:
    """The gang scheduler of a history, on its server."""

    def __init__(self, gangs: Gangs, server: ApiServer, *, nodes: tuple[str, ...]) -> None:
        self._gangs = gangs
        self._server = server
        self._is_healed = False
        self._changed = asyncio.Event()
        self._scheduler = self._install(Client(server.transport("gang-scheduler")), nodes)

    @property
    def resource(self) -> Resource | None:
        """The kind of object that gangs are known by."""
        return self._gangs.resource

    def _install(self, client: Client, nodes: tuple[str, ...]) -> _Scheduler | None:
        resource = self._gangs.resource
        if resource is None:
            return None
        if self._gangs.system == "volcano":
            self._server.install(VOLCANO_CRD)
            return Volcano(client, capacity={"cpu": str(PLENTY)}, nodes=nodes)
        self._server.register(custom_resource(resource))
        if self._gangs.system == "native":
            return NativeGangs(client, resource, nodes=nodes)
        kind = next(kind for kind, each in RESOURCE_OF.items() if each == resource)
        flavors = FLAVORS[kind]
        self._server.register(custom_resource(flavors, status=False))
        head = {"apiVersion": flavors.api_version, "kind": flavors.kind}
        self._server.create(flavors, {**head, "metadata": {"name": FLAVOR}, "spec": {}})
        return Kueue(client, resource, capacity=PLENTY, flavor=FLAVOR)

    async def run(self) -> None:
        """Hold a session whenever something has changed, until cancelled."""
        if self._scheduler is None:
            return
        self._server.store.observers.append(lambda _: self._changed.set())
        while True:
            self._changed.clear()
            room_changes_at = self._set_capacity()
            # A failed session is repeated.
            with contextlib.suppress(errors.TransportError, errors.ApiError):
                await self._scheduler.session()
            await asyncio.sleep(SESSION_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(room_changes_at):
                    await self._changed.wait()

    def heal(self) -> None:
        """Let there be room for all from now on."""
        self._is_healed = True
        self._changed.set()

    def submit_group(self, job: str) -> None:
        """Create the PodGroup of a job's user."""
        if job in self._gangs.users_groups:
            self._server.create(VOLCANO_POD_GROUPS, users_group(job), identity="user")

    def _set_capacity(self) -> float | None:
        """Make the room that there is by now; return when there will be another, if ever."""
        now = asyncio.get_running_loop().time()
        to_come = () if self._is_healed else self._gangs.capacities
        past = [room for since, room in to_come if since <= now]
        room = past[-1] if past else PLENTY
        if isinstance(self._scheduler, Volcano):
            self._scheduler.capacity = {"cpu": str(room)}
        elif isinstance(self._scheduler, Kueue):
            self._scheduler.capacity = room
        return next((since for since, _ in to_come if since > now), None)


def users_group(job: str) -> JsonObject:
    """Return a PodGroup that only its user may change."""
    metadata = {"name": job, "namespace": "default"}
    head: dict[str, Any] = {"apiVersion": VOLCANO_POD_GROUPS.api_version, "kind": "PodGroup"}
    return {**head, "metadata": metadata, "spec": {"minMember": 1}}
