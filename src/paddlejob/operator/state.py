"""What the operator knows about the cluster: caches filled by informers, read as snapshots of one job."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from paddlejob.api import defaulting, names, validation
from paddlejob.api.meta import HasMeta, ObjectKey, ObjectMeta
from paddlejob.api.pod import ConfigMap, Pod, Service, share_parts
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus
from paddlejob.api.validation.errors import FieldError
from paddlejob.core.actions import Kind
from paddlejob.core.gang.choose import relevant_systems
from paddlejob.core.network import network_of
from paddlejob.core.pod_set import has_ended
from paddlejob.core.recording.hangs import Hang, restored_hang
from paddlejob.core.recording.recorder import Recorder, foreign_recorder, recorder_of
from paddlejob.core.recording.stragglers import Slowdown
from paddlejob.core.snapshot import Snapshot, StateTimer, WriteFailure
from paddlejob.kube import errors
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.informer import Decode, Informer
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES, Resource
from paddlejob.operator import predicates
from paddlejob.operator.gang_informers import GangInformers
from paddlejob.operator.limits import views
from paddlejob.operator.limits.packed import PackedParts
from paddlejob.operator.resources import PADDLE_JOBS, RESOURCE_OF, SELECTORS
from paddlejob.operator.settings import OperatorSettings

T = TypeVar("T", bound=HasMeta)
Notice = TypeVar("Notice", Hang, Slowdown)

OBSTACLE_SECONDS = 60.0
"""How long after an unsuccessful installation of the recorder pods are created without it."""

OnTrigger = Callable[[ObjectKey, "Trigger"], None]


class Trigger(msgspec.Struct, frozen=True):
    """Why a job is reconciled."""

    initial: bool
    """The object existed when the operator started."""
    child: bool = False
    """One of the job's objects changed, not the job itself."""
    idle: bool = False
    """Nothing that a decision depends on changed; counts may have."""


class StaleCacheError(errors.KubeError):
    """An object has changed since the version that the cache holds."""


class _Fetched(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b"{}")


