"""Runs one job without a cluster: objects in memory, pods as processes, planned by the operator's core.

snapshot -> plan -> status, events, actions; repeated until nothing changes
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, assert_never

import msgspec
from msgspec.structs import replace

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.pod import ConfigMap, Pod, Service
from paddlejob.api.v1 import PaddleJob, PaddleJobSpec, Phase
from paddlejob.api.validation import validate
from paddlejob.core import actions
from paddlejob.core.actions import Create, Delete, Event, Kind, StopPod
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Settings, Snapshot, StateTimer
from paddlejob.kubelet import Contents
from paddlejob.local.errors import InputError
from paddlejob.local.pod.context import RunContext
from paddlejob.local.pod.pod import LocalPod
from paddlejob.local.ports import size_errors
from paddlejob.port_block import PortBlock

RUN_DIRECTORY_FAILED = "RunDirectoryFailed"
"""Event reason when the run's directory cannot be written."""
_LOCALHOST = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"


class Ending(enum.StrEnum):
    """The result of a run."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"
    STOPPED = "Stopped"


class Observer(Protocol):
    """Receives changes as they happen."""

    def on_job(self, job: PaddleJob) -> None:
        """The job's status or spec changed."""

    def on_pod(self, pod: Pod) -> None:
        """A pod's status changed."""

    def on_pod_gone(self, name: str) -> None:
        """A pod was deleted, and all its processes have ended."""

    def on_event(self, event: Event) -> None:
        """The core emitted an event."""


