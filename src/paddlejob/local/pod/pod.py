"""A pod on this machine, with the lifecycle and status that a kubelet would give it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from paddlejob.api.meta import JsonObject, ObjectMeta
from paddlejob.api.pod import ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from paddlejob.core.actions import STOP_DEADLINE_SECONDS
from paddlejob.core.pod_set import FINAL_PHASES
from paddlejob.kubelet import CONFIG_MAP, ContainerOutcome, Contents, Source, Sources, phase_of
from paddlejob.local.pod.container import ContainerStart
from paddlejob.local.pod.container_loop import ContainerLoop, PodControl
from paddlejob.local.pod.context import FindContents, RunContext, allocatable
from paddlejob.local.pod.volumes import PodVolumes


class LocalPod:
    """One pod. `changed` is called whenever its status changes."""

    def __init__(
        self,
        manifest: JsonObject,
        address: str,
        context: RunContext,
        find_config_map: FindContents,
        changed: Callable[[LocalPod], None],
    ) -> None:
        metadata = msgspec.convert(manifest["metadata"], ObjectMeta)
        self.name = metadata.name
        self.uid = str(uuid.uuid4())
        """A replacement of the same name has another one."""
        self.address = address
        self._metadata = replace(
            metadata, uid=self.uid, creation_timestamp=datetime.now(UTC), resource_version="1"
        )
        self._spec: JsonObject = manifest["spec"]
        self._context = context
        self._find_config_map = find_config_map
        self._volumes = PodVolumes(
            self._spec, context.run.volumes(self.name), context.memory / self.name, context.claims
        )
        self._hosts = context.run.path / "env" / f"{self.name}.hosts"
        self._hosts_text = ""
        self._control = PodControl(self._spec, context, lambda: changed(self))
        self._deleted = asyncio.Event()
        self._is_past_deadline = False
        self._reason, self._message = "", ""
        self._task: asyncio.Task[None] | None = None
        init = self._spec.get("initContainers") or ()
        self._init = [self._loop(each, "ContainerCreating") for each in init]
        waits_for = "PodInitializing" if init else "ContainerCreating"
        self._containers = [self._loop(each, waits_for) for each in self._spec["containers"]]

    @property
    def is_leaving(self) -> bool:
        """Whether the pod was deleted. Its deletion timestamp is the end of its grace period."""
        return self._metadata.deletion_timestamp is not None

    @property
    def is_ending(self) -> bool:
        """Whether the pod was deleted, or stopped and its processes have not ended."""
        return self.is_leaving or (self._is_past_deadline and not self._reason)

    @property
    def pid(self) -> int | None:
        """Process id of the training program while it runs."""
        return self._containers[0].pid

    def view(self) -> Pod:
        """Return the pod as the API server would show it."""
        init = tuple(loop.status for loop in self._init)
        containers = tuple(loop.status for loop in self._containers)
        policy, is_stopping = self._control.restart_policy, self._control.stop.is_set()
        phase = phase_of(policy, _outcomes(init), _outcomes(containers), ends=is_stopping)
        if self._reason:
            phase = "Failed"
        elif self._is_past_deadline and phase in FINAL_PHASES:
            phase = "Running"  # the final phase and its reason are shown together
        return Pod(
            metadata=self._metadata,
            spec=PodSpec(
                self._context.name, self._control.restart_policy, self._spec.get("activeDeadlineSeconds")
            ),
            status=PodStatus(
                phase=phase,
                reason=self._reason,
                message=self._message,
                pod_ip=self.address,
                conditions=(PodCondition(type="PodScheduled", status="True"),),
                init_container_statuses=init,
                container_statuses=containers,
            ),
        )

    def start(self, hosts: str) -> None:
        """Start the containers. Each start of a container writes the hosts file."""
        self._hosts_text = hosts
        self._task = asyncio.create_task(self._run(), name=f"pod {self.name}")

    def write_hosts(self, text: str) -> None:
        """Update the hosts file. Raises OSError."""
        self._hosts_text = text
        self._write_hosts_file()

    def _write_hosts_file(self) -> None:
        """Write the file in place, because it is mounted."""
        with self._hosts.open("r+b" if self._hosts.exists() else "wb") as hosts:
            hosts.write(self._hosts_text.encode())
            hosts.truncate()

    def annotate(self, name: str, value: str) -> None:
        """Set an annotation. As with a kubelet, any change makes waiting containers retry."""
        annotations = {**self._metadata.annotations, name: value}
        self._metadata = replace(self._metadata, annotations=annotations)
        self._control.wake.set()

    def delete(self, *, force: bool = False) -> None:
        """Stop the pod within its grace period, or kill it with `force`. Repeating a call changes nothing."""
        if self.is_leaving and (self._control.kill.is_set() or not force):
            return
        if not self.is_leaving:
            due = datetime.now(UTC) + timedelta(seconds=self._control.grace_seconds)
            self._metadata = replace(self._metadata, deletion_timestamp=due)
        if force:
            self._control.kill.set()
        self._deleted.set()
        self._control.stop.set()
        self._control.changed()

    def stop(self) -> None:
        """Stop the containers within the grace period, as a kubelet does after `activeDeadlineSeconds`."""
        self._spec = {**self._spec, "activeDeadlineSeconds": STOP_DEADLINE_SECONDS}
        self._is_past_deadline = True
        self._control.stop.set()
        self._control.changed()

    async def wait_until_gone(self) -> None:
        """Wait until the pod is deleted and its processes have ended, then remove its volumes."""
        if self._task is not None:
            await asyncio.shield(self._task)
        await self._deleted.wait()
        await asyncio.to_thread(self._volumes.remove)

    def _loop(self, container: JsonObject, waits_for: str) -> ContainerLoop:
        def start() -> ContainerStart:
            self._write_hosts_file()
            return ContainerStart(
                pod=self.name,
                container=container,
                is_training=container is self._spec["containers"][0],
                sources=Sources(self._manifest(), self._find, allocatable()),
                volumes=self._volumes,
                hosts=self._hosts,
            )

        return ContainerLoop(container, self._control, start, waits_for)

    def _find(self, source: Source) -> Contents | None:
        find = self._find_config_map if source.kind == CONFIG_MAP else self._context.secrets.get
        return find(source.name)

    def _manifest(self) -> JsonObject:
        """Return the manifest that the downward API reads."""
        addresses = [{"ip": self.address}]
        return {
            "metadata": msgspec.to_builtins(self._metadata),
            "spec": {**self._spec, "nodeName": self._context.name, "serviceAccountName": "default"},
            "status": {
                "podIP": self.address,
                "podIPs": addresses,
                "hostIP": self.address,
                "hostIPs": addresses,
            },
        }

    async def _run(self) -> None:
        """Run the init containers one after the other, then all containers concurrently."""
        deadline = self._spec.get("activeDeadlineSeconds")
        timer = asyncio.get_running_loop().call_later(float(deadline), self.stop) if deadline else None
        await self._run_containers()
        if timer is not None:
            timer.cancel()
        if self._is_past_deadline:
            self._reason = "DeadlineExceeded"
            self._message = "Pod was active on the node longer than the specified deadline"
        self._control.changed()

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


def _outcomes(statuses: tuple[ContainerStatus, ...]) -> list[ContainerOutcome]:
    return [
        ContainerOutcome(
            has_started=status.state.waiting is None or status.last_state.terminated is not None,
            exit_code=status.state.terminated.exit_code if status.state.terminated else None,
        )
        for status in statuses
    ]


@contextlib.asynccontextmanager
async def _running(sidecar: ContainerLoop) -> AsyncIterator[None]:
    """Run a sidecar (an init container with restartPolicy Always) during the block."""
    task = asyncio.create_task(sidecar.run())
    try:
        await sidecar.started.wait()
        yield
    finally:
        sidecar.stop()
        await task