class ClusterState:
    """Caches of jobs and their objects, and the informers that fill them."""

    def __init__(
        self, client: Client, settings: OperatorSettings, on_trigger: OnTrigger, rng: random.Random
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_touched = on_trigger
        self._rng = rng
        self.jobs: Cache[PaddleJob] = Cache()
        """Outlines of the jobs, without templates; `with_templates` returns the whole job."""
        self._packed = PackedParts()
        """Specs of the jobs that may need pods, and the data of their ConfigMaps."""
        self.pods: Cache[Pod] = Cache({"owner": _controller, "owner name": _controller_name}, share_parts)
        self.services: Cache[Service] = Cache({"owner": _controller})
        self.config_maps: Cache[ConfigMap] = Cache()
        self.recorder: Recorder | None = None
        """What pods are given to report with; set once reports can be taken."""
        self._recorder_obstacles: dict[str, tuple[float, str]] = {}
        """Why pods of a namespace must not mount the recorder, and until when that is believed."""
        self._notices: dict[tuple[type, ObjectKey], Hang | Slowdown | None] = {}
        self.watches_hangs = False
        """Whether hangs are looked for; then one on record lasts until the job is seen to move."""
        self.awaited: dict[ObjectKey, tuple[int, str]] = {}
        """Which rank of a job all others wait for, and in which attempt."""
        self._warnings: dict[ObjectKey, tuple[str, str]] = {}
        """What is wrong with a pod, and its UID."""
        self._host_ports: dict[ObjectKey, int] = {}
        self._state_timers: dict[ObjectKey, StateTimer] = {}
        self._spec_errors: dict[ObjectKey, tuple[tuple[object, ...], tuple[FieldError, ...]]] = {}
        self.gangs = GangInformers(
            client,
            namespace=settings.namespace,
            rng=rng,
            on_group=self._group_changed,
            on_apis=self._gang_apis_changed,
        )
        self.informers: tuple[Informer[Any], ...] = (
            self._job_informer(),
            self._child_informer(PODS, Pod, self.pods, views.decoder_of(Pod, owned=True)),
            self._child_informer(SERVICES, Service, self.services, views.decoder_of(Service, owned=True)),
            self._child_informer(CONFIG_MAPS, ConfigMap, self.config_maps, self._decode_config_map),
        )

    @property
    def caches(self) -> dict[Resource, Cache[Any]]:
        """The caches by kind, to wait for our own writes to appear in."""
        return {
            PADDLE_JOBS: self.jobs,
            PODS: self.pods,
            SERVICES: self.services,
            CONFIG_MAPS: self.config_maps,
            **{RESOURCE_OF[kind]: cache for kind, cache in self.gangs.caches.items()},
        }

    def job(self, key: ObjectKey) -> PaddleJob | None:
        """Return the outline of a job, also of one whose stored form does not fit the API's types."""
        return self.jobs.get(key)

    async def with_templates(self, job: PaddleJob) -> PaddleJob:
        """Return the whole job of an outline. A spec that is not in memory is read from the API server.

        Raises StaleCacheError if the job has changed meanwhile, and KubeError.
        """
        if job.undecodable:
            return job
        packed = self._packed.get(job.metadata, str(job.metadata.generation))
        if packed is None:
            found = await self._fetch(PADDLE_JOBS, job.metadata)
            if found.metadata.generation != job.metadata.generation:
                raise StaleCacheError(f"{job.metadata.key} has changed")
            packed = bytes(found.spec)
        return msgspec.structs.replace(job, spec=views.decode_spec(packed))

    async def environment(self, job: PaddleJob) -> ConfigMap | None:
        """Return the ConfigMap of a job with its data, None if there is none. Raises as `with_templates`."""
        known = self.config_maps.get(job.metadata.key)
        if known is None or known.metadata.controller_uid != job.metadata.uid:
            return None
        version = known.metadata.resource_version
        packed = self._packed.get(known.metadata, version)
        if packed is None:
            found = await self._fetch(CONFIG_MAPS, known.metadata)
            if found.metadata.resource_version != version:
                raise StaleCacheError(f"ConfigMap {known.metadata.key} has changed")
            packed = bytes(found.data)
        return msgspec.structs.replace(known, data=views.decode_data(packed))

    async def _fetch(self, resource: Resource, metadata: ObjectMeta) -> _Fetched:
        found = await self._client.find(resource, metadata.namespace, metadata.name, type=_Fetched)
        if found is None or found.metadata.uid != metadata.uid:
            raise StaleCacheError(f"{resource.kind} {metadata.key} was deleted")
        return found

    def job_of(self, pod: Pod) -> PaddleJob | None:
        """Return the job that controls a pod, None where it is gone."""
        key = views.owning_job(pod.metadata)
        job = self.jobs.get(key) if key else None
        return job if job is not None and job.metadata.uid == pod.metadata.controller_uid else None

    def snapshot(
        self,
        job: PaddleJob,
        now: datetime,
        failures: tuple[WriteFailure, ...],
        config_map: ConfigMap | None = None,
    ) -> Snapshot:
        """Return everything that a decision about a job may depend on."""
        uid, key = job.metadata.uid, job.metadata.key
        pods = self.pods.find("owner", uid)
        timer = self._state_timers.setdefault(key, StateTimer())
        return Snapshot(
            job=job,
            now=now,
            pods=pods,
            predecessors=self._predecessors(job),
            services=self.services.find("owner", uid),
            config_map=config_map,
            pod_groups=self._pod_groups(job.metadata.key),
            flavors={flavor.metadata.name: flavor for flavor in self.gangs.flavors},
            queues=self.gangs.queues,
            gang_apis=self.gangs.apis,
            settings=self._settings.jobs,
            spec_errors=None if job.status.phase.is_terminal else self._validated(job),
            **self._taken_host_ports(job),
            failures=failures,
            recorder=self.recorder,
            hang=self.noticed(job, Hang),
            slowdown=self.noticed(job, Slowdown),
            awaited=self._awaited(job),
            warning=self._warning(key, pods),
            has_recorder=self._has_recorder(job.metadata.namespace),
            recorder_obstacle=self._recorder_obstacle(job.metadata.namespace),
            state_seconds=timer.measure(pods, asyncio.get_running_loop().time()),
        )

    def _has_recorder(self, namespace: str) -> bool:
        found = self._recorder_config(namespace)
        return found is not None and self._is_ours(found)

    def _recorder_config(self, namespace: str) -> ConfigMap | None:
        return self.config_maps.get(ObjectKey(namespace, self.recorder.name)) if self.recorder else None

    def _is_ours(self, config_map: ConfigMap) -> bool:
        """Return whether a ConfigMap with the recorder's name has our files; anybody can create one."""
        return self.recorder is not None and config_map.fingerprint == self.recorder.fingerprint

    def _recorder_obstacle(self, namespace: str) -> str:
        found = self._recorder_config(namespace)
        if found is not None:
            return "" if self._is_ours(found) else foreign_recorder(namespace, found.metadata.name)
        until, obstacle = self._recorder_obstacles.get(namespace, (-math.inf, ""))
        return obstacle if asyncio.get_running_loop().time() < until else ""

    def note_recorder_obstacle(self, namespace: str, obstacle: str) -> None:
        """Note why pods must not mount the recorder of a namespace: not every ConfigMap is watched."""
        clock = asyncio.get_running_loop().time()
        known = self._recorder_obstacles.items()
        self._recorder_obstacles = {name: noted for name, noted in known if noted[0] > clock}
        self._recorder_obstacles[namespace] = (clock + OBSTACLE_SECONDS, obstacle)

    def notice(self, key: ObjectKey, kind: type[Notice], found: Notice | None) -> None:
        """Note what was found about a job, or that it is so no more, and let the job be looked at."""
        self._notices[kind, key] = found
        self._on_touched(key, Trigger(initial=False, child=True))

    def noticed(self, job: PaddleJob, kind: type[Notice]) -> Notice | None:
        """Return what was found about the present attempt of a job, perhaps by an earlier operator."""
        restored = restored_hang(job.status) if self.watches_hangs else None
        found = self._notices.get((kind, job.metadata.key), restored)
        return found if isinstance(found, kind) and found.attempt == job.status.attempt else None

    def _awaited(self, job: PaddleJob) -> str:
        attempt, awaited = self.awaited.get(job.metadata.key, (0, ""))
        return awaited if attempt == job.status.attempt else ""

    def warn(self, job: ObjectKey, pod: Pod, warning: str) -> None:
        """Note what people should know of a job as long as this pod is there, and let it be looked at."""
        self._warnings[job] = (pod.metadata.uid, warning)
        self._on_touched(job, Trigger(initial=False, child=True))

    def _warning(self, key: ObjectKey, pods: tuple[Pod, ...]) -> str:
        uid, warning = self._warnings.get(key, ("", ""))
        return warning if any(pod.metadata.uid == uid for pod in pods) else ""

    def _validated(self, job: PaddleJob) -> tuple[FieldError, ...]:
        """Return what is wrong with a spec, which changes only with its generation."""
        metadata = job.metadata
        version = (metadata.uid, metadata.generation, job.undecodable)
        known = self._spec_errors.get(metadata.key)
        if known is None or known[0] != version:
            errors = validation.validate(job, pods_have_ipv6=self._settings.jobs.pods_have_ipv6)
            known = self._spec_errors[metadata.key] = (version, errors)
        return known[1]

    def remains(self, key: ObjectKey) -> tuple[Pod, ...]:
        """Return the pods of all jobs that have or had this name."""
        return self.pods.find("owner name", str(key))

    def _predecessors(self, job: PaddleJob) -> tuple[Pod, ...]:
        uid = job.metadata.uid
        return tuple(pod for pod in self.remains(job.metadata.key) if pod.metadata.controller_uid != uid)

    def _pod_groups(self, key: ObjectKey) -> dict[Kind, PodGroup]:
        found = ((kind, self.gangs.group(kind, key)) for kind in self.gangs.apis.ready)
        return {kind: group for kind, group in found if group is not None}

    def reserve_host_port(self, key: ObjectKey, status: PaddleJobStatus) -> None:
        """Remember a port as soon as it is chosen, before the cache can show it to the next job."""
        if status.host_port:
            self._host_ports[key] = status.host_port

    def forget(self, key: ObjectKey) -> None:
        """Drop what is remembered of a job that is gone; its port not before its pods are."""
        self._state_timers.pop(key, None)
        for kind in (Hang, Slowdown):
            self._notices.pop((kind, key), None)
        self.awaited.pop(key, None)
        self._warnings.pop(key, None)
        self._spec_errors.pop(key, None)
        if not self._holds_host_port(key):
            self._host_ports.pop(key, None)

    def _taken_host_ports(self, job: PaddleJob) -> dict[str, Any]:
        """Return the fields of a snapshot with the ports of other jobs, for a job that needs some."""
        has_host_ports = network_of(defaulting.effective(job.spec).intranet).has_host_ports
        if not has_host_ports or job.status.host_port:
            return {}
        key, namespace = job.metadata.key, job.metadata.namespace
        others = [other for other in self._host_ports if other != key and self._holds_host_port(other)]
        is_shared = not self._settings.namespace
        return {
            "taken_host_ports": frozenset(self._host_ports[other] for other in others),
            "namespace_host_ports": sum(is_shared and other.namespace == namespace for other in others),
        }

    def _holds_host_port(self, key: ObjectKey) -> bool:
        """A job holds its port until it has ended and all of its pods have."""
        job = self.jobs.get(key)
        if job is not None and not job.status.phase.is_terminal:
            return True
        return not all(map(has_ended, self.remains(key)))

    def _job_informer(self) -> Informer[PaddleJob]:
        return Informer(
            self._client,
            PADDLE_JOBS,
            type=PaddleJob,
            cache=self.jobs,
            rng=self._rng,
            namespace=self._settings.namespace or None,
            on_change=self._job_changed,
            on_decode_error=views.readable_job,
            decode=self._decode_job,
        )

    def _decode_job(self, encoded: msgspec.Raw) -> PaddleJob:
        job, spec = views.decode_job(encoded)
        if needs_templates(job):
            self._packed.put(job.metadata, str(job.metadata.generation), spec)
        else:
            self._packed.drop(job.metadata)
        return job

    def _decode_config_map(self, encoded: msgspec.Raw) -> ConfigMap | None:
        found = views.decode_config_map(encoded)
        if found is None:
            return None
        config_map, data = found
        job = self.jobs.get(config_map.metadata.key)
        if data and (job is None or needs_templates(job)):
            self._packed.put(config_map.metadata, config_map.metadata.resource_version, data)
        return config_map

    def _child_informer(
        self, resource: Resource, kind: type[T], cache: Cache[T], decode: Decode[T]
    ) -> Informer[T]:
        return Informer(
            self._client,
            resource,
            type=kind,
            cache=cache,
            rng=self._rng,
            namespace=self._settings.namespace or None,
            label_selector=SELECTORS[resource],
            on_change=self._child_changed,
            decode=decode,
        )

    def _job_changed(self, old: PaddleJob | None, new: PaddleJob | None, *, initial: bool) -> None:
        known = new or old
        assert known is not None
        key = known.metadata.key
        if new is None:
            # Another job may have the name already, and the next reconcile be of that one.
            self._packed.drop(known.metadata)
            self.forget(key)
        else:
            if not needs_templates(new) and (config_map := self.config_maps.get(key)):
                self._packed.drop(config_map.metadata)
            self.reserve_host_port(key, new.status)
            if not new.status.host_port:
                self._host_ports.pop(key, None)
            self.gangs.want(relevant_systems(new, self._settings.jobs.scheduling))
        if old is None or new is None or predicates.needs_reconcile(old, new):
            self._on_touched(key, Trigger(initial=initial, child=False))

    def _group_changed(self, key: ObjectKey, initial: bool) -> None:  # noqa: FBT001  (a callback)
        """Reconcile the job that a PodGroup is named after, whoever created the PodGroup."""
        if key in self.jobs:
            self._on_touched(key, Trigger(initial=initial, child=True))

    def _gang_apis_changed(self) -> None:
        for job in self.jobs:
            if relevant_systems(job, self._settings.jobs.scheduling):
                self._on_touched(job.metadata.key, Trigger(initial=False, child=True))

    def _child_changed(self, old: HasMeta | None, new: HasMeta | None, *, initial: bool) -> None:
        known = new or old
        assert known is not None
        if isinstance(known, ConfigMap) and not initial and self._is_no_longer_ours(known, new):
            self._recorder_lost(known.metadata.namespace)
        if isinstance(known, ConfigMap) and new is None:
            self._packed.drop(known.metadata)
        if key := views.owning_job(known.metadata):
            idle = predicates.is_idle(old, new) or self._waits_for_others(old, new)
            self._on_touched(key, Trigger(initial=initial, child=True, idle=idle))

    def _is_no_longer_ours(self, config_map: ConfigMap, new: HasMeta | None) -> bool:
        is_recorder = self.recorder is not None and config_map.metadata.name == self.recorder.name
        return is_recorder and (new is None or not self._is_ours(config_map))

    def _recorder_lost(self, namespace: str) -> None:
        """Reconcile the jobs whose pods may have to mount the recorder: it is gone, or not ours."""
        for job in self.jobs:
            if job.metadata.namespace == namespace and recorder_of(job, self.recorder):
                self._on_touched(job.metadata.key, Trigger(initial=False, child=True))

    def _waits_for_others(self, old: HasMeta | None, new: HasMeta | None) -> bool:
        """Tell whether other pods of the job have yet to come as far as this one.

        A job proceeds when its last pod does, so of a hundred pods that get an address only the last counts.
        """
        if not (isinstance(new, Pod) and predicates.only_progressed(old, new)):
            return False
        reached = predicates.progress(new)
        others = self.pods.newest_first("owner", new.metadata.controller_uid)
        return any(predicates.progress(other) < reached for other in others)


def needs_templates(job: PaddleJob) -> bool:
    """Return whether pods may still be created for a job."""
    is_ours = job.spec.managed_by in ("", names.CONTROLLER_NAME)
    return is_ours and not job.status.phase.is_terminal and not job.undecodable


def _controller(child: HasMeta) -> tuple[str, ...]:
    uid = child.metadata.controller_uid
    return (uid,) if uid else ()


def _controller_name(child: HasMeta) -> tuple[str, ...]:
    owner = views.owning_job(child.metadata)
    return (str(owner),) if owner else ()
