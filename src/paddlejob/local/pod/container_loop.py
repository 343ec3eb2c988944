"""Runs one container of a pod: starts, restarts, back-off and status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from paddlejob import kubelet
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import (
    ContainerRunning,
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    ContainerWaiting,
)
from paddlejob.kubelet import ConfigError
from paddlejob.local.errors import InputError
from paddlejob.local.pod.container import ContainerStart, spec_of
from paddlejob.local.pod.context import RunContext
from paddlejob.local.pod.process import ContainerProcess, StartError
from paddlejob.local.store.history import record_start

TERMINATION_MESSAGE_BYTES = 2048
START_ERROR_CODE = 128
DEFAULT_GRACE_SECONDS = 30.0
_KILLED = 137


class PodControl:
    """Settings of a pod and requests to it, shared by its containers."""

    def __init__(self, spec: JsonObject, context: RunContext, changed: Callable[[], None]) -> None:
        self.context = context
        self.changed = changed
        self.restart_policy = str(spec.get("restartPolicy") or "Always")
        grace = spec.get("terminationGracePeriodSeconds")
        self.grace_seconds = DEFAULT_GRACE_SECONDS if grace is None else float(grace)
        self.stop = asyncio.Event()
        self.kill = asyncio.Event()
        self.wake = asyncio.Event()


class ContainerLoop:
    """Starts a container again and again, as its pod's restart policy requires."""

    def __init__(
        self, container: JsonObject, pod: PodControl, start: Callable[[], ContainerStart], waits_for: str
    ) -> None:
        self.name = str(container["name"])
        self.is_sidecar = container.get("restartPolicy") == "Always"
        self.status = ContainerStatus(name=self.name, state=_waiting(waits_for))
        self.started = asyncio.Event()
        self.pid: int | None = None
        self._pod = pod
        self._start = start
        self._own_stop = asyncio.Event()
        self._crashes = 0

    def stop(self) -> None:
        """Stop this container, but not its pod."""
        self._own_stop.set()

    async def run(self) -> bool:
        """Run the container until it ends for good. Returns whether it succeeded."""
        while not self._is_stopping:
            try:
                ending = await self._run_once()
            except ConfigError as missing:
                self._set(_waiting("CreateContainerConfigError", str(missing)))
                await self._wait_for_config()
                continue
            if not self._restarts_after(ending):
                return ending.exit_code == 0
            await self._back_off(ending)
        return False

    async def _run_once(self) -> ContainerTerminated:
        """Start the container and wait until it ends."""
        self._pod.wake.clear()
        try:
            start = self._start()
            spec = spec_of(start, self._pod.context)
            name = start.pod if start.is_training else f"{start.pod}.{self.name}"
            self._pod.context.run.write_env(name, spec["env"])
            log = Path(spec["log"])
            log.parent.mkdir(parents=True, exist_ok=True)
            log_offset = record_start(log)
            with (self._pod.context.run.path / "supervisor.log").open("ab") as errors:
                process = await ContainerProcess.start(spec, errors=errors.fileno())
        except (StartError, InputError, OSError) as error:
            return self._end(START_ERROR_CODE, "StartError", str(error), None)
        began, kills_before = datetime.now(UTC), _kernel_kills()
        self.pid = process.pid
        self._set(ContainerState(running=ContainerRunning(started_at=began)), ready=True)
        self.started.set()
        code = await self._watch(process)
        self.pid = None
        reason = "Completed" if code == 0 else "Error"
        if code == _KILLED and not self._is_stopping and _kernel_kills() > kills_before:
            reason = "OOMKilled"
        message = _termination_message(log, log_offset) if code else ""
        return self._end(code, reason, message or process.log_error, began)

    async def _watch(self, process: ContainerProcess) -> int:
        """Wait until the process ends. A stopped pod terminates it, and kills it after the grace period."""
        try:
            stop = asyncio.create_task(self._stop_requested())
            end = asyncio.create_task(process.wait())
            await asyncio.wait((stop, end), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if not end.done():
                process.terminate()
                force = asyncio.create_task(self._pod.kill.wait())
                await asyncio.wait(
                    (force, end), timeout=self._pod.grace_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                force.cancel()
            return await end if end.done() else await self._kill(process)
        except asyncio.CancelledError:
            await self._kill(process)
            raise

    async def _kill(self, process: ContainerProcess) -> int:
        process.kill()
        return await process.wait()

    async def _stop_requested(self) -> None:
        await _first_of(self._pod.stop.wait(), self._own_stop.wait())

    @property
    def _is_stopping(self) -> bool:
        return self._pod.stop.is_set() or self._own_stop.is_set()

    def _restarts_after(self, ending: ContainerTerminated) -> bool:
        policy = "Always" if self.is_sidecar else self._pod.restart_policy
        return not self._is_stopping and kubelet.is_restarted(policy, ending.exit_code)

    async def _back_off(self, ending: ContainerTerminated) -> None:
        """Wait before the next start, twice as long after each crash; the first restart is immediate."""
        began, ended = ending.started_at, ending.finished_at
        if began and ended and (ended - began).total_seconds() >= kubelet.BACK_OFF_RESET_SECONDS:
            self._crashes = 0
        delay = kubelet.back_off_seconds(self._crashes, self._pod.context.back_off_seconds)
        self._crashes += 1
        if delay:
            self._set(_waiting("CrashLoopBackOff", kubelet.back_off_message(delay, self.name)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stop_requested()
        if not self._is_stopping:
            self.status = msgspec.structs.replace(self.status, restart_count=self.status.restart_count + 1)

    async def _wait_for_config(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pod.context.config_retry_seconds):
                await _first_of(self._pod.wake.wait(), self._stop_requested())

    def _end(self, code: int, reason: str, message: str, began: datetime | None) -> ContainerTerminated:
        ended = ContainerTerminated(
            exit_code=code, reason=reason, message=message, started_at=began, finished_at=datetime.now(UTC)
        )
        self._set(ContainerState(terminated=ended))
        return ended

    def _set(self, state: ContainerState, *, ready: bool = False) -> None:
        before = self.status.state
        last = before if before.terminated is not None else self.status.last_state
        self.status = msgspec.structs.replace(self.status, state=state, last_state=last, ready=ready)
        self._pod.changed()


def _termination_message(log: Path, offset: int) -> str:
    """Return the end of the log since `offset`, up to the size that a kubelet keeps."""
    with contextlib.suppress(OSError), log.open("rb") as reader:
        size = reader.seek(0, 2)
        reader.seek(max(offset, size - TERMINATION_MESSAGE_BYTES))
        return reader.read(TERMINATION_MESSAGE_BYTES).decode(errors="replace")
    return ""


async def _first_of(*waits: Coroutine[None, None, object]) -> None:
    tasks = [asyncio.create_task(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _waiting(reason: str, message: str = "") -> ContainerState:
    return ContainerState(waiting=ContainerWaiting(reason=reason, message=message))


def _kernel_kills() -> int:
    """Return the number of processes killed by the OOM killer since boot."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
