"""Watches the PodGroups and Workloads of the gang schedulers that are installed.

A gang scheduler may be installed later or removed. Discovery starts when the first job needs a scheduler, and
is repeated periodically. Served kinds are watched. A kind that is not served is not an error: nothing waits
for it, and it is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod_group import PodGroup, Queue, ResourceFlavor
from paddlejob.api.resources import VOLCANO_QUEUES
from paddlejob.core.actions import Kind
from paddlejob.core.gang.model import FLAVORS, GANG_RESOURCES, GROUP_KINDS, GangApis, GangSystem
from paddlejob.kube import errors
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.informer import Informer
from paddlejob.kube.resource import Resource
from paddlejob.operator import limits

log = logging.getLogger(__name__)

PROBE_SECONDS = 10.0
"""Interval between two discoveries."""
IMPATIENT_SECONDS = 1.0
"""The same while a job waits for the result."""

OnGroup = Callable[[ObjectKey, bool], None]
"""Called with the key of an added, changed or deleted PodGroup, and True for the initial list."""


class _Watch(msgspec.Struct, frozen=True):
    """The informers of one kind."""

    informers: tuple[Informer[Any], ...]
    task: asyncio.Task[None]

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.informers)

    @property
    def trouble(self) -> str:
        for informer in self.informers:
            if informer.last_error and not informer.synced.is_set():
                resource = informer.resource
                return f"cannot read {resource.plural}.{resource.group}: {informer.last_error}"
        return ""


class GangInformers:
    """Watches the gang objects of the schedulers that jobs use."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        rng: random.Random,
        on_group: OnGroup,
        on_apis: Callable[[], None],
    ) -> None:
        self._client = client
        self._namespace = namespace or None
        self._rng = rng
        self._on_group = on_group
        self._on_apis = on_apis
        self._wanted: dict[GangSystem, None] = {}
        self._known: set[GangSystem] = set()
        """Schedulers that have been discovered or found missing at least once."""
        self._refusals: dict[Kind, str] = {}
        self._running: dict[Kind, _Watch] = {}
        self._nudged = asyncio.Event()
        self._settled = asyncio.Condition()
        self.caches: dict[Kind, Cache[PodGroup]] = {kind: Cache() for kind in GROUP_KINDS}
        self.flavors: Cache[ResourceFlavor] = Cache()
        self._queues: Cache[Queue] = Cache()
        self._queue_informer: Informer[Queue] | None = None
        self.apis = GangApis()
        """The state at the last call of `on_apis`."""

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """The informers of the kinds that are served."""
        return tuple(informer for watch in self._running.values() for informer in watch.informers)

    def want(self, systems: Iterable[GangSystem]) -> None:
        """Start discovering these schedulers."""
        for system in systems:
            if system not in self._wanted:
                self._wanted[system] = None
                self.apis = self._read_apis()
                self._nudged.set()

    @property
    def queues(self) -> dict[str, Queue] | None:
        """Volcano's queues by name, or None before they are listed or if the operator may not read them."""
        if self._queue_informer is None or not self._queue_informer.synced.is_set():
            return None
        return {queue.metadata.name: queue for queue in self._queues}

    def group(self, kind: Kind, key: ObjectKey) -> PodGroup | None:
        """Return a PodGroup of a kind that is ready."""
        return self.caches[kind].get(key) if kind in self.apis.ready else None

    async def wait_until_discovered(self) -> None:
        """Wait until every wanted scheduler has been discovered or found missing."""
        async with self._settled:
            await self._settled.wait_for(lambda: not self.apis.loading)

    async def run(self) -> None:
        """Discover and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._nudged.clear()
                for system in tuple(self._wanted):
                    await self._probe(system, group)
                await self._announce()
                await self._pause()

    async def _pause(self) -> None:
        if not self._wanted:
            await self._nudged.wait()
            return
        try:
            async with asyncio.timeout(IMPATIENT_SECONDS if self.apis.loading else PROBE_SECONDS):
                await self._nudged.wait()
        except TimeoutError:
            return

    async def _probe(self, system: GangSystem, group: asyncio.TaskGroup) -> None:
        """Watch the preferred kind that the cluster serves, and stop watching the others."""
        served: Kind | None = None
        for kind in system.kinds:
            answer = await self._is_served(kind)
            if answer is None:
                return
            if answer:
                served = kind
                break
        self._known.add(system)
        for kind in system.kinds:
            if kind is not served:
                self._stop(kind)
        if served is not None and served not in self._running:
            self._start(served, group)

    async def _is_served(self, kind: Kind) -> bool | None:
        """Return whether the API server serves a kind, None if its response is inconclusive."""
        resource = GANG_RESOURCES[kind]
        try:
            served = await self._client.has_resource(resource)
        except errors.ApiError as error:
            self._refusals[kind] = f"cannot determine whether {resource.api_version} is served: {error}"
            return None
        except errors.KubeError:
            return None
        self._refusals.pop(kind, None)
        return served

    def _start(self, kind: Kind, group: asyncio.TaskGroup) -> None:
        resource = GANG_RESOURCES[kind]
        log.info("the cluster serves %s of %s: watching them", resource.plural, resource.api_version)
        informer = Informer(
            self._client,
            resource,
            type=PodGroup,
            cache=self.caches[kind],
            rng=self._rng,
            namespace=self._namespace,
            on_change=self._changed,
            decode=limits.decoder_of(PodGroup, owned=False),
            max_in_namespace=None if self._namespace else limits.MAX_CHILDREN,
        )
        informers = (informer, self._flavor_informer(FLAVORS[kind])) if kind in FLAVORS else (informer,)
        optional: tuple[Informer[Any], ...] = ()
        if kind is Kind.POD_GROUP:
            self._queue_informer = self._make_queue_informer()
            optional = (self._queue_informer,)
        watch = self._watch(informers, optional)
        task = group.create_task(watch, name=f"watch {resource.plural}.{resource.group}")
        self._running[kind] = _Watch(informers, task)

    def _flavor_informer(self, resource: Resource) -> Informer[ResourceFlavor]:
        return Informer(
            self._client,
            resource,
            type=ResourceFlavor,
            cache=self.flavors,
            rng=self._rng,
            on_change=self._flavor_changed,
        )

    def _flavor_changed(
        self, old: ResourceFlavor | None, new: ResourceFlavor | None, *, initial: bool
    ) -> None:
        """Reconcile jobs that may have waited for the flavor; flavors are few and rarely change."""
        if old is None and new is not None and not initial:
            self._on_apis()

    def _make_queue_informer(self) -> Informer[Queue]:
        return Informer(
            self._client,
            VOLCANO_QUEUES,
            type=Queue,
            cache=self._queues,
            rng=self._rng,
            on_change=self._queue_changed,
        )

    def _queue_changed(self, old: Queue | None, new: Queue | None, *, initial: bool) -> None:
        """Reconcile jobs that may wait in the queue; its allocated resources are not compared."""
        if not initial and (old is None or new is None or (old.spec, old.status) != (new.spec, new.status)):
            self._on_apis()

    async def _reconcile_when_synced(self, informer: Informer[Any]) -> None:
        await informer.synced.wait()
        self._on_apis()

    async def _watch(self, informers: tuple[Informer[Any], ...], optional: tuple[Informer[Any], ...]) -> None:
        """Run informers. Nothing waits for the optional ones, which may be forbidden."""
        async with asyncio.TaskGroup() as group:
            for informer in (*informers, *optional):
                group.create_task(informer.run())
            for informer in optional:
                group.create_task(self._reconcile_when_synced(informer))
            for informer in informers:
                await informer.synced.wait()
            self._nudged.set()

    def _stop(self, kind: Kind) -> None:
        running = self._running.pop(kind, None)
        if running is None:
            return
        log.info("the cluster no longer serves %s", GANG_RESOURCES[kind].api_version)
        running.task.cancel()
        self.caches[kind].replace((), "")
        if kind is Kind.POD_GROUP:
            self._queue_informer = None
            self._queues.replace((), "")

    def _changed(self, old: PodGroup | None, new: PodGroup | None, *, initial: bool) -> None:
        known = new or old
        assert known is not None
        if old is None or new is None or _relevant_fields(old) != _relevant_fields(new):
            self._on_group(known.metadata.key, initial)

    async def _announce(self) -> None:
        fresh = self._read_apis()
        if fresh != self.apis:
            self.apis = fresh
            self._on_apis()
        async with self._settled:
            self._settled.notify_all()

    def _read_apis(self) -> GangApis:
        ready = {kind for kind, watch in self._running.items() if watch.is_synced}
        trouble = {kind: text for kind, text in self._refusals.items() if kind not in ready}
        for kind, watch in self._running.items():
            if kind not in ready and watch.trouble:
                trouble[kind] = watch.trouble
        loading = {kind for kind in self._running if kind not in ready and kind not in trouble}
        for system in self._wanted:
            if system not in self._known and not any(kind in trouble for kind in system.kinds):
                loading |= set(system.kinds)
        return GangApis(frozenset(ready), frozenset(loading), trouble)


def _relevant_fields(group: PodGroup) -> tuple[object, ...]:
    """Return the fields that decisions depend on; schedulers update the others every second."""
    conditions = tuple((one.type, one.status, one.reason, one.message) for one in group.status.conditions)
    metadata = group.metadata
    owner, leaving = metadata.controller_uid, metadata.deletion_timestamp
    return metadata.uid, owner, leaving, group.spec, group.status.phase, conditions
