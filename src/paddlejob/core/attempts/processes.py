"""Restarts of programs inside their pods.

The supervisor in a pod (`recorder/supervisor.py`) starts the program once for each attempt and reports its
end. The operator answers with an order. `required_attempt` is the attempt of the program that a pod must
run; an earlier program is outdated, as a pod from before `baseAttempt` is. `apparent_pod` shows a pod as if
its container had ended with the program, so that failures are judged as usual.

No program starts before the programs of earlier attempts have ended: the ConfigMap gets the addresses
of the attempt, and with them the order to run, only when `may_run_outdated` is false for every pod. Each
restart uses other ports, so that a process on an unreachable node cannot join a later attempt.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.pod import ContainerState, ContainerStatus, ContainerTerminated, ContainerWaiting, Pod
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.core.pod_set import attempt_of, has_ended

STOP_SECONDS = 15.0
"""How long a program may take to stop before its pod is replaced."""


class ProcessState(enum.StrEnum):
    """The state of the program in a pod."""

    RUNNING = "running"
    DOWN = "down"


class Process(msgspec.Struct, frozen=True):
    """The program in a pod as its supervisor last reported it, or as it was last ordered to run."""

    attempt: int
    state: ProcessState = ProcessState.RUNNING
    code: int = 0
    """Exit code, 128 plus the number of a signal."""
    is_oom_killed: bool = False
    message: str = ""
    """The last lines of its log."""
    ended: datetime | None = None
    detect_seconds: float | None = None
    """From its end until the operator knew of it; None if unknown."""
    noted: float = 0.0
    """When the operator noted its end, by its monotonic clock."""

    @property
    def is_down(self) -> bool:
        return self.state is ProcessState.DOWN

    @property
    def stage(self) -> tuple[int, bool]:
        """Grows with each start and each end."""
        return self.attempt, self.is_down


Processes = Mapping[str, Process]
"""Programs by the UID of their pod; pods without a known supervisor are left out."""


class Order(msgspec.Struct, frozen=True):
    """The answer to a supervisor."""

    stop: int | None = None
    run: int | None = None
    exit: bool = False


NO_ORDER = Order()


def template_hash(template: JsonObject) -> str:
    """Return a hash of a role's template: a restart in place keeps the pod that was made from it."""
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:16]


def is_supervised(pod: Pod) -> bool:
    """Return whether the pod was created with a supervisor; its program may still not support one."""
    return names.ANNOTATION_SUPERVISED in pod.metadata.annotations


def required_attempt(pod: Pod, status: PaddleJobStatus) -> int:
    """Return the attempt of the program that must run in the pod."""
    return max(attempt_of(pod), status.process_attempt)


def published_attempt(data: Mapping[str, str]) -> int:
    """Return the attempt whose addresses the data of a job's ConfigMap has after a restart in place."""
    text = data.get(Env.PROCESS_ATTEMPT, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def is_outdated(pod: Pod, process: Process | None, status: PaddleJobStatus, published: int = 0) -> bool:
    """Return whether the pod's program belongs to an attempt before the required one.

    After a restart of the operator the program is unknown until its supervisor reports. It is not an earlier
    one if the ConfigMap was `published` for the attempt or all pods of the attempt were up: both happen only
    after the earlier programs have ended.
    """
    if status.process_attempt <= status.base_attempt:
        return False  # nothing was restarted in place since all pods were created
    required = required_attempt(pod, status)
    if process is not None:
        return process.attempt < required
    was_complete = status.world_size is not None and status.world_size.attempt >= status.process_attempt
    return attempt_of(pod) < required and not was_complete and published < status.process_attempt


def may_run_outdated(pod: Pod, process: Process | None, status: PaddleJobStatus, published: int = 0) -> bool:
    """Return whether a program of an earlier attempt may still run in the pod."""
    is_down = process is not None and process.is_down
    return is_outdated(pod, process, status, published) and not is_down and not has_ended(pod)


def is_lost(
    pod: Pod, process: Process | None, status: PaddleJobStatus, seconds: float, published: int = 0
) -> bool:
    """Return whether a pod with an outdated program has to be replaced after `seconds` of the attempt."""
    if not is_outdated(pod, process, status, published):
        return False
    is_late = seconds >= STOP_SECONDS and may_run_outdated(pod, process, status, published)
    return has_ended(pod) or is_late


def order_of(pod: Pod, process: Process, status: PaddleJobStatus, published: int) -> Order:
    """Return the order for a supervisor; `published` is the process attempt of the job's ConfigMap."""
    if status.phase.is_terminal:
        return Order(exit=process.is_down)
    if attempt_of(pod) < status.base_attempt or not is_outdated(pod, process, status):
        return NO_ORDER
    if not process.is_down:
        return Order(stop=process.attempt)
    # Another pod takes the place of one that is deleted.
    is_leaving = pod.metadata.deletion_timestamp is not None
    return Order(run=published) if published == status.process_attempt and not is_leaving else NO_ORDER


def apparent_pod(
    pod: Pod, process: Process | None, status: PaddleJobStatus, container: str, published: int = 0
) -> Pod:
    """Return the pod as if its training container had ended with its program, or waited for the next one."""
    if attempt_of(pod) < status.base_attempt:
        return pod
    found = next((each for each in pod.status.container_statuses if each.name == container), None)
    if found is None or found.state.running is None:
        return pod
    if is_outdated(pod, process, status, published):
        text = f"its program is restarted in place (attempt {status.process_attempt})"
        state = ContainerState(waiting=ContainerWaiting("RestartingInPlace", text))
        return _with_container(pod, found, state, pod.status.phase)
    if process is None or not process.is_down:
        return pod
    ended = ContainerTerminated(
        exit_code=process.code,
        reason="OOMKilled" if process.is_oom_killed else "Error",
        message=process.message,
        started_at=found.state.running.started_at,
        finished_at=process.ended,
    )
    return _with_container(pod, found, ContainerState(terminated=ended), "Failed")


def _with_container(pod: Pod, container: ContainerStatus, state: ContainerState, phase: str) -> Pod:
    changed = msgspec.structs.replace(container, ready=False, state=state)
    statuses = tuple(changed if each is container else each for each in pod.status.container_statuses)
    status = msgspec.structs.replace(pod.status, phase=phase, container_statuses=statuses)
    return msgspec.structs.replace(pod, status=status)
