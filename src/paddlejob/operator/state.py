"""The operator's view of the cluster: caches filled by informers, and snapshots of single jobs."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from paddlejob.api import defaulting, names, validation
from paddlejob.api.meta import HasMeta, ObjectKey, ObjectMeta
from paddlejob.api.pod import ConfigMap, Pod, Service, share_parts
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus
from paddlejob.api.validation.errors import FieldError
from paddlejob.core.actions import Kind
from paddlejob.core.attempts.processes import Process, required_attempt
from paddlejob.core.attempts.recovery import Moments
from paddlejob.core.gang.choose import relevant_systems
from paddlejob.core.gang.model import GANG_RESOURCES
from paddlejob.core.network import network_of
from paddlejob.core.pod_set import has_ended
from paddlejob.core.recorder import Recorder, foreign_recorder, recorder_of
from paddlejob.core.snapshot import Snapshot, StateTimer, WriteFailure
from paddlejob.kube import errors
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.informer import Decode, Informer
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES, Resource
from paddlejob.operator import limits
from paddlejob.operator.changes import Trigger, is_idle, needs_reconcile, only_progressed, startup_stage
from paddlejob.operator.gang_informers import GangInformers
from paddlejob.operator.limits import PackedParts, needs_templates
from paddlejob.operator.settings import OperatorSettings
from paddlejob.training.findings import F, Finding, Hang, IdleAccelerators, find
from paddlejob.training.hangs import restored_hang

T = TypeVar("T", bound=HasMeta)

OBSTACLE_SECONDS = 60.0
"""Time for which pods are created without the recorder after it could not be installed."""

SELECTORS = {
    PODS: names.LABEL_RESOURCE_TYPE,
    SERVICES: names.LABEL_RESOURCE_TYPE,
    CONFIG_MAPS: names.LABEL_RESOURCE_NAME,
}
"""Labels of the watched objects. Memory grows with the number of jobs, not with the cluster."""

OnTrigger = Callable[[ObjectKey, Trigger], None]


class StaleCacheError(errors.KubeError):
    """An object has changed since the cached version."""


class _Fetched(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b"{}")


class JobMemory:
    """State of one job that is not stored in the cluster. It may be lost at any time."""

    def __init__(self) -> None:
        self.timer = StateTimer()
        self.findings: dict[type, Finding | None] = {}
        """Findings by kind; None if the job is known not to have one."""
        self.spec_errors: tuple[FieldError, ...] = ()
        self.validated: tuple[object, ...] = ()
        """Version of the spec that `spec_errors` belong to."""
        self.failures: tuple[WriteFailure, ...] = ()
        """Failed writes of the last reconcile."""
        self.status_written_at = -math.inf
        self.processes: dict[str, Process] = {}
        """Programs whose supervisors report, by the UID of their pod."""
        self.stages: Counter[tuple[int, bool]] = Counter()
        """Number of programs in each stage."""
        self.requests: dict[str, int] = {}
        """Number of the latest request of each supervisor, by the UID of its pod."""
        self.moments: Moments | None = None
        """When the last restart passed its milestones."""
        self._attempt = -1
        self._attempt_since = 0.0

    def attempt_seconds(self, attempt: int, now: float) -> float:
        """Return how long an attempt has been known; `now` is the monotonic time."""
        if attempt != self._attempt:
            self._attempt, self._attempt_since = attempt, now
        return now - self._attempt_since


class ClusterState:
    """Caches of jobs and their objects, and the informers that fill them."""

    def __init__(
        self, client: Client, settings: OperatorSettings, on_trigger: OnTrigger, rng: random.Random
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_trigger = on_trigger
        self._rng = rng
        self.jobs: Cache[PaddleJob] = Cache()
        """Outlines of jobs, without templates; `with_templates` returns the whole job."""
        self._packed = PackedParts()
        """Specs of jobs that may need pods, and the data of their ConfigMaps."""
        self.pods: Cache[Pod] = Cache(
            {"owner": limits.owner_index, "owner name": limits.owner_name_index}, share_parts
        )
        self.services: Cache[Service] = Cache({"owner": limits.owner_index})
        self.config_maps: Cache[ConfigMap] = Cache()
        self.recorder: Recorder | None = None
        """Recorder config for new pods; set once the reports port is open."""
        self._recorder_obstacles: dict[str, tuple[float, str]] = {}
        """Reason why pods of a namespace must not mount the recorder, and the time until which it applies."""
        self.watches_hangs = False
        """Whether hangs are detected. A hang in a job's status then lasts until the job progresses."""
        self._host_ports: dict[ObjectKey, int] = {}
        """First host port by job. A deleted job keeps its port until its pods have ended."""
        self._memories: dict[ObjectKey, JobMemory] = {}
        self.listeners: list[Callable[[ObjectKey], None]] = []
        """Called when a job or its ConfigMap has changed."""
        self.supervised: Counter[str] = Counter()
        """Number of pods whose supervisors report, by namespace."""
        self.gangs = GangInformers(
            client,
            namespace=settings.namespace,
            rng=rng,
            on_group=self._group_changed,
            on_apis=self._gang_apis_changed,
        )
        self.informers: tuple[Informer[Any], ...] = (
            self._job_informer(),
            self._child_informer(PODS, Pod, self.pods, limits.decoder_of(Pod, owned=True)),
            self._child_informer(SERVICES, Service, self.services, limits.decoder_of(Service, owned=True)),
            self._child_informer(CONFIG_MAPS, ConfigMap, self.config_maps, self._decode_config_map),
        )

    @property
    def caches(self) -> dict[Resource, Cache[Any]]:
        """The caches by resource, in which our own writes must appear."""
        return {
            PADDLE_JOBS: self.jobs,
            PODS: self.pods,
            SERVICES: self.services,
            CONFIG_MAPS: self.config_maps,
            **{GANG_RESOURCES[kind]: cache for kind, cache in self.gangs.caches.items()},
        }

    def job(self, key: ObjectKey) -> PaddleJob | None:
        """Return the outline of a job, also if the stored job does not decode."""
        return self.jobs.get(key)

    async def with_templates(self, job: PaddleJob) -> PaddleJob:
        """Return the whole job of an outline. A spec that is not in memory is read from the API server.

        Raises StaleCacheError if the job has changed since, and KubeError.
        """
        if job.undecodable:
            return job
        packed = self._packed.get(job.metadata, str(job.metadata.generation))
        if packed is None:
            found = await self._fetch(PADDLE_JOBS, job.metadata)
            if found.metadata.generation != job.metadata.generation:
                raise StaleCacheError(f"{job.metadata.key} has changed")
            packed = bytes(found.spec)
        return msgspec.structs.replace(job, spec=limits.decode_spec(packed))

    async def environment(self, job: PaddleJob) -> ConfigMap | None:
        """Return the ConfigMap of a job with its data, or None. Raises the errors of `with_templates`."""
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
        return msgspec.structs.replace(known, data=limits.decode_data(packed))

    async def _fetch(self, resource: Resource, metadata: ObjectMeta) -> _Fetched:
        found = await self._client.find(resource, metadata.namespace, metadata.name, type=_Fetched)
        if found is None or found.metadata.uid != metadata.uid:
            raise StaleCacheError(f"{resource.kind} {metadata.key} was deleted")
        return found

    def job_of(self, pod: Pod) -> PaddleJob | None:
        """Return the job that controls a pod, or None if it is deleted."""
        key = limits.owning_job(pod.metadata)
        job = self.jobs.get(key) if key else None
        return job if job is not None and job.metadata.uid == pod.metadata.controller_uid else None

    def snapshot(
        self,
        job: PaddleJob,
        now: datetime,
        config_map: ConfigMap | None = None,
    ) -> Snapshot:
        """Return everything that a decision about a job may depend on."""
        uid, key = job.metadata.uid, job.metadata.key
        pods = self.pods.find("owner", uid)
        memory, clock = self.memory(key), asyncio.get_running_loop().time()
        # The kept pods of a finished job have no supervisor any more.
        is_over = job.status.phase.is_terminal
        present = {pod.metadata.uid for pod in pods if not (is_over and has_ended(pod))}
        self._forget_programs(key, memory.processes.keys() - present)
        memory.requests = {uid: each for uid, each in memory.requests.items() if uid in present}
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
            spec_errors=None if job.status.phase.is_terminal else self._spec_errors(job),
            **self._taken_host_ports(job),
            failures=memory.failures,
            recorder=self.recorder,
            findings=self._findings_of(job, pods),
            has_recorder=self._has_recorder(job.metadata.namespace),
            recorder_obstacle=self._recorder_obstacle(job.metadata.namespace),
            state_seconds=memory.timer.measure(pods, clock),
            processes=dict(memory.processes),
            attempt_seconds=memory.attempt_seconds(job.status.attempt, clock),
        )

    def _has_recorder(self, namespace: str) -> bool:
        found = self._recorder_config(namespace)
        return found is not None and self._is_ours(found)

    def _recorder_config(self, namespace: str) -> ConfigMap | None:
        return self.config_maps.get(ObjectKey(namespace, self.recorder.name)) if self.recorder else None

    def _is_ours(self, config_map: ConfigMap) -> bool:
        """Return whether a ConfigMap with the recorder's name has our files; any user can create one."""
        return self.recorder is not None and config_map.fingerprint == self.recorder.fingerprint

    def _recorder_obstacle(self, namespace: str) -> str:
        found = self._recorder_config(namespace)
        if found is not None:
            return "" if self._is_ours(found) else foreign_recorder(namespace, found.metadata.name)
        until, obstacle = self._recorder_obstacles.get(namespace, (-math.inf, ""))
        return obstacle if asyncio.get_running_loop().time() < until else ""

    def note_recorder_obstacle(self, namespace: str, obstacle: str) -> None:
        """Note why pods of a namespace must not mount the recorder; not every ConfigMap is watched."""
        clock = asyncio.get_running_loop().time()
        known = self._recorder_obstacles.items()
        self._recorder_obstacles = {name: noted for name, noted in known if noted[0] > clock}
        self._recorder_obstacles[namespace] = (clock + OBSTACLE_SECONDS, obstacle)

    def note_process(self, key: ObjectKey, pod_uid: str, process: Process) -> None:
        """Note the program in a pod, and enqueue the job if it has changed."""
        memory = self.memory(key)
        known = memory.processes.get(pod_uid)
        if known != process:
            self._forget_programs(key, [pod_uid] if known else [])
            self.supervised[key.namespace] += 1
            memory.stages[process.stage] += 1
            memory.processes[pod_uid] = process
            idle = self._waits_for_programs(key, process)
            self._on_trigger(key, Trigger(initial=False, child=True, idle=idle))

    def process_attempt(self, job: PaddleJob, pod: Pod) -> int:
        """Return the attempt of the program in a pod."""
        process = self.memory(job.metadata.key).processes.get(pod.metadata.uid)
        return process.attempt if process else required_attempt(pod, job.status)

    def _forget_programs(self, key: ObjectKey, uids: Iterable[str]) -> None:
        """Forget the programs of pods."""
        memory = self.memory(key)
        for uid in uids:
            stage = memory.processes.pop(uid).stage
            memory.stages[stage] -= 1
            if not memory.stages[stage]:
                del memory.stages[stage]
            self.supervised[key.namespace] -= 1

    def _notify(self, key: ObjectKey) -> None:
        for listener in self.listeners:
            listener(key)

    def note(self, key: ObjectKey, kind: type[F], found: F | None, *, reconcile: bool = True) -> None:
        """Note a finding about a job, or None if it no longer applies; enqueue the job if `reconcile`."""
        self.memory(key).findings[kind] = found
        if reconcile:
            self._on_trigger(key, Trigger(initial=False, child=True))

    def finding(self, job: PaddleJob, kind: type[F]) -> F | None:
        """Return a finding about the current attempt of a job."""
        return find(self._findings_of(job, self.pods.find("owner", job.metadata.uid)), kind)

    def _findings_of(self, job: PaddleJob, pods: tuple[Pod, ...]) -> tuple[Finding, ...]:
        """Return the findings about the current attempt, including a hang recorded by an earlier operator."""
        known = self.memory(job.metadata.key).findings
        if self.watches_hangs and Hang not in known:
            known = {Hang: restored_hang(job.status), **known}
        return tuple(each for each in known.values() if each is not None and _applies(each, job, pods))

    def _spec_errors(self, job: PaddleJob) -> tuple[FieldError, ...]:
        """Return the errors of a spec, computed once for each generation."""
        metadata, memory = job.metadata, self.memory(job.metadata.key)
        version = (metadata.uid, metadata.generation, job.undecodable)
        if memory.validated != version:
            has_ipv6 = self._settings.jobs.pods_have_ipv6
            memory.spec_errors = validation.validate(job, pods_have_ipv6=has_ipv6)
            memory.validated = version
        return memory.spec_errors

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
        """Reserve the port of a job when it is chosen, before the cache shows it to the next job."""
        if status.host_port:
            self._host_ports[key] = status.host_port

    def memory(self, key: ObjectKey) -> JobMemory:
        """Return the memory of a job."""
        if (known := self._memories.get(key)) is None:
            known = self._memories[key] = JobMemory()
        return known

    def forget(self, key: ObjectKey) -> None:
        """Drop the memory of a deleted job, and its host port once its pods have ended."""
        if key in self._memories:
            self._forget_programs(key, list(self._memories[key].processes))
            del self._memories[key]
        if not self._holds_host_port(key):
            self._host_ports.pop(key, None)

    def _taken_host_ports(self, job: PaddleJob) -> dict[str, Any]:
        """Return the snapshot fields with the host ports of other jobs, if the job needs a port."""
        has_host_ports = network_of(defaulting.effective(job.spec).intranet).has_host_ports
        if not has_host_ports or job.status.host_port:
            return {}
        key, namespace = job.metadata.key, job.metadata.namespace
        others = [other for other in self._host_ports if other != key and self._holds_host_port(other)]
        return {
            "taken_host_ports": frozenset(self._host_ports[other] for other in others),
            "namespace_host_ports": sum(self._is_shared and other.namespace == namespace for other in others),
        }

    def _holds_host_port(self, key: ObjectKey) -> bool:
        """Return whether a job still holds its port: until the job and all of its pods have ended."""
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
            on_decode_error=limits.readable_job,
            decode=self._decode_job,
            max_in_namespace=limits.MAX_JOBS if self._is_shared else None,
            is_retired=lambda job: job.status.phase.is_terminal,
        )

    @property
    def _is_shared(self) -> bool:
        """Whether the operator serves all namespaces."""
        return not self._settings.namespace

    def _decode_job(self, encoded: msgspec.Raw) -> PaddleJob:
        job, spec = limits.decode_job(encoded)
        if needs_templates(job):
            self._packed.put(job.metadata, str(job.metadata.generation), spec)
        else:
            self._packed.drop(job.metadata)
        return job

    def _decode_config_map(self, encoded: msgspec.Raw) -> ConfigMap | None:
        found = limits.decode_config_map(encoded)
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
            max_in_namespace=limits.MAX_CHILDREN if self._is_shared else None,
        )

    def _job_changed(self, old: PaddleJob | None, new: PaddleJob | None, *, initial: bool) -> None:
        known = new or old
        assert known is not None
        key = known.metadata.key
        if new is None:
            # A new job may already have the name, and the next reconcile is for that one.
            self._packed.drop(known.metadata)
            self.forget(key)
        else:
            if not needs_templates(new) and (config_map := self.config_maps.get(key)):
                self._packed.drop(config_map.metadata)
            self.reserve_host_port(key, new.status)
            if not new.status.host_port:
                self._host_ports.pop(key, None)
            self.gangs.want(relevant_systems(new, self._settings.jobs.scheduling))
        self._notify(key)
        if old is None or new is None or needs_reconcile(old, new):
            self._on_trigger(key, Trigger(initial=initial, child=False))

    def _group_changed(self, key: ObjectKey, initial: bool) -> None:  # noqa: FBT001  (a callback)
        """Reconcile the job with the name of a PodGroup, also if another controller created the PodGroup."""
        if key in self.jobs:
            self._on_trigger(key, Trigger(initial=initial, child=True))

    def _gang_apis_changed(self) -> None:
        for job in self.jobs:
            if relevant_systems(job, self._settings.jobs.scheduling):
                self._on_trigger(job.metadata.key, Trigger(initial=False, child=True))

    def _child_changed(self, old: HasMeta | None, new: HasMeta | None, *, initial: bool) -> None:
        known = new or old
        assert known is not None
        if isinstance(known, ConfigMap) and not initial and self._is_no_longer_ours(known, new):
            self._reconcile_recorder_users(known.metadata.namespace)
        if isinstance(known, ConfigMap) and new is None:
            self._packed.drop(known.metadata)
        if isinstance(known, ConfigMap):
            self._notify(known.metadata.key)
        if key := limits.owning_job(known.metadata):
            idle = is_idle(old, new) or self._waits_for_others(old, new)
            self._on_trigger(key, Trigger(initial=initial, child=True, idle=idle))

    def _is_no_longer_ours(self, config_map: ConfigMap, new: HasMeta | None) -> bool:
        is_recorder = self.recorder is not None and config_map.metadata.name == self.recorder.name
        return is_recorder and (new is None or not self._is_ours(config_map))

    def _reconcile_recorder_users(self, namespace: str) -> None:
        """Reconcile jobs that use the recorder after its ConfigMap was deleted or replaced."""
        for job in self.jobs:
            if job.metadata.namespace == namespace and recorder_of(job, self.recorder):
                self._on_trigger(job.metadata.key, Trigger(initial=False, child=True))

    def _waits_for_others(self, old: HasMeta | None, new: HasMeta | None) -> bool:
        """Return whether other pods of the job are behind this one: a job proceeds with its last pod."""
        if not (isinstance(new, Pod) and only_progressed(old, new)):
            return False
        reached = startup_stage(new)
        others = self.pods.newest_first("owner", new.metadata.controller_uid)
        return any(startup_stage(other) < reached for other in others)

    def _waits_for_programs(self, key: ObjectKey, process: Process) -> bool:
        """Return whether a program was stopped or started while programs of other pods are behind it."""
        job = self.jobs.get(key)
        if job is None or (process.is_down and process.attempt >= job.status.process_attempt):
            return False
        return any(stage < process.stage for stage in self.memory(key).stages)


def _applies(finding: Finding, job: PaddleJob, pods: tuple[Pod, ...]) -> bool:
    if isinstance(finding, IdleAccelerators):
        return any(pod.metadata.uid == finding.pod_uid for pod in pods)
    return finding.attempt == job.status.attempt
