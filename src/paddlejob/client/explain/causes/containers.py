"""Find pods that have a node and do not run: images, configuration, mounts, crashes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from paddlejob.api.pod import ContainerStatus
from paddlejob.client.explain.causes.admission import non_root
from paddlejob.client.explain.changes import follow_up, patch, set_op, template_path
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.result import Advice, Finding
from paddlejob.core import explain as core_explain
from paddlejob.core.explain import termination_message
from paddlejob.core.pod_set import ObservedPod, PodState, pod_name

_IMAGE_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
)
_NOT_FOUND = re.compile(r"not found|manifest unknown|no such image", re.IGNORECASE)
_DENIED = re.compile(r"unauthorized|denied|forbidden|authentication|no basic auth|401|403", re.IGNORECASE)
_UNREACHABLE = re.compile(r"no such host|timeout|timed out|refused|x509|tls:|EOF|unreachable", re.IGNORECASE)
_OBJECT = re.compile(r'(configmap|secret) "?([^"\s]+)"? not found', re.IGNORECASE)
_KEY = re.compile(r"couldn't find key (\S+) in (ConfigMap|Secret) \S*?/(\S+)")
_KINDS = {"configmap": "ConfigMap", "secret": "Secret"}
_FAILURES = (
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "FailedMapVolume",
    "NetworkNotReady",
)
_UP = (PodState.RUNNING, PodState.SUCCEEDED)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find the first pod, in replica order, that the kubelet cannot start, and count the others."""
    pods = evidence.pod_set
    scheduled = [
        member
        for member in pods.active
        if member.pod.spec.node_name and member.state not in _UP and member.replica not in pods.finished
    ]
    obstacles = [(member, why) for member in scheduled if (why := core_explain.obstacle(member))]
    if obstacles:
        member, why = obstacles[0]
        yield _container_finding(evidence, member, why, len(obstacles) - 1)
        return
    for member in scheduled:
        if finding := _from_events(evidence, member):
            yield finding
            return


def _container_finding(evidence: Evidence, member: ObservedPod, why: str, others: int) -> Finding:
    rank, node = str(member.replica), member.pod.spec.node_name
    details = [f"{rank} is on node {node}"]
    details += [f"{others} more {'pod is' if others == 1 else 'pods are'} blocked as well"] if others else []
    container = _waiting(member)
    waiting = container.state.waiting if container else None
    if container is None or waiting is None:
        return Finding("NotStarted", f"{rank}: {why}", rank, tuple(details))
    if waiting.reason in _IMAGE_REASONS:
        return _image(evidence, member, container, details)
    if missing := _missing_object(evidence, rank, waiting.message):
        cause, text, advice = missing
        return Finding(cause, text, rank, tuple(details), (advice,))
    cause = waiting.reason or "NotStarted"
    return Finding(cause, f"{rank}: {why}", rank, tuple(details), (_correction(evidence, member, container),))


def _correction(evidence: Evidence, member: ObservedPod, container: ContainerStatus) -> Advice:
    """Advise a correction of the template. A container that never ran has no log."""
    role, waiting = member.replica.role, container.state.waiting
    field = f"spec.{role}.template.spec"
    spec = dict(evidence.roles).get(role)
    template = spec.template.get("spec") if spec else None
    if waiting and "runAsNonRoot and image" in waiting.message and isinstance(template, dict):
        given = template.get("securityContext")
        context = {**(given if isinstance(given, dict) else {}), **non_root(template)}
        change = patch(evidence.job, set_op(template_path(role, "securityContext"), context))
        text = f"set {field}.securityContext.runAsUser to a user that can write where the program writes"
        return Advice(text, change, then=follow_up(evidence))
    if container.last_state.terminated is None:
        return Advice(f"correct {field}, then suspend and resume the job")
    return Advice(f"see kubectl logs {member.pod.metadata.name} --previous, and correct {field}")


def _waiting(member: ObservedPod) -> ContainerStatus | None:
    statuses = (*member.pod.status.init_container_statuses, *member.pod.status.container_statuses)
    return next((each for each in statuses if each.state.waiting and each.state.waiting.reason), None)


