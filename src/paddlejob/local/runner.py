"""The local replacement of a cluster: objects in memory, pods as processes, and the same core for decisions.

look at everything -> plan -> write the status -> tell -> act -> until nothing changes
"""

from __future__ import annotations

import asyncio
import enum
from datetime import UTC, datetime
from typing import Protocol, assert_never

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.pod import ConfigMap, Pod, Service
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase
from paddlejob.api.validation import validate
from paddlejob.core.actions import (
    Action,
    AnnotatePod,
    Create,
    Delete,
    DeleteJob,
    Event,
    EventType,
    InstallRecorder,
    Kind,
    PatchGroup,
    Plan,
    RemoveFinalizer,
    ReplaceConfig,
)
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Settings, Snapshot, StateTimer
from paddlejob.kubelet.environment import Contents
from paddlejob.local.errors import InputError
from paddlejob.local.pod.context import RunContext
from paddlejob.local.pod.hosts import hosts_file
from paddlejob.local.pod.pod import LocalPod
from paddlejob.local.ports import size_errors
from paddlejob.port_block import PortBlock

RUN_DIRECTORY_FAILED = "RunDirectoryFailed"
"""Reason of the event for a directory that cannot be written."""


class Ending(enum.StrEnum):
    """How a run ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"
    STOPPED = "Stopped"


class Observer(Protocol):
    """Is notified of what happens, as it happens."""

    def on_job(self, job: PaddleJob) -> None:
        """The job's status or spec is another."""

    def on_pod(self, pod: Pod) -> None:
        """A pod's status is another."""

    def on_pod_gone(self, name: str) -> None:
        """A pod was deleted, and nothing of it is left."""

    def on_event(self, event: Event) -> None:
        """Core has something to say."""


