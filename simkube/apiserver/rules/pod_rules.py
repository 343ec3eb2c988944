"""The API server's validation of pods: bad specs, forbidden changes, unknown fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import StatusCause
from simkube.apiserver.refusals import (
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from simkube.apiserver.rules.rules import LABEL, LABEL_RULE

_MAX_DEADLINE_SECONDS = 2**31 - 1


def pod_causes(pod: JsonObject, previous: JsonObject | None) -> list[StatusCause]:
    """Validate a pod, or a change of a pod."""
    spec = pod["spec"]
    causes: list[StatusCause] = []
    if not spec.get("containers"):
        causes.append(required("spec.containers"))
    causes += _container_causes("spec.initContainers", spec.get("initContainers") or (), set())
    causes += _container_causes("spec.containers", spec.get("containers") or (), set())
    if spec["restartPolicy"] not in {"Always", "OnFailure", "Never"}:
        choices = ("Always", "OnFailure", "Never")
        causes.append(not_supported("spec.restartPolicy", spec["restartPolicy"], choices))
    causes += _deadline_causes(spec, previous["spec"] if previous is not None else {})
    if previous is not None and _frozen_part(spec) != _frozen_part(previous["spec"]):
        causes.append(
            forbidden_value(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
                "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
                "to 1 if it was previously negative)",
            )
        )
    return causes


def _deadline_causes(spec: JsonObject, previous: JsonObject) -> Iterator[StatusCause]:
    """Yield errors of `activeDeadlineSeconds`, which an update may set or lower, but not raise or remove."""
    path, seconds = "spec.activeDeadlineSeconds", spec.get("activeDeadlineSeconds")
    before = previous.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= _MAX_DEADLINE_SECONDS:
        yield invalid_value(path, seconds, f"must be between 1 and {_MAX_DEADLINE_SECONDS}, inclusive")
    if before is not None and seconds is None:
        yield invalid_value(path, None, "must not update from a positive integer to nil value")
    elif before is not None and seconds > before:
        yield invalid_value(path, seconds, "must be less than or equal to previous value")


def _container_causes(
    path: str, containers: Sequence[JsonObject], host_ports: set[tuple[str, int]]
) -> Iterator[StatusCause]:
    names: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{path}[{index}]"
        name = container.get("name", "")
        if not name:
            yield required(f"{here}.name")
        elif len(name) > 63 or not LABEL.fullmatch(name):
            yield invalid_value(f"{here}.name", name, LABEL_RULE)
        elif name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)
        if not container.get("image"):
            yield required(f"{here}.image")
        yield from _host_port_causes(here, container.get("ports") or (), host_ports)


def _host_port_causes(
    path: str, ports: Sequence[JsonObject], taken: set[tuple[str, int]]
) -> Iterator[StatusCause]:
    for index, port in enumerate(ports):
        if not port.get("hostPort"):
            continue
        claim = (port.get("protocol", "TCP"), port["hostPort"])
        if claim in taken:
            yield duplicate(f"{path}.ports[{index}].hostPort", f"{claim[0]}//{claim[1]}")
        taken.add(claim)


def _frozen_part(spec: JsonObject) -> JsonObject:
    """Return the immutable part of a pod's spec."""
    free = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"}
    frozen = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        frozen[field] = [{**container, "image": ""} for container in spec.get(field) or ()]
    return frozen


def unknown_pod_fields(pod: JsonObject) -> list[str]:
    """List the fields of a pod, its containers, and their env, ports and mounts that do not exist."""
    return [
        *_unknown("", pod, _POD_FIELDS),
        *_unknown("metadata.", pod["metadata"], _METADATA_FIELDS),
        *_unknown_in_spec(pod.get("spec") or {}),
    ]


def _unknown_in_spec(spec: JsonObject) -> Iterator[str]:
    for list_name in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(list_name) or ()):
            here = f"spec.{list_name}[{index}]."
            yield from _unknown(here, container, _CONTAINER_FIELDS)
            for field, known in _ELEMENT_FIELDS.items():
                for number, element in enumerate(container.get(field) or ()):
                    yield from _unknown(f"{here}{field}[{number}].", element, known)
    yield from _unknown("spec.", spec, _SPEC_FIELDS)


def _unknown(prefix: str, part: JsonObject, known: frozenset[str]) -> list[str]:
    return [f'unknown field "{prefix}{field}"' for field in sorted(part) if field not in known]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_POD_FIELDS = _words("apiVersion kind metadata spec status")
_METADATA_FIELDS = _words(
    """name generateName namespace selfLink uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers
    managedFields"""
)
_SPEC_FIELDS = _words(
    """volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds
    activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName serviceAccount
    automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace securityContext
    imagePullSecrets hostname subdomain affinity schedulerName tolerations hostAliases priorityClassName
    priority dnsConfig readinessGates runtimeClassName enableServiceLinks preemptionPolicy overhead
    topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates resourceClaims resources
    hostnameOverride workloadRef schedulingGroup"""
)
_CONTAINER_FIELDS = _words(
    """name image command args workingDir ports envFrom env resources resizePolicy restartPolicy
    restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle
    terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty"""
)
_ELEMENT_FIELDS = {
    "env": _words("name value valueFrom"),
    "envFrom": _words("prefix configMapRef secretRef"),
    "ports": _words("name hostPort containerPort protocol hostIP"),
    "volumeMounts": _words("name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr"),
}