def _image(
    evidence: Evidence, member: ObservedPod, container: ContainerStatus, details: list[str]
) -> Finding:
    """Explain why an image cannot be pulled. Events have the reason if the status shows only a back-off."""
    rank, waiting = str(member.replica), container.state.waiting
    assert waiting is not None
    warnings = [event for event in evidence.events_of(member.pod.metadata.name) if event.type == "Warning"]
    failed = next((event.message for event in warnings if "Failed to pull" in event.message), "")
    secrets = [event.message for event in warnings if event.reason == "FailedToRetrieveImagePullSecret"]
    image, text = _image_of(evidence, member, container.name), failed or waiting.message
    why, advice = _image_trouble(waiting.reason, text)
    field = f"the image of {container.name} in spec.{member.replica.role}.template"
    remedy = f"{advice.format(field=field, image=image)}, then suspend and resume the job"
    details += [termination_message(text), *secrets[:1]]
    summary = f"{rank} cannot pull image {image}: {why}"
    return Finding("ImagePull", summary, rank, tuple(filter(None, details)), (Advice(remedy),))


def _image_trouble(reason: str, text: str) -> tuple[str, str]:
    """Return why an image cannot be pulled, and the remedy."""
    if reason == "InvalidImageName":
        return "its name is not valid", "correct {field}"
    if reason == "ErrImageNeverPull":
        return "imagePullPolicy is Never, and it is not on the node", "use another policy, or load {image}"
    if _DENIED.search(text):
        why = "the registry denies access, or it does not exist"
        return why, "name a pull secret in imagePullSecrets, or correct {field}"
    if _NOT_FOUND.search(text):
        return "the registry has no such image", "correct {field}, or push {image}"
    if _UNREACHABLE.search(text):
        return "the registry cannot be reached from the node", "check the registry, its name and the network"
    return reason, "correct {field}"


def _image_of(evidence: Evidence, member: ObservedPod, container: str) -> str:
    spec = dict(evidence.roles).get(member.replica.role)
    pod_spec = spec.template.get("spec") if spec else None
    given = pod_spec if isinstance(pod_spec, dict) else {}
    listed = [*(given.get("initContainers") or ()), *(given.get("containers") or ())]
    images = {each.get("name"): each.get("image") for each in listed if isinstance(each, dict)}
    return str(images.get(container) or f"of {container}")


def _missing_object(evidence: Evidence, rank: str, text: str) -> tuple[str, str, Advice] | None:
    """Find the missing ConfigMap, Secret or key in a message of the kubelet."""
    namespace = evidence.job.metadata.namespace
    if found := _KEY.search(text):
        key, kind, name = found.groups()
        advice = Advice(f"add the key {key} to {kind} {name}, or correct the reference in the template")
        return f"{kind}KeyNotFound", f"{rank} needs key {key} of {kind} {name}, which has no such key", advice
    if found := _OBJECT.search(text):
        kind, name = _KINDS[found[1].lower()], found[2]
        advice = Advice(f"create {kind} {name} in namespace {namespace}, or correct the name in the template")
        return f"{kind}NotFound", f"{rank} needs {kind} {name}, which does not exist", advice
    return None


def _from_events(evidence: Evidence, member: ObservedPod) -> Finding | None:
    """Find a failing mount or sandbox, which the pod's status shows only as ContainerCreating."""
    rank, role = str(member.replica), member.replica.role
    events = evidence.events_of(pod_name(evidence.job.name, member.replica))
    event = next((event for event in events if event.reason in _FAILURES and event.type == "Warning"), None)
    if event is None or "Multi-Attach" in event.message:
        return None
    if missing := _missing_object(evidence, rank, event.message):
        cause, text, advice = missing
        return Finding(cause, text, rank, (event.message,), (advice,))
    advice = Advice(f"correct the volumes of spec.{role}.template.spec, or look at the node")
    text = f"{rank} cannot start on node {member.pod.spec.node_name}: {event.reason}: {event.message}"
    return Finding(event.reason, text, rank, advice=(advice,))
