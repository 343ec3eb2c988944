"""A pod on this machine: what a kubelet does with it, and what a kubelet says about it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.pod import ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from paddlejob.kubelet.environment import CONFIG_MAP, Contents, Source, Sources
from paddlejob.kubelet.pod_phase import ContainerOutcome, phase_of
from paddlejob.local.pod.container import ContainerStart
from paddlejob.local.pod.container_loop import ContainerLoop, PodSignals
from paddlejob.local.pod.context import FindContents, RunContext, allocatable
from paddlejob.local.pod.volumes import PodVolumes

DEFAULT_GRACE_SECONDS = 30.0


class LocalPod:
    """One pod from its creation to its end. `changed` is called whenever its status is another."""

    def __init__(
        self,
        manifest: JsonObject,
        address: str,
        context: RunContext,
        find_config_map: FindContents,
        changed: Callable[[LocalPod], None],
    ) -> None:
        metadata = msgspec.convert(manifest["metadata"], ObjectMeta)
        self._metadata = msgspec.structs.replace(
            metadata, uid=str(uuid.uuid4()), creation_timestamp=datetime.now(UTC), resource_version="1"
        )
        self._spec: JsonObject = manifest["spec"]
        self._address = address
        self._context = context
        self._find_config_map = find_config_map
        self._changed = changed
        self._volumes = PodVolumes(
            self._spec, context.run.volumes(self.name), context.memory / self.name, context.claims
        )
        self._hosts = context.run.path / "env" / f"{self.name}.hosts"
        self._hosts_text = ""
        self._signals = PodSignals()
        self._reason, self._message = "", ""
        self._task: asyncio.Task[None] | None = None
        init = self._spec.get("initContainers") or ()
        self._init = [self._loop(each, "ContainerCreating") for each in init]
        waits_for = "PodInitializing" if init else "ContainerCreating"
        self._containers = [self._loop(each, waits_for) for each in self._spec["containers"]]

    @property
    def name(self) -> str:
        """The pod's name."""
        return self._metadata.name

    @property
    def uid(self) -> str:
        """The pod's own id; a successor of the same name has another one."""
        return self._metadata.uid

    @property
    def address(self) -> str:
        """The pod's address."""
        return self._address

    @property
    def is_leaving(self) -> bool:
        """Whether the pod was deleted; its deletion time is when its grace period ends."""
        return self._metadata.deletion_timestamp is not None

    @property
    def pid(self) -> int | None:
        """The process id of its training program, while that runs."""
        return self._containers[0].pid

    def view(self) -> Pod:
        """Return the pod as the API server would show it."""
        init, containers = self._statuses(self._init), self._statuses(self._containers)
        phase = "Failed" if self._reason else self._phase(init, containers)
        return Pod(
            metadata=self._metadata,
            spec=PodSpec(node_name=self._context.name, restart_policy=self._restart_policy),
            status=PodStatus(
                phase=phase,
                reason=self._reason,
                message=self._message,
                pod_ip=self._address,
                conditions=(PodCondition(type="PodScheduled", status="True"),),
                init_container_statuses=init,
                container_statuses=containers,
            ),
        )

    def start(self, hosts: str) -> None:
        """Start the containers; each start writes the names of the peers."""
        self._hosts_text = hosts
        self._task = asyncio.create_task(self._live(), name=f"pod {self.name}")

    def write_hosts(self, text: str) -> None:
        """Change the names of the pod's peers. Raises OSError."""
        self._hosts_text = text
        self._write_hosts_file()

    def _write_hosts_file(self) -> None:
        """Change the file in place: it is mounted."""
        with self._hosts.open("r+b" if self._hosts.exists() else "wb") as hosts:
            hosts.write(self._hosts_text.encode())
            hosts.truncate()

    def annotate(self, name: str, value: str) -> None:
        """Set an annotation; as with a kubelet, any change makes the pod look again at what it waits for."""
        annotations = {**self._metadata.annotations, name: value}
        self._metadata = msgspec.structs.replace(self._metadata, annotations=annotations)
        self._signals.wake.set()

    def delete(self, *, at_once: bool = False) -> None:
        """Ask the pod to end, within its grace period or at once. Asking again changes nothing."""
        if self.is_leaving and (self._signals.at_once.is_set() or not at_once):
            return
        if not self.is_leaving:
            due = datetime.now(UTC) + timedelta(seconds=self._grace_seconds)
            self._metadata = msgspec.structs.replace(self._metadata, deletion_timestamp=due)
        if at_once:
            self._signals.at_once.set()
        self._signals.stop.set()
        self._changed(self)

    async def gone(self) -> None:
        """Return when the pod was deleted and nothing of it is left but its logs."""
        if self._task is not None:
            await asyncio.shield(self._task)
        await self._signals.stop.wait()
        await asyncio.to_thread(self._volumes.remove)

    @property
    def _restart_policy(self) -> str:
        return str(self._spec.get("restartPolicy") or "Always")

    def _loop(self, container: JsonObject, waits_for: str) -> ContainerLoop:
        return ContainerLoop(
            container,
            context=self._context,
            start=self._start_of(container),
            restart_policy=self._restart_policy,
            grace_seconds=self._grace_seconds,
            signals=self._signals,
            changed=lambda: self._changed(self),
            waits_for=waits_for,
        )

    @property
    def _grace_seconds(self) -> float:
        given = self._spec.get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE_SECONDS if given is None else float(given)

    def _start_of(self, container: JsonObject) -> Callable[[], ContainerStart]:
        def start() -> ContainerStart:
            self._write_hosts_file()
            return ContainerStart(
                pod=self.name,
                container=container,
                is_training=container is self._spec["containers"][0],
                sources=Sources(self._seen_from_inside(), self._find, allocatable()),
                volumes=self._volumes,
                hosts=self._hosts,
            )

        return start

    def _find(self, source: Source) -> Contents | None:
        find = self._find_config_map if source.kind == CONFIG_MAP else self._context.secrets.get
        return find(source.name)

    def _seen_from_inside(self) -> JsonObject:
        """Return what the pod can learn about itself."""
        addresses = [{"ip": self._address}]
        return {
            "metadata": msgspec.to_builtins(self._metadata),
            "spec": {**self._spec, "nodeName": self._context.name, "serviceAccountName": "default"},
            "status": {
                "podIP": self._address,
                "podIPs": addresses,
                "hostIP": self._address,
                "hostIPs": addresses,
            },
        }

    def _phase(self, init: tuple[ContainerStatus, ...], containers: tuple[ContainerStatus, ...]) -> str:
        return phase_of(
            self._restart_policy, _observed(init), _observed(containers), ends=self._signals.stop.is_set()
        )

    async def _live(self) -> None:
        """Run the init containers one after the other, then all containers side by side."""
        deadline = self._spec.get("activeDeadlineSeconds")
        try:
            async with asyncio.timeout(float(deadline) if deadline is not None else None):
                await self._run_containers()
        except TimeoutError:
            self._reason = "DeadlineExceeded"
            self._message = "Pod was active on the node longer than the specified deadline"
        self._changed(self)

    async def _run_containers(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for loop in self._init:
                if loop.is_sidecar:
                    await stack.enter_async_context(_running(loop))
                elif not await loop.run():
                    return
            async with asyncio.TaskGroup() as group:
                for loop in self._containers:
                    group.create_task(loop.run())

    def _statuses(self, loops: list[ContainerLoop]) -> tuple[ContainerStatus, ...]:
        return tuple(loop.status for loop in loops)

    def logs(self) -> Iterator[tuple[str, Path]]:
        """Yield the pod's containers and their logs."""
        for loop in (*self._init, *self._containers):
            yield loop.name, self._context.run.log(self.name, loop.name)


def _observed(statuses: tuple[ContainerStatus, ...]) -> list[ContainerOutcome]:
    return [
        ContainerOutcome(
            has_started=status.state.waiting is None or status.last_state.terminated is not None,
            exit_code=status.state.terminated.exit_code if status.state.terminated else None,
        )
        for status in statuses
    ]


@contextlib.asynccontextmanager
async def _running(sidecar: ContainerLoop) -> AsyncIterator[None]:
    """Keep an init container that never ends (restartPolicy: Always) beside the others."""
    task = asyncio.create_task(sidecar.run())
    try:
        await sidecar.started.wait()
        yield
    finally:
        sidecar.stop()
        await task