class LocalRunner:
    """One job with its pods, services and ConfigMap."""

    def __init__(
        self,
        job: PaddleJob,
        context: RunContext,
        ports: PortBlock,
        *,
        config_maps: Mapping[str, Contents],
        observers: tuple[Observer, ...],
        settings: Settings,
    ) -> None:
        self.job = job
        self._context = context
        self._ports = ports
        self._settings = replace(settings, base_port=ports.first, host_port_range=(ports.first, ports.last))
        self._given_config_maps = config_maps
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
        """Add an observer."""
        self._observers = (*self._observers, observer)

    @property
    def pods(self) -> tuple[LocalPod, ...]:
        """All pods that exist now."""
        return tuple(self._pods.values())

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running training programs on this machine, by pod."""
        return {pod.name: pod.pid for pod in self.pods if pod.pid}

    async def run(self) -> Ending:
        """Run the job to its end. When this returns, all its processes have ended."""
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
            await self._delete_pods()

    async def _delete_pods(self) -> None:
        for pod in self.pods:
            pod.delete()
        while self._watchers:
            await asyncio.wait(self._watchers)

    def scale(self, workers: int) -> None:
        """Change the number of workers. Raises InputError if the job does not allow it."""
        assert self.job.spec.worker is not None
        self._edit(replace(self.job.spec, worker=replace(self.job.spec.worker, replicas=workers)))

    def suspend(self) -> None:
        """Stop the pods until `resume`. Raises InputError."""
        self._edit(replace(self.job.spec, suspend=True))

    def resume(self) -> None:
        """Start the pods of a suspended job again. Raises InputError."""
        self._edit(replace(self.job.spec, suspend=False))

    def delete(self) -> None:
        """Delete the job, as `kubectl delete` would."""
        if self.job.metadata.deletion_timestamp is None:
            self._set_job(self.job, replace(self.job.metadata, deletion_timestamp=datetime.now(UTC)))

    def interrupt(self) -> None:
        """Stop the run. The first call respects the pods' grace period, the second one kills them."""
        if self._stop is not None:
            for pod in self.pods:
                pod.delete(force=True)
        self._stop = self._stop or Ending.INTERRUPTED
        self._changes.set()

    def _edit(self, spec: PaddleJobSpec) -> None:
        """Change the spec, as `kubectl edit` would. Raises InputError."""
        if self.job.status.phase.is_terminal or self._stop or self.job.metadata.deletion_timestamp:
            raise InputError(f"the job has ended ({self.job.status.phase or 'stopped'})")
        changed = replace(self.job, spec=spec)
        if errors := (*validate(changed), *size_errors(changed)):
            raise InputError.of(errors)
        if spec != self.job.spec:
            self._set_job(changed, replace(self.job.metadata, generation=self.job.metadata.generation + 1))

    def _ending(self) -> Ending | None:
        """Return the result once the core has nothing left to delete or stop."""
        if self._stop is not None:
            return self._stop
        phase = self.job.status.phase
        if phase is Phase.TERMINATING:
            return Ending.STOPPED
        if not phase.is_terminal or any(pod.is_ending for pod in self.pods):
            return None
        actions = [action for stage in self._plan().stages for action in stage]
        return None if any(isinstance(action, Delete | StopPod) for action in actions) else Ending(str(phase))

    def _reconcile(self) -> None:
        decided = self._plan()
        if decided.status != self.job.status:
            metadata = replace(self.job.metadata, resource_version=self._next_version())
            self._set_job(replace(self.job, status=decided.status), metadata)
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

    def _plan(self) -> actions.Plan:
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

    def _apply(self, action: actions.Action) -> None:
        """Execute an action. A change triggers another reconcile; a repeated action does not."""
        match action:
            case Create(kind=Kind.POD):
                self._create_pod(action.manifest)
            case Create(kind=Kind.SERVICE):
                self._services[action.name] = Service(self._stored(action.manifest))
                self._refresh_hosts()
                self._changes.set()
            case Create(kind=Kind.CONFIG_MAP) | actions.ReplaceConfig():
                self._config_map = ConfigMap(self._stored(action.manifest), action.manifest["data"])
                self._changes.set()
            case actions.AnnotatePod() | StopPod() | Delete(kind=Kind.POD):
                if (pod := self._pods.get(action.name)) and pod.uid == action.uid:
                    self._change_pod(pod, action)
            case Delete():
                del self._services[action.name]
                self._changes.set()
            case actions.DeleteJob():
                self.delete()
            case actions.RemoveFinalizer():
                self._set_job(self.job, replace(self.job.metadata, finalizers=()))
            case Create() | actions.PatchGroup() | actions.InstallRecorder():
                raise AssertionError(action)
            case _:
                assert_never(action)

    def _change_pod(self, pod: LocalPod, action: actions.AnnotatePod | StopPod | Delete) -> None:
        match action:
            case actions.AnnotatePod():
                pod.annotate(names.ANNOTATION_CONFIG_HASH, action.config_hash)
                self._changes.set()
            case StopPod():
                pod.stop()
            case Delete():
                pod.delete(force=action.force)

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
        """End the run with an error of the watcher, which would be a bug."""
        self._watchers.discard(watcher)
        self._error = self._error or watcher.exception()
        self._changes.set()

    async def _reap(self, pod: LocalPod) -> None:
        """Remove a pod once it is deleted and its processes have ended."""
        await pod.wait_until_gone()
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
        """Return a pod's address. A replacement of the same name gets the same one."""
        return self._ports.address(self._numbers.setdefault(pod, len(self._numbers)))

    def _hosts(self, pod: LocalPod) -> str:
        services = [(name, self._address(name)) for name in self._services]
        return hosts_file(pod.name, pod.address, services, self.job.metadata.namespace)

    def _refresh_hosts(self) -> None:
        for pod in self.pods:
            try:
                pod.write_hosts(self._hosts(pod))
            except OSError as error:
                self.warn(f"{pod.name} cannot resolve new services: {error.strerror}")

    def _stored(self, manifest: JsonObject) -> ObjectMeta:
        metadata = msgspec.convert(manifest["metadata"], ObjectMeta)
        return replace(metadata, resource_version=self._next_version())

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _set_job(self, job: PaddleJob, metadata: ObjectMeta) -> None:
        self.job = replace(job, metadata=metadata)
        for observer in self._observers:
            observer.on_job(self.job)
        self._changes.set()

    def _report(self, events: tuple[Event, ...]) -> None:
        for event in events:
            for observer in self._observers:
                observer.on_event(event)

    def warn(self, message: str) -> None:
        """Emit a warning event about the run's directory."""
        self._report((Event(actions.EventType.WARNING, RUN_DIRECTORY_FAILED, message),))


def hosts_file(pod: str, address: str, services: Iterable[tuple[str, str]], namespace: str) -> str:
    """Return a pod's /etc/hosts: the pod, this machine's own entries, then the services by name and address.

    Services come last, so that the file of a running pod only grows.
    """
    lines = [f"{address} {pod}\n", _LOCALHOST, _machine_hosts()]
    for name, service_address in services:
        qualified = f"{name}.{namespace}"
        spellings = [qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local"]
        if name != pod:
            # A name that is listed twice resolves to two addresses.
            spellings.append(name)
        lines.append(f"{service_address} {' '.join(spellings)}\n")
    return "".join(lines)


def _machine_hosts() -> str:
    try:
        lines = Path("/etc/hosts").read_text().splitlines()
    except OSError:
        return ""
    entries = (line.partition("#")[0].split() for line in lines)
    return "".join(f"{' '.join(entry)}\n" for entry in entries if len(entry) > 1 and "localhost" not in entry)
