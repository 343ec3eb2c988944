"""One container of a pod through all its starts: back-off, restarts, its state at every moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import (
    ContainerRunning,
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    ContainerWaiting,
)
from paddlejob.kubelet.environment import ConfigError
from paddlejob.kubelet.restart import (
    BACK_OFF_RESET_SECONDS,
    back_off_message,
    back_off_seconds,
    is_restarted,
)
from paddlejob.local.errors import InputError
from paddlejob.local.pod.container import ContainerStart, spec_of
from paddlejob.local.pod.context import RunContext
from paddlejob.local.pod.process import ContainerProcess, StartError
from paddlejob.local.sandbox.spec import ContainerSpec
from paddlejob.local.store.history import note_start

LAST_WORDS_BYTES = 2048
START_ERROR_CODE = 128
_KILLED = 137


class PodSignals:
    """What happens to a pod from outside and concerns all its containers."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.at_once = asyncio.Event()
        self.wake = asyncio.Event()


class ContainerLoop:
    """Starts a container as often as its pod's restart policy says."""

    def __init__(
        self,
        container: JsonObject,
        *,
        context: RunContext,
        start: Callable[[], ContainerStart],
        restart_policy: str,
        grace_seconds: float,
        signals: PodSignals,
        changed: Callable[[], None],
        waits_for: str = "ContainerCreating",
    ) -> None:
        self.name = str(container["name"])
        self.is_sidecar = container.get("restartPolicy") == "Always"
        self.status = ContainerStatus(name=self.name, state=_waiting(waits_for))
        self.started = asyncio.Event()
        self.pid: int | None = None
        self._context = context
        self._start = start
        self._restart_policy = "Always" if self.is_sidecar else restart_policy
        self._grace_seconds = grace_seconds
        self._signals = signals
        self._changed = changed
        self._own_stop = asyncio.Event()
        self._crashes = 0

    def stop(self) -> None:
        """End this container, though its pod goes on."""
        self._own_stop.set()

    async def run(self) -> bool:
        """Run the container to its last end; tell whether that was a good one."""
        while not self._is_stopping:
            try:
                ending = await self._run_once()
            except ConfigError as missing:
                self._set(_waiting("CreateContainerConfigError", str(missing)))
                await self._wait_for_news(self._context.config_retry_seconds)
                continue
            if not self._restarts_after(ending):
                return ending.exit_code == 0
            await self._back_off(ending)
        return False

    async def _run_once(self) -> ContainerTerminated:
        """Start the container and wait for its end."""
        self._signals.wake.clear()
        try:
            start = self._start()
            spec = spec_of(start, self._context)
            self._keep_environment(start, spec["env"])
            log = Log(Path(spec["log"]))
            process = await self._start_process(spec)
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
        words = log.termination_message() if code else ""
        return self._end(code, reason, words or process.log_error, began)

    async def _start_process(self, spec: ContainerSpec) -> ContainerProcess:
        with (self._context.run.path / "supervisor.log").open("ab") as errors:
            return await ContainerProcess.start(spec, errors=errors.fileno())

    async def _watch(self, process: ContainerProcess) -> int:
        """Wait for the end, which the pod may ask for and then force."""
        try:
            stop = asyncio.create_task(self._stop_requested())
            end = asyncio.create_task(process.wait())
            await asyncio.wait((stop, end), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if not end.done():
                process.terminate()
                force = asyncio.create_task(self._signals.at_once.wait())
                await asyncio.wait(
                    (force, end), timeout=self._grace_seconds, return_when=asyncio.FIRST_COMPLETED
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
        await _first_of(self._signals.stop.wait(), self._own_stop.wait())

    @property
    def _is_stopping(self) -> bool:
        return self._signals.stop.is_set() or self._own_stop.is_set()

    def _restarts_after(self, ending: ContainerTerminated) -> bool:
        return not self._is_stopping and is_restarted(self._restart_policy, ending.exit_code)

    async def _back_off(self, ending: ContainerTerminated) -> None:
        """Wait before the next start: not at all after the first crash, then longer each time."""
        ran = _seconds_between(ending.started_at, ending.finished_at)
        if ran >= BACK_OFF_RESET_SECONDS:
            self._crashes = 0
        delay = back_off_seconds(self._crashes, self._context.back_off_seconds)
        self._crashes += 1
        if delay:
            self._set(_waiting("CrashLoopBackOff", back_off_message(delay, self.name)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stop_requested()
        if not self._is_stopping:
            self.status = msgspec.structs.replace(self.status, restart_count=self.status.restart_count + 1)

    async def _wait_for_news(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await _first_of(self._signals.wake.wait(), self._stop_requested())

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
        self._changed()

    def _keep_environment(self, start: ContainerStart, values: dict[str, str]) -> None:
        name = start.pod if start.is_training else f"{start.pod}.{self.name}"
        self._context.run.write_env(name, values)


class Log:
    """A container's log from the place that its present start writes to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._beginning = note_start(path)

    def termination_message(self) -> str:
        """Return its end, as much as a kubelet keeps."""
        with contextlib.suppress(OSError), self._path.open("rb") as reader:
            size = reader.seek(0, 2)
            reader.seek(max(self._beginning, size - LAST_WORDS_BYTES))
            return reader.read(LAST_WORDS_BYTES).decode(errors="replace")
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


def _seconds_between(start: datetime | None, end: datetime | None) -> float:
    return (end - start).total_seconds() if start and end else 0.0


def _kernel_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since it booted."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
