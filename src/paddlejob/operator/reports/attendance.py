"""Answers the supervisors of pods: holds their requests until there is an order for them.

The order follows from the job's status and ConfigMap, so every leader gives the same one. It is computed and
noted on the event loop of the reconciler, without an await in between: a reconcile sees either the earlier
status or the program that was ordered to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.attempts.known_errors import last_output
from paddlejob.core.attempts.processes import (
    Order,
    Process,
    ProcessState,
    is_outdated,
    is_supervised,
    order_of,
    published_attempt,
)
from paddlejob.core.paddle_env import process_env
from paddlejob.core.pod_set import attempt_of, rank_of, replica_of, training_container_name
from paddlejob.fair_share import FairShare, may_take
from paddlejob.kube import errors
from paddlejob.operator.reports.pod_log import LogReader
from paddlejob.operator.state import ClusterState
from paddlejob.training.reports import Count, Seconds

MAX_HELD = 4096
"""Requests that wait for an order; namespaces share them. A TLS connection takes 33 kB with uvloop."""
MAX_ATTENDING = 16384
"""Pods that can be restarted in place; namespaces share them."""
HOLD_SECONDS = 20.0
POLL_SECONDS = 5.0
"""Pause of a supervisor whose request is not held; less than half of STOP_SECONDS."""
REFUSED_SECONDS = 60.0
"""Pause of a supervisor of a pod that cannot be restarted in place."""
LOG_SECONDS = 2.0
"""Maximum time for the last lines of a program that has ended."""
LOG_LINES = 20
LOG_BYTES = 4096


class Attendance(msgspec.Struct, frozen=True, rename="camel"):
    """The request of a supervisor."""

    attempt: Count
    state: ProcessState
    number: Count = 0
    """Counts the requests of a supervisor: one that arrives late must not undo a later one."""
    code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    oom_killed: bool = False
    ended_seconds: Seconds | None = None
    """How long ago the program ended."""


_DECODER = msgspec.json.Decoder(Attendance)


class _Held(msgspec.Struct, frozen=True, eq=False):
    """A request that is answered when something has changed."""

    request: Attendance
    changed: asyncio.Event
    may_wait: bool


class Supervisors:
    """The supervisors of all pods."""

    def __init__(self, state: ClusterState, logs: LogReader, *, now: Callable[[], datetime]) -> None:
        self._state = state
        self._logs = logs
        self._now = now
        self._slots = FairShare(MAX_HELD)
        self._waiting: dict[ObjectKey, set[asyncio.Event]] = {}
        self._latest: dict[str, _Held] = {}
        """The newest request of each pod, by UID; an earlier one is answered without an order."""
        self._published: dict[ObjectKey, tuple[str, Mapping[str, str]]] = {}
        """The data of the ConfigMaps that programs wait for, by version; all pods of a job read the same."""

    async def attend(self, job: PaddleJob, pod: Pod, body: bytes, *, may_wait: bool = True) -> dict[str, Any]:
        """Return the answer to a supervisor, immediately unless `may_wait`. Raises one of DECODE_ERRORS."""
        request, uid = _DECODER.decode(body), pod.metadata.uid
        if not self._may_attend(job, pod, request):
            # No order would come for a program that is down, so its pod need not wait for one.
            is_down = request.state is ProcessState.DOWN
            return {"exit": True} if is_down else {"nextSeconds": REFUSED_SECONDS}
        if request.attempt > job.status.attempt:
            # The cache is older than the order of an earlier leader.
            return {"nextSeconds": POLL_SECONDS}
        numbers = self._state.memory(job.metadata.key).requests
        if request.number < numbers.get(uid, 0):
            return {}
        numbers[uid] = request.number
        if earlier := self._latest.get(uid):
            earlier.changed.set()
        held = self._latest[uid] = _Held(request, asyncio.Event(), may_wait)
        try:
            await self._note(job, pod, held)
            return await self._wait_for_order(job.metadata.key, pod, held)
        finally:
            if self._latest.get(uid) is held:
                del self._latest[uid]

    def _may_attend(self, job: PaddleJob, pod: Pod, request: Attendance) -> bool:
        """Return whether the pod can be restarted in place and reports an attempt that it can have."""
        if not is_supervised(pod) or request.attempt < attempt_of(pod):
            return False
        if pod.metadata.uid in self._state.memory(job.metadata.key).processes:
            return True
        known = self._state.supervised
        return may_take(MAX_ATTENDING - known.total(), known[job.metadata.namespace])

    async def _note(self, job: PaddleJob, pod: Pod, held: _Held) -> None:
        request = held.request
        known = self._state.memory(job.metadata.key).processes.get(pod.metadata.uid)
        if known is not None and (known.attempt, known.state) == (request.attempt, request.state):
            return
        process = Process(request.attempt, request.state)
        if process.is_down:
            clock = asyncio.get_running_loop().time
            arrived, ended = clock(), request.ended_seconds
            message = await self._last_lines(job, pod, process)
            process = msgspec.structs.replace(
                process,
                code=request.code,
                is_oom_killed=request.oom_killed,
                message=message,
                ended=self._now(),
                detect_seconds=None if ended is None else ended + clock() - arrived,
                noted=clock(),
            )
        if self._latest.get(pod.metadata.uid) is held:
            self._state.note_process(job.metadata.key, pod.metadata.uid, process)

    async def _last_lines(self, job: PaddleJob, pod: Pod, process: Process) -> str:
        """Return the end of the log, which names the error, or nothing if it cannot be read in time.

        A program that was stopped has no error, and the next attempt waits for its report. The log also has
        the output of earlier attempts, which does not matter for this one.
        """
        if is_outdated(pod, process, job.status):
            return ""
        replica = replica_of(job.name, pod)
        spec = dict(job.spec.roles()).get(replica.role) if replica else None
        if spec is None or not self._logs.may_read(pod):
            return ""
        try:
            end = await self._logs.read_end(
                pod,
                training_container_name(spec),
                lines=LOG_LINES,
                keep_bytes=LOG_BYTES,
                timeout_seconds=LOG_SECONDS,
            )
        except errors.KubeError:
            return ""
        return last_output(end)

    async def _wait_for_order(self, key: ObjectKey, pod: Pod, held: _Held) -> dict[str, Any]:
        namespace = pod.metadata.namespace
        self._waiting.setdefault(key, set()).add(held.changed)
        has_slot = held.may_wait and self._slots.take(namespace)
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                while (answer := await self._answer(key, pod, held)) is None:
                    if not has_slot:
                        return {"nextSeconds": POLL_SECONDS}
                    await held.changed.wait()
                    held.changed.clear()
                return answer
        except TimeoutError:
            return {}
        finally:
            if has_slot:
                self._slots.give_back(namespace)
            self._waiting[key].discard(held.changed)
            if not self._waiting[key]:
                del self._waiting[key]
                self._published.pop(key, None)

    async def _answer(self, key: ObjectKey, pod: Pod, held: _Held) -> dict[str, Any] | None:
        """Return the answer with an order, None if there is nothing to do yet."""
        job = self._state.job(key)
        if job is None or job.metadata.uid != pod.metadata.controller_uid:
            return {}
        data = await self._data(job, pod, held.request)
        # Job and pod may have changed since the request; from here on nothing is awaited.
        job, present = self._state.job(key), self._state.pods.get(pod.metadata.key)
        process = self._state.memory(key).processes.get(pod.metadata.uid)
        if job is None or process is None or self._latest.get(pod.metadata.uid) is not held:
            return {}
        if present is None or present.metadata.uid != pod.metadata.uid:
            return {}
        order = order_of(present, process, job.status, published_attempt(data))
        if order.run is None:
            return _encode(order)
        replica = replica_of(job.name, pod)
        if replica is None:
            return {}
        self._state.note_process(key, pod.metadata.uid, Process(order.run))
        return {
            "run": order.run,
            "env": process_env(data, replica.role, rank_of(job.status, replica), order.run),
        }

    async def _data(self, job: PaddleJob, pod: Pod, request: Attendance) -> Mapping[str, str]:
        """Return the data of the ConfigMap if the program waits for it."""
        process, key = Process(request.attempt, request.state), job.metadata.key
        known = self._state.config_maps.get(key)
        if known is None or not process.is_down or not is_outdated(pod, process, job.status):
            return {}
        version, data = self._published.get(key, ("", {}))
        if version != known.metadata.resource_version:
            try:
                found = await self._state.environment(job)
            except errors.KubeError:
                return {}
            if found is None:
                return {}
            version, data = self._published[key] = (found.metadata.resource_version, found.data)
        return data

    def wake(self, key: ObjectKey) -> None:
        """Answer the requests of a job's pods if there is an order for them now."""
        for changed in self._waiting.get(key, ()):
            changed.set()


def _encode(order: Order) -> dict[str, Any] | None:
    if order.stop is not None:
        return {"stop": order.stop}
    return {"exit": True} if order.exit else None
