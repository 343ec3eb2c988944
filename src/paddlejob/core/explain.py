"""Describes in one sentence why a pod is not running, or how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable

from paddlejob.api import names
from paddlejob.api.pod import ContainerStatus, ContainerTerminated
from paddlejob.api.v1 import Role
from paddlejob.core.actions import Kind
from paddlejob.core.pod_set import ObservedPod, PodState, ending_of
from paddlejob.core.snapshot import WriteFailure
from paddlejob.text import MAX_TEXT_LENGTH, MESSAGE_LENGTH, one_line, printable

TERMINATION_MESSAGE_LENGTH = 300
_VOLCANO_WEBHOOKS = (
    "kubectl delete validatingwebhookconfigurations volcano-admission-service-jobs-validate "
    "volcano-admission-service-pods-validate volcano-admission-service-queues-validate; "
    "kubectl delete mutatingwebhookconfigurations volcano-admission-service-jobs-mutate "
    "volcano-admission-service-podgroups-mutate volcano-admission-service-pods-mutate "
    "volcano-admission-service-queues-mutate"
)
_EXPECTED_WAITS = ("", "PodInitializing", "ContainerCreating")


def obstacle(member: ObservedPod) -> str:
    """Return what keeps a pod from running, empty if nothing does."""
    if member.is_leaving:
        return "its old pod is still terminating"
    status = member.pod.status
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{_lower_first(condition.reason or 'unschedulable')}: {condition.message}".rstrip(": ")
    job_name = member.pod.metadata.labels.get(names.LABEL_JOB, "")
    for container in (*status.init_container_statuses, *status.container_statuses):
        trouble = _container_trouble(container, job_name)
        if trouble:
            return trouble
    if member.state is PodState.UNKNOWN:
        return f"node {member.pod.spec.node_name or '(unknown)'} is not responding"
    return ""


def waits_for_addresses(message: str, job_name: str) -> bool:
    """Return whether a kubelet reports that the job's ConfigMap lacks the addresses of the attempt.

    This happens in every healthy start, because the ConfigMap is written when all addresses are known.
    """
    own = (f'configmap "{job_name}" not found', f"couldn't find key {names.Env.ATTEMPT}_")
    return any(text in message for text in own)


def stage(member: ObservedPod) -> str:
    """Return how far a pod without an address has got, with the kubelet's reason if it has one."""
    status, node = member.pod.status, member.pod.spec.node_name
    containers = (*status.init_container_statuses, *status.container_statuses)
    waits = [each.state.waiting for each in containers if each.state.waiting and each.state.waiting.reason]
    if not node:
        return "no node yet"
    if not waits:
        return f"on node {node}"
    words = f"{waits[0].reason}: {termination_message(waits[0].message)}".rstrip(": ")
    return f"{words}, on node {node}"


def ending(member: ObservedPod) -> str:
    """Return how a pod ended: the kubelet's reason, or exit code, reason and termination message."""
    terminated = ending_of(member)
    status = member.pod.status
    if terminated is None or status.reason:
        detail = f": {termination_message(status.message)}" if status.message else ""
        return f"failed ({status.reason or 'no container started'}){detail}"
    words = termination_message(terminated.message)
    return f"exited with {_exit(terminated)}{_where(member, terminated)}" + (f": {words}" if words else "")


def _where(member: ObservedPod, terminated: ContainerTerminated) -> str:
    """Name the container that ended, unless it is the training container."""
    status = member.pod.status
    kinds = {"init container": status.init_container_statuses, "container": status.container_statuses}
    others = (
        f" in {kind} {each.name}"
        for kind, statuses in kinds.items()
        for each in statuses
        if each.state.terminated is terminated and each is not member.training
    )
    return next(others, "")


def termination_message(text: str) -> str:
    """Return the last line of a container's output, or the exception before Paddle's appendix."""
    lines = [line for line in map(printable, text[-MAX_TEXT_LENGTH:].splitlines()) if line]
    if lines and _APPENDIX.search(lines[-1]) and (cause := _exception(lines)):
        is_short = len(cause) <= TERMINATION_MESSAGE_LENGTH
        return cause if is_short else f"{cause[:TERMINATION_MESSAGE_LENGTH]}..."
    line = lines[-1] if lines else ""
    return line if len(line) <= TERMINATION_MESSAGE_LENGTH else f"...{line[-TERMINATION_MESSAGE_LENGTH:]}"


_SIGNAL = "is detected by the operating system"
_APPENDIX = re.compile(rf"^\[(?:Hint|TimeInfo|SignalInfo|operator <)|\(at \S+:\d+\)$|^Aborted\b|{_SIGNAL}")
"""Lines that Paddle prints after an exception: a hint, its source position, a signal dump."""
_EXCEPTION = re.compile(r"(?!FatalError: `)[\w.]*(?:Error|Exception)(?::|$)")
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']+)'")


def _exception(lines: list[str]) -> str:
    """Return the last Python or C++ exception, else the signal, else the line before the appendix."""
    for line, after in zip(reversed(lines), ("", *reversed(lines)), strict=False):
        if thrown := _THROWN.match(line):
            text = after.removeprefix("what():")
            return thrown[1] if text == after else f"{thrown[1]}:{text}".rstrip(": ")
        if _EXCEPTION.match(line):
            return f"{line} {after}" if line.endswith(":") else line
    signal = (line for line in reversed(lines) if _SIGNAL in line)
    return next(signal, "") or next((line for line in reversed(lines) if not _APPENDIX.search(line)), "")


def first_obstacle(members: Iterable[ObservedPod]) -> tuple[ObservedPod, str] | None:
    """Return the first pod, in replica order, with a concrete obstacle."""
    return next(((member, why) for member in members if (why := obstacle(member))), None)


def refusal(failure: WriteFailure, job_name: str) -> str:
    """Return the rejected write and a remedy; the API server's message is shortened to leave room for it."""
    advice = _remedy(failure, job_name)
    return f"{one_line(str(failure), MESSAGE_LENGTH - len(advice))}{advice}"


def _remedy(failure: WriteFailure, job_name: str) -> str:
    if failure.rejected and failure.kind == Kind.POD and (role := _role_of(failure.name, job_name)):
        return f"; correct spec.{role}.template, which the pod is made from; retrying"
    if "failed calling webhook" in failure.message and ".volcano.sh" in failure.message:
        leftovers = f"if Volcano was uninstalled, remove what it left behind: {_VOLCANO_WEBHOOKS}"
        return f"; retrying; {leftovers}"
    return "; retrying"


def _role_of(pod: str, job_name: str) -> Role | None:
    return next((role for role in Role if pod.startswith(f"{job_name}-{role}-")), None)


def _container_trouble(container: ContainerStatus, job_name: str) -> str:
    waiting = container.state.waiting
    if waiting is None or waiting.reason in _EXPECTED_WAITS or waits_for_addresses(waiting.message, job_name):
        return ""
    previous = container.last_state.terminated
    if waiting.reason == "CrashLoopBackOff" and previous is not None:
        words = termination_message(previous.message)
        return f"crashed {container.restart_count} times, last with {_exit(previous)}" + (
            f": {words}" if words else ""
        )
    return f"{waiting.reason}: {termination_message(waiting.message)}".rstrip(": ")


def _exit(terminated: ContainerTerminated) -> str:
    code = f"code {terminated.exit_code}"
    if terminated.signal:
        code = f"signal {terminated.signal}"
    return code if terminated.reason in ("", "Error", "Completed") else f"{code} ({terminated.reason})"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