class LocalRunner:
    """One job and all that belongs to it."""

    def __init__(
        self,
        job: PaddleJob,
        context: RunContext,
        ports: PortBlock,
        *,
        config_maps: dict[str, Contents] | None = None,
        observers: tuple[Observer, ...] = (),
        settings: Settings | None = None,
    ) -> None:
        self.job = job
        self._context = context
        self._ports = ports
        self._settings = msgspec.structs.replace(
            settings or Settings(), base_port=ports.first, host_port_range=(ports.first, ports.last)
        )
        self._given_config_maps = dict(config_maps or {})
        self._observers = observers
        self._pods: dict[str, LocalPod] = {}
        self._state_timer = StateTimer()
        self._services: dict[str, Service] = {}
        self._config_map: ConfigMap | None = None
        self._numbers: dict[str, int] = {}
        self._version = 1
        self._changes = asyncio.Event()
        self._requeue: asyncio.TimerHandle | None = None
        self._stop: Ending | None = None
        self._error: BaseException | None = None
        self._watchers: set[asyncio.Task[None]] = set()

    def observe(self, observer: Observer) -> None:
        """Tell one more observer what happens from now on."""
        self._observers = (*self._observers, observer)

    @property
    def pods(self) -> tuple[LocalPod, ...]:
        """The pods there are."""
        return tuple(self._pods.values())

    def pids(self) -> dict[str, int]:
        """Return the process ids on this machine of the programs that run, by pod."""
        return {pod.name: pod.pid for pod in self.pods if pod.pid}

    async def run(self) -> Ending:
        """Bring the job to its end; when this returns, no process of it is left."""
        self._changes.set()
        try:
            while True:
                await self._changes.wait()
                self._changes.clear()
                if self._error is not None:
                    raise self._error
                if ending := self._ending():
                    return ending
                self._reconcile()
        finally:
            await self._clear()

    def scale(self, workers: int) -> None:
        """Change the number of workers. Raises InputError when the job does not allow it."""
        assert self.job.spec.worker is not None
        self._edit(worker=msgspec.structs.replace(self.job.spec.worker, replicas=workers))

    def suspend(self) -> None:
        """Take the pods away until `resume`."""
        self._edit(suspend=True)

    def resume(self) -> None:
        """Bring the pods of a suspended job back."""
        self._edit(suspend=False)

    def delete(self) -> None:
        """Delete the job, as `kubectl delete` would."""
        if self.job.metadata.deletion_timestamp is None:
            self._update_job(metadata=self._metadata(deletion_timestamp=datetime.now(UTC)))
        self._changes.set()

    def interrupt(self) -> None:
        """End the run: the first time with the pods' grace period, then at once."""
        if self._stop is not None:
            for pod in self.pods:
                pod.delete(at_once=True)
        self._stop = self._stop or Ending.INTERRUPTED
        self._changes.set()

    def _edit(self, **fields: object) -> None:
        """Change the spec, as `kubectl edit` would. Raises InputError."""
        if self.job.status.phase.is_terminal or self._stop or self.job.metadata.deletion_timestamp:
            raise InputError(f"the job has ended ({self.job.status.phase or 'stopped'})")
        changed = msgspec.structs.replace(self.job, spec=msgspec.structs.replace(self.job.spec, **fields))
        if errors := (*validate(changed), *size_errors(changed)):
            raise InputError.of(errors)
        if changed.spec != self.job.spec:
            generation = self.job.metadata.generation + 1
            self._update_job(spec=changed.spec, metadata=self._metadata(generation=generation))
            self._changes.set()

    def _ending(self) -> Ending | None:
        """Return how the run ended, once nothing is left for core to do."""
        if self._stop is not None:
            return self._stop
        phase = self.job.status.phase
        if phase is Phase.TERMINATING:
            return Ending.STOPPED
        if not phase.is_terminal or any(pod.is_leaving for pod in self.pods):
            return None
        left_to_do = [action for stage in self._plan().stages for action in stage]
        return None if any(isinstance(action, Delete) for action in left_to_do) else Ending(str(phase))

    def _reconcile(self) -> None:
        """One look and what follows from it."""
        decided = self._plan()
        self._write_status(decided.status)
        self._report(decided.events)
        for stage in decided.stages:
            for action in stage:
                self._apply(action)
        self._report(decided.events_when_done)
        if self._requeue is not None:
            self._requeue.cancel()
        if decided.requeue_after_seconds is not None:
            loop = asyncio.get_running_loop()
            self._requeue = loop.call_later(decided.requeue_after_seconds, self._changes.set)

    def _plan(self) -> Plan:
        pods = tuple(pod.view() for pod in self.pods)
        return plan(
            Snapshot(
                job=self.job,
                now=datetime.now(UTC),
                pods=pods,
                services=tuple(self._services.values()),
                config_map=self._config_map,
                settings=self._settings,
                state_seconds=self._state_timer.measure(pods, asyncio.get_running_loop().time()),
            )
        )

    def _apply(self, action: Action) -> None:
        """Carry out an action. Whatever changes something asks for another look; repeating it does not."""
        match action:
            case Create(kind=Kind.POD):
                self._create_pod(action.manifest)
            case Create(kind=Kind.SERVICE):
                self._services[action.name] = Service(self._stored(action.manifest))
                self._refresh_hosts()
                self._changes.set()
            case Create(kind=Kind.CONFIG_MAP) | ReplaceConfig():
                data = action.manifest["data"]
                self._config_map = ConfigMap(self._stored(action.manifest), data)
                self._changes.set()
            case AnnotatePod():
                if (pod := self._pods.get(action.name)) and pod.uid == action.uid:
                    pod.annotate(names.ANNOTATION_CONFIG_HASH, action.config_hash)
                    self._changes.set()
            case Delete(kind=Kind.POD):
                if (pod := self._pods.get(action.name)) and pod.uid == action.uid:
                    pod.delete(at_once=action.force)
            case Delete():
                del self._services[action.name]
                self._changes.set()
            case DeleteJob():
                self.delete()
            case RemoveFinalizer():
                self._update_job(metadata=self._metadata(finalizers=()))
                self._changes.set()
            case Create() | PatchGroup() | InstallRecorder():
                raise AssertionError(action)
            case _:
                assert_never(action)

    def _create_pod(self, manifest: JsonObject) -> None:
        name = manifest["metadata"]["name"]
        if name in self._pods:
            return
        pod = LocalPod(manifest, self._address(name), self._context, self._find_config_map, self._pod_changed)
        self._pods[name] = pod
        pod.start(self._hosts(pod))
        watcher = asyncio.create_task(self._reap(pod))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watcher_done)
        self._pod_changed(pod)

    def _watcher_done(self, watcher: asyncio.Task[None]) -> None:
        """Never swallow a bug of ours: the run ends with it."""
        self._watchers.discard(watcher)
        self._error = self._error or watcher.exception()
        self._changes.set()

    async def _reap(self, pod: LocalPod) -> None:
        """Forget a pod when it is gone."""
        await pod.gone()
        del self._pods[pod.name]
        for observer in self._observers:
            observer.on_pod_gone(pod.name)
        self._changes.set()

    def _pod_changed(self, pod: LocalPod) -> None:
        for observer in self._observers:
            observer.on_pod(pod.view())
        self._changes.set()

    def _find_config_map(self, name: str) -> Contents | None:
        if self._config_map is not None and name == self._config_map.metadata.name:
            return {key: value.encode() for key, value in self._config_map.data.items()}
        return self._given_config_maps.get(name)

    def _address(self, pod: str) -> str:
        """Return a pod's address, which its successors of the same name have too."""
        return self._ports.address(self._numbers.setdefault(pod, len(self._numbers)))

    def _hosts(self, pod: LocalPod) -> str:
        services = [(name, self._address(name)) for name in self._services]
        return hosts_file(pod.name, pod.address, services, self.job.metadata.namespace)

    def _refresh_hosts(self) -> None:
        for pod in self.pods:
            try:
                pod.write_hosts(self._hosts(pod))
            except OSError as error:
                self.warn(f"{pod.name} cannot find new services: {error.strerror}")

    def _stored(self, manifest: JsonObject) -> ObjectMeta:
        metadata = msgspec.convert(manifest["metadata"], ObjectMeta)
        return msgspec.structs.replace(metadata, resource_version=self._next_version())

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _metadata(self, **fields: object) -> ObjectMeta:
        return msgspec.structs.replace(self.job.metadata, **fields)

    def _write_status(self, status: PaddleJobStatus) -> None:
        if status != self.job.status:
            self._update_job(status=status, metadata=self._metadata(resource_version=self._next_version()))
            self._changes.set()

    def _update_job(self, **fields: object) -> None:
        self.job = msgspec.structs.replace(self.job, **fields)
        for observer in self._observers:
            observer.on_job(self.job)

    def _report(self, events: tuple[Event, ...]) -> None:
        for event in events:
            for observer in self._observers:
                observer.on_event(event)

    def warn(self, message: str) -> None:
        """Report a problem of this machine that does not end the run."""
        self._report((Event(EventType.WARNING, RUN_DIRECTORY_FAILED, message),))

    async def _clear(self) -> None:
        """End what still runs."""
        for pod in self.pods:
            pod.delete()
        while self._watchers:
            await asyncio.wait(self._watchers)
