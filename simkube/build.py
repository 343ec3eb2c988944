"""Builders: a job and its snapshot in one readable line, for tables of cases.

job().ps(2).worker(2).build()
snapshot(job().worker(2)).pods_running().failed("worker", 1, code=137).build()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec

from paddlejob.api import defaulting, names
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.pod import ConfigMap, Pod, Service
from paddlejob.api.pod_group import (
    PodGroup,
    Queue,
    QueueSpec,
    QueueStatus,
    ResourceFlavor,
    ResourceFlavorSpec,
)
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, Role, WorldSize
from paddlejob.core.actions import Create, Kind, Plan, ReplaceConfig
from paddlejob.core.attempts.elastic import with_workers
from paddlejob.core.attempts.processes import Process
from paddlejob.core.gang.model import Gang, GangApis, GangSystem
from paddlejob.core.paddle_env import JobContext
from paddlejob.core.plan import plan
from paddlejob.core.pod_set import Replica, pod_name
from paddlejob.core.recorder import Recorder, recorder_of
from paddlejob.core.render import render_pod, render_service
from paddlejob.core.snapshot import Settings, Snapshot, WriteFailure
from paddlejob.training.findings import Finding
from simkube.plausible import check_plausible

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
ROLE_OCTETS = {Role.PS: 1, Role.WORKER: 2, Role.HETER: 3}


class JobBuilder:
    """Builds a PaddleJob manifest."""

    def __init__(self, name: str = "demo", namespace: str = "default") -> None:
        self.manifest: JsonObject = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1},
            "spec": {},
        }

    def role(self, role: Role, replicas: int, container: JsonObject, pod: JsonObject) -> Self:
        """Declare a role; `container` extends its only container, `pod` its pod spec."""
        first = {"name": "paddle", "image": "paddle:test", **container}
        template = {"spec": {"containers": [first], **pod}}
        self.manifest["spec"][str(role)] = {"replicas": replicas, "template": template}
        return self

    def ps(self, replicas: int = 1, *, pod: JsonObject | None = None, **container: Any) -> Self:
        """Declare parameter servers."""
        return self.role(Role.PS, replicas, container, pod or {})

    def worker(self, replicas: int = 1, *, pod: JsonObject | None = None, **container: Any) -> Self:
        """Declare workers."""
        return self.role(Role.WORKER, replicas, container, pod or {})

    def heter(self, replicas: int = 1, *, pod: JsonObject | None = None, **container: Any) -> Self:
        """Declare heter workers."""
        return self.role(Role.HETER, replicas, container, pod or {})

    def spec(self, **fields: Any) -> Self:
        """Set fields of the spec by their names in YAML."""
        self.manifest["spec"].update(fields)
        return self

    def metadata(self, **fields: Any) -> Self:
        """Set fields of the metadata by their names in YAML."""
        self.manifest["metadata"].update(fields)
        return self

    def status(self, **fields: Any) -> Self:
        """Set fields of the status by their names in YAML."""
        self.manifest.setdefault("status", {}).update(fields)
        return self

    def build(self) -> PaddleJob:
        """Return the job as the operator reads it."""
        return msgspec.convert(self.manifest, PaddleJob, strict=False)


def job(name: str = "demo", namespace: str = "default") -> JobBuilder:
    """Start building a job."""
    return JobBuilder(name, namespace)


class SnapshotBuilder:
    """Builds the snapshot of one job: its objects in the states that a case is about."""

    def __init__(self, of: JobBuilder | PaddleJob) -> None:
        self.job = of.build() if isinstance(of, JobBuilder) else of
        self.now = NOW
        self.settings = Settings()
        self.recorder: Recorder | None = None
        self.has_recorder = False
        self.findings: tuple[Finding, ...] = ()
        self.taken_ports: frozenset[int] = frozenset()
        self.namespace_ports = 0
        self.failures: tuple[WriteFailure, ...] = ()
        self.processes: dict[str, Process] = {}
        self.attempt_seconds = 0.0
        self._seen_for: float | None = None
        self._pods: dict[Replica, JsonObject] = {}
        self._services: dict[Replica, Service] = {}
        self._config: dict[str, str] | None = None
        self._gang: Gang | None = None
        self._gang_apis: GangApis | None = None
        self._pod_groups: dict[Kind, PodGroup] = {}
        self._flavors: dict[str, ResourceFlavor] = {}
        self._queues: dict[str, Queue] | None = None

    @property
    def spec(self) -> EffectiveSpec:
        """The effective spec of the job, with its current number of workers."""
        return with_workers(defaulting.effective(self.job.spec), self.job.status.workers)

    def context(self) -> JobContext:
        """Return the context that the operator would render with."""
        status = self.job.status
        port = status.host_port or names.BASE_PORT
        by_name = self.settings.pods_have_ipv6
        recorder = recorder_of(self.job, self.recorder)
        return JobContext(
            self.job,
            self.spec,
            port,
            by_name,
            status.attempt,
            self._gang,
            recorder,
            keeps_launcher_logs=recorder is not None,
        )

    def replicas(self) -> list[Replica]:
        """Return every replica in order."""
        return [Replica(role, index) for role, spec in self.spec.roles for index in range(spec.replicas)]

    def pod(
        self,
        role: str,
        index: int,
        status: JsonObject | None = None,
        *,
        node: str = "",
        annotations: Mapping[str, str] = {},
    ) -> Self:
        """Put one pod there, as the operator would have created it, on a node or on none yet."""
        replica = Replica(Role(role), index)
        manifest = (
            render_pod(self.context(), replica) if replica in self.replicas() else self._excess_pod(replica)
        )
        manifest["metadata"] = {
            **manifest["metadata"],
            "uid": f"uid-{pod_name(self.job.name, replica)}",
            "resourceVersion": "10",
            "annotations": {**manifest["metadata"].get("annotations", {}), **annotations},
        }
        manifest["spec"] = {**manifest["spec"], "nodeName": node}
        manifest["status"] = {"phase": "Pending", **(status or {})}
        self._pods[replica] = manifest
        return self

    def pods(self, status: JsonObject | None = None) -> Self:
        """Put every pod there in one state."""
        for replica in self.replicas():
            self.pod(replica.role, replica.index, status)
        return self

    def pods_with_addresses(self) -> Self:
        """Put every pod there, scheduled and waiting for the ConfigMap."""
        for replica in self.replicas():
            self.waiting(replica.role, replica.index)
        return self

    def pods_running(self) -> Self:
        """Put every pod there, running and ready."""
        for replica in self.replicas():
            self.running(replica.role, replica.index)
        return self

    def waiting(
        self, role: str, index: int, reason: str = "CreateContainerConfigError", message: str = ""
    ) -> Self:
        """Put a pod there that has an address and a container that waits."""
        text = message or f'configmap "{self.job.name}" not found'
        state = {"waiting": {"reason": reason, "message": text}}
        return self._with_container(role, index, "Pending", state)

    def running(self, role: str, index: int, *, restarts: int = 0) -> Self:
        """Put a running pod there."""
        state = {"running": {"startedAt": _text(self.now)}}
        return self._with_container(role, index, "Running", state, ready=True, restarts=restarts)

    def succeeded(self, role: str, index: int, *, seconds_ago: float = 0) -> Self:
        """Put a pod there that ended with exit code 0."""
        return self._ended(role, index, "Succeeded", {"exitCode": 0, "reason": "Completed"}, seconds_ago)

    def failed(
        self,
        role: str,
        index: int,
        *,
        code: int = 1,
        reason: str = "Error",
        message: str = "",
        seconds_ago: float = 0,
    ) -> Self:
        """Put a failed pod there."""
        ending = {"exitCode": code, "reason": reason, "message": message}
        return self._ended(role, index, "Failed", ending, seconds_ago)

    def unsettled(
        self, role: str, index: int, *, code: int = 1, phase: str = "Running", seconds_ago: float = 0
    ) -> Self:
        """Add a pod with terminated containers before its kubelet has reported the phase."""
        return self._ended(role, index, phase, {"exitCode": code, "reason": "Error"}, seconds_ago)

    def respecified(self, of: JobBuilder) -> Self:
        """Replace the spec with the spec of another job; objects created for the old one still exist."""
        self.job = msgspec.structs.replace(self.job, spec=of.build().spec)
        return self

    def gone(self, role: str, index: int) -> Self:
        """Delete a pod but not its service."""
        del self._pods[Replica(Role(role), index)]
        return self

    def leaving(self, role: str, index: int) -> Self:
        """Mark a pod as being deleted."""
        self._pods[Replica(Role(role), index)]["metadata"]["deletionTimestamp"] = _text(self.now)
        return self

    def services(self) -> Self:
        """Put every service there."""
        for replica in self.replicas():
            manifest = render_service(self.context(), replica)
            manifest["metadata"]["uid"] = f"uid-svc-{replica}"
            self._services[replica] = msgspec.convert(manifest, Service)
        return self

    def config(self, data: Mapping[str, str] | None = None) -> Self:
        """Put the ConfigMap there, by default the one that the operator would write for the pods so far."""
        if data is None:
            written = [
                action.manifest["data"]
                for stage in plan(self.build()).stages
                for action in stage
                if isinstance(action, ReplaceConfig)
                or (isinstance(action, Create) and action.kind is Kind.CONFIG_MAP)
            ]
            assert written, "the operator would not write a ConfigMap in this snapshot; give the data"
            data = written[0]
        self._config = dict(data)
        return self

    def serves(self, *ready: Kind, loading: Iterable[Kind] = (), **trouble: str) -> Self:
        """Serve these kinds of PodGroups; `trouble` is by the name of a kind."""
        refused = {Kind[name]: text for name, text in trouble.items()}
        self._gang_apis = GangApis(frozenset(ready), frozenset(loading), refused)
        return self

    def in_gang(self, system: str) -> Self:
        """Make the pods added from now on members of a gang."""
        self._gang = Gang(GangSystem(system), self.job.name)
        return self

    def pod_group(
        self,
        kind: Kind = Kind.POD_GROUP,
        *,
        owner: str | None = None,
        status: JsonObject | None = None,
        leaving: bool = False,
        annotations: Mapping[str, str] = {},
        **spec: Any,
    ) -> Self:
        """Put a PodGroup there: the job's own, or one of another owner, empty for one that a user made."""
        controller = {"uid": self.job.metadata.uid if owner is None else owner, "controller": True}
        metadata: JsonObject = {"name": self.job.name, "uid": "uid-group", "resourceVersion": "8"}
        metadata["annotations"] = dict(annotations)
        metadata |= {"ownerReferences": [controller]} if owner != "" else {}
        metadata |= {"deletionTimestamp": _text(self.now)} if leaving else {}
        manifest = {"metadata": metadata, "spec": spec, "status": status or {}}
        self._pod_groups[kind] = msgspec.convert(manifest, PodGroup, strict=False)
        return self

    def queue(self, name: str, *, state: str = "Open", **capability: int | str) -> Self:
        """Make Volcano's queues known, with this one among them."""
        self._queues = {
            **(self._queues or {}),
            name: Queue(ObjectMeta(name=name), QueueSpec(capability), QueueStatus(state)),
        }
        return self

    def flavor(self, name: str, labels: Mapping[str, str], *tolerations: JsonObject) -> Self:
        """Add a ResourceFlavor of Kueue."""
        spec = ResourceFlavorSpec(dict(labels), tolerations)
        self._flavors[name] = ResourceFlavor(ObjectMeta(name=name), spec)
        return self

    def status(self, status: PaddleJobStatus) -> Self:
        """Give the job a status, as if an earlier pass had written it."""
        self.job = msgspec.structs.replace(self.job, status=status)
        return self

    def phase(self, phase: Phase, **fields: Any) -> Self:
        """Give the job a phase."""
        return self.status(msgspec.structs.replace(self.job.status, phase=phase, **fields))

    def formed(self, **counts: int) -> Self:
        """Set the world size, to the wanted numbers or to `counts`."""
        complete = {str(role): spec.replicas for role, spec in self.spec.roles} | counts
        world_size = WorldSize(attempt=self.job.status.attempt, **complete)
        return self.status(msgspec.structs.replace(self.job.status, world_size=world_size))

    def supervised(self, role: str, index: int, process: Process) -> Self:
        """Make the supervisor of a pod report a program."""
        self.processes[f"uid-{pod_name(self.job.name, Replica(Role(role), index))}"] = process
        return self

    def later(self, seconds: float) -> Self:
        """Advance the time."""
        self.now += timedelta(seconds=seconds)
        return self

    def seen_for(self, seconds: float) -> Self:
        """Set the time since the pods were first seen in their states, by the operator's clock."""
        self._seen_for = seconds
        return self

    def with_settings(self, **fields: Any) -> Self:
        """Change the platform's settings."""
        self.settings = msgspec.structs.replace(self.settings, **fields)
        return self

    def host_ports_taken(self, *ports: int, of_namespace: int = 0) -> Self:
        """Assign ports to other jobs, `of_namespace` of them in the namespace of the job."""
        self.taken_ports, self.namespace_ports = frozenset(ports), of_namespace
        return self

    def refused(self, verb: str, kind: str, name: str, message: str, *, rejected: bool = False) -> Self:
        """Make a write of the last reconcile fail; `rejected` if the object itself is at fault."""
        self.failures = (*self.failures, WriteFailure(verb, kind, name, message, rejected))
        return self

    def build(self) -> Snapshot:
        """Return the snapshot."""
        config = None
        if self._config is not None:
            metadata = {
                "name": self.job.name,
                "namespace": self.job.metadata.namespace,
                "resourceVersion": "7",
            }
            config = msgspec.convert({"metadata": metadata, "data": self._config}, ConfigMap)
        pods = tuple(msgspec.convert(manifest, Pod, strict=False) for manifest in self._pods.values())
        snapshot = Snapshot(
            job=self.job,
            now=self.now,
            pods=pods,
            services=tuple(self._services.values()),
            config_map=config,
            pod_groups=dict(self._pod_groups),
            flavors=dict(self._flavors),
            queues=self._queues,
            gang_apis=self._gang_apis,
            settings=self.settings,
            taken_host_ports=self.taken_ports,
            namespace_host_ports=self.namespace_ports,
            failures=self.failures,
            recorder=self.recorder,
            has_recorder=self.has_recorder,
            findings=self.findings,
            processes=dict(self.processes),
            attempt_seconds=self.attempt_seconds,
            state_seconds={
                pod.metadata.uid: self._state_seconds(pod, manifest)
                for pod, manifest in zip(pods, self._pods.values(), strict=True)
            },
        )
        check_plausible(snapshot)
        return snapshot

    def _state_seconds(self, pod: Pod, manifest: JsonObject) -> float:
        """Return for how long the operator has seen a pod in its state; by default, since it is in it."""
        if self._seen_for is not None:
            return self._seen_for
        ends = [each.state.terminated for each in pod.status.container_statuses if each.state.terminated]
        moments = [each.finished_at for each in ends]
        moments += [
            datetime.fromisoformat(each["lastTransitionTime"])
            for each in manifest.get("status", {}).get("conditions", ())
            if each["type"] == "Ready" and "lastTransitionTime" in each
        ]
        return max(((self.now - moment).total_seconds() for moment in moments if moment), default=0.0)

    def plan(self) -> Plan:
        """Return the plan of the core for this snapshot."""
        return plan(self.build())

    def _excess_pod(self, replica: Replica) -> JsonObject:
        template = render_pod(self.context(), Replica(replica.role, 0))
        metadata = {**template["metadata"], "name": pod_name(self.job.name, replica)}
        return {**template, "metadata": metadata}

    def _with_container(
        self, role: str, index: int, phase: str, state: JsonObject, *, ready: bool = False, restarts: int = 0
    ) -> Self:
        container = {"name": "paddle", "ready": ready, "restartCount": restarts, "state": state}
        address = f"10.0.{ROLE_OCTETS[Role(role)]}.{index + 1}"
        status = {"phase": phase, "podIP": address, "containerStatuses": [container]}
        return self.pod(role, index, status, node="node-0")

    def _ended(self, role: str, index: int, phase: str, ending: JsonObject, seconds_ago: float) -> Self:
        finished = _text(self.now - timedelta(seconds=seconds_ago))
        return self._with_container(role, index, phase, {"terminated": {**ending, "finishedAt": finished}})


def snapshot(of: JobBuilder | PaddleJob) -> SnapshotBuilder:
    """Start building a job's snapshot."""
    return SnapshotBuilder(of)


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
