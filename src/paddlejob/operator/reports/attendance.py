"""Answers the supervisors of pods: holds their requests until there is an order for them.

The order follows from the job's status and ConfigMap, so every leader gives the same one. It is computed and
noted on the event loop of the reconciler, without an await in between: a reconcile sees either the earlier
status or the program that was ordered to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
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
from paddlejob.core.pod_set import attempt_of, replica_of, training_container_name
from paddlejob.fair_share import FairShare, may_take
from paddlejob.kube import errors
from paddlejob.operator.reports.pod_log import LogReader
from paddlejob.operator.state import ClusterState
from paddlejob.training.reports import Count

MAX_HELD = 512
"""Requests that wait for an order; namespaces share them. Each holds a TLS connection of up to 0.3 MB."""
MAX_ATTENDING = 1024
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


_DECODER = msgspec.json.Decoder(Attendance)


class Supervisors:
    """The supervisors of all pods."""

    def __init__(self, state: ClusterState, logs: LogReader, *, now: Callable[[], datetime]) -> None:
        self._state = state
        self._logs = logs
        self._now = now
        self._slots = FairShare(MAX_HELD)
        self._waiting: dict[ObjectKey, set[asyncio.Event]] = {}
        self._latest: dict[str, object] = {}
        """The newest request of each pod, by UID; an earlier one is answered without an order."""

    async def attend(self, job: PaddleJob, pod: Pod, body: bytes) -> dict[str, Any]:
        """Return the answer to a supervisor. Raises one of DECODE_ERRORS."""
        request, uid = _DECODER.decode(body), pod.metadata.uid
        if not self._may_attend(job, pod, request):
            return {"nextSeconds": REFUSED_SECONDS}
        if request.attempt > job.status.attempt:
            # The cache is older than the order of an earlier leader.
            return {"nextSeconds": POLL_SECONDS}
        numbers = self._state.memory(job.metadata.key).requests
        if request.number < numbers.get(uid, 0):
            return {}
        numbers[uid] = request.number
        self._latest[uid] = request
        try:
            await self._note(job, pod, request)
            return await self._wait_for_order(job.metadata.key, pod, request)
        finally:
            if self._latest.get(uid) is request:
                del self._latest[uid]

    def _may_attend(self, job: PaddleJob, pod: Pod, request: Attendance) -> bool:
        """Return whether the pod can be restarted in place and reports an attempt that it can have."""
        if not is_supervised(pod) or request.attempt < attempt_of(pod):
            return False
        if pod.metadata.uid in self._state.memory(job.metadata.key).processes:
            return True
        known = self._state.supervised_pods()
        return may_take(MAX_ATTENDING - known.total(), known[job.metadata.namespace])

    async def _note(self, job: PaddleJob, pod: Pod, request: Attendance) -> None:
        known = self._state.memory(job.metadata.key).processes.get(pod.metadata.uid)
        if known is not None and (known.attempt, known.state) == (request.attempt, request.state):
            return
        process = Process(request.attempt, request.state)
        if process.is_down:
            process = msgspec.structs.replace(
                process,
                code=request.code,
                is_oom_killed=request.oom_killed,
                message=await self._last_lines(job, pod),
                ended=self._now(),
            )
        if self._latest.get(pod.metadata.uid) is request:
            self._state.note_process(job.metadata.key, pod.metadata.uid, process)

    async def _last_lines(self, job: PaddleJob, pod: Pod) -> str:
        """Return the end of the log, which names the error, or nothing if it cannot be read in time."""
        replica = replica_of(job.name, pod)
        spec = dict(job.spec.roles()).get(replica.role) if replica else None
        if spec is None or not self._logs.may_read(pod):
            return ""
        try:
            return await self._logs.read_end(
                pod,
                training_container_name(spec),
                lines=LOG_LINES,
                keep_bytes=LOG_BYTES,
                timeout_seconds=LOG_SECONDS,
            )
        except errors.KubeError:
            return ""

    async def _wait_for_order(self, key: ObjectKey, pod: Pod, request: Attendance) -> dict[str, Any]:
        changed, namespace = asyncio.Event(), pod.metadata.namespace
        self._waiting.setdefault(key, set()).add(changed)
        is_held = self._slots.take(namespace)
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                while (answer := await self._answer(key, pod, request)) is None:
                    if not is_held:
                        return {"nextSeconds": POLL_SECONDS}
                    await changed.wait()
                    changed.clear()
                return answer
        except TimeoutError:
            return {}
        finally:
            if is_held:
                self._slots.give_back(namespace)
            self._waiting[key].discard(changed)
            if not self._waiting[key]:
                del self._waiting[key]

    async def _answer(self, key: ObjectKey, pod: Pod, request: Attendance) -> dict[str, Any] | None:
        """Return the answer with an order, None if there is nothing to do yet."""
        job = self._state.job(key)
        if job is None or job.metadata.uid != pod.metadata.controller_uid:
            return {}
        data = await self._published(job, pod, request)
        # The job may have changed while its ConfigMap was read; from here on nothing is awaited.
        job, process = self._state.job(key), self._state.memory(key).processes.get(pod.metadata.uid)
        if job is None or process is None or self._latest.get(pod.metadata.uid) is not request:
            return {}
        order = order_of(pod, process, job.status, published_attempt(data))
        if order.run is None:
            return _encode(order)
        replica = replica_of(job.name, pod)
        if replica is None:
            return {}
        self._state.note_process(key, pod.metadata.uid, Process(order.run))
        return {"run": order.run, "env": process_env(data, replica, order.run)}

    async def _published(self, job: PaddleJob, pod: Pod, request: Attendance) -> dict[str, str]:
        """Return the data of the ConfigMap if the program waits for it."""
        process = Process(request.attempt, request.state)
        if not process.is_down or not is_outdated(pod, process, job.status):
            return {}
        try:
            found = await self._state.environment(job)
        except errors.KubeError:
            return {}
        return found.data if found else {}

    def wake(self, key: ObjectKey) -> None:
        """Answer the requests of a job's pods if there is an order for them now."""
        for changed in self._waiting.get(key, ()):
            changed.set()


def _encode(order: Order) -> dict[str, Any] | None:
    if order.stop is not None:
        return {"stop": order.stop}
    return {"exit": True} if order.exit else None
