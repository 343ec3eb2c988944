"""Turns a PaddleJob of Kubeflow into ours, and says of every field that does not come over as it was.

Nothing is dropped in silence: each object is read through a `Reader`, which reports what nobody took.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import MAX_BACKOFF_LIMIT, CleanPodPolicy, Intranet, Role
from paddlejob.kubeflow.findings import Finding, Level, Reader, texts

API_VERSION = "kubeflow.org/v1"
CONTAINER = "paddle"
"""The name of the container that trains, wherever it is in the list."""
TYPES = {"worker": Role.WORKER, "master": Role.PS}
OWN_VARIABLES = ("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM", "POD_IP_DUMMY")
"""What only Kubeflow sets."""
_POLICIES = {
    "All": CleanPodPolicy.ALWAYS,
    "None": CleanPodPolicy.NEVER,
    "Running": CleanPodPolicy.ON_COMPLETION,
}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN_CONTROLLER = "kubeflow.org/training-operator"
_SERVER_METADATA = frozenset(
    (
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation"),
        *("managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
    )
)


class Converted(msgspec.Struct, frozen=True):
    """A job in our API, and what did not come over as it was."""

    manifest: JsonObject
    findings: tuple[Finding, ...]


def is_kubeflow(document: Mapping[str, Any]) -> bool:
    """Tell whether an object is a PaddleJob of Kubeflow."""
    return document.get("apiVersion") == API_VERSION and document.get("kind") == names.KIND


def convert(document: JsonObject, *, elastic: bool = False) -> Converted:
    """Convert a job; `elastic` turns its elasticPolicy, which Kubeflow never acted upon, into a live one."""
    findings: list[Finding] = []
    whole = Reader(copy.deepcopy(document), "", findings)
    for field in ("apiVersion", "kind", "status"):
        whole.take(field)
    metadata = _metadata(whole.inside("metadata"))
    spec: JsonObject = {}
    given = Reader(whole.take("spec"), "spec", findings)
    roles = _roles(given.inside("paddleReplicaSpecs"), spec)
    _run_policy(given.inside("runPolicy"), spec, roles)
    _elastic_policy(given.inside("elasticPolicy"), spec, is_live=elastic)
    _names(spec, str(metadata.get("name") or metadata.get("generateName") or ""), findings)
    given.finish()
    whole.finish()
    manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
    return Converted(manifest, tuple(findings))


def _metadata(given: Reader) -> JsonObject:
    """Keep what a person wrote; labels stay, among them that of a queue."""
    kept = {field: given.take(field) for field in ("name", "generateName", "namespace", "labels")}
    annotations = dict(given.take("annotations") or {})
    annotations.pop(_LAST_APPLIED, None)
    for field in _SERVER_METADATA:
        given.take(field)
    given.finish()
    return {field: value for field, value in {**kept, "annotations": annotations}.items() if value}


def _roles(given: Reader, spec: JsonObject) -> dict[Role, str]:
    """Convert the replica specs, and return the restart policy of each role."""
    policies: dict[Role, str] = {}
    for name in ("Worker", "worker", "Master", "master"):
        replica_spec = given.take(name)
        if replica_spec is None:
            continue
        role = TYPES[name.lower()]
        reader = Reader(replica_spec, f"{given.path}.{name}", given.findings)
        policies[role] = str(reader.take("restartPolicy") or "OnFailure")
        replicas = reader.take("replicas")
        template = reader.take("template") or {}
        _pod_template(reader, template, role, policies[role])
        reader.finish()
        spec[str(role)] = {"replicas": 1 if replicas is None else replicas, "template": template}
    given.finish()
    if Role.PS in policies:
        given.say(
            Level.CHANGED,
            "Master",
            "becomes spec.ps; its pods are called NAME-ps-N instead of NAME-master-N, and programs read the "
            "servers from PADDLE_PSERVERS_IP_PORT_LIST",
        )
    return policies


def _pod_template(reader: Reader, template: JsonObject, role: Role, policy: str) -> None:
    pod_spec = template.setdefault("spec", {})
    if "restartPolicy" in pod_spec:
        reader.say(
            Level.NOTE,
            "template.spec.restartPolicy",
            "Kubeflow ignored it in favor of the role's restartPolicy",
        )
    _restart_policy(reader, pod_spec, role, policy)
    containers = pod_spec.get("containers") or []
    position = next((index for index, each in enumerate(containers) if each.get("name") == CONTAINER), 0)
    if position:
        containers.insert(0, containers.pop(position))
        reader.say(
            Level.CHANGED, "template.spec.containers", f"{CONTAINER} comes first: the first container trains"
        )
    if len(containers) > 1:
        reader.say(
            Level.CHANGED,
            "template.spec.containers",
            f"only {CONTAINER} gets the variables for Paddle, which Kubeflow gave to every container",
        )


def _restart_policy(reader: Reader, pod_spec: JsonObject, role: Role, policy: str) -> None:
    if policy == "OnFailure":
        pod_spec["restartPolicy"] = "OnFailure"
        reader.say(
            Level.NOTE,
            "restartPolicy",
            "OnFailure is kept: the kubelet restarts a failed container in place; remove it to let the "
            "operator restart all pods together",
        )
    elif policy == "Always" and role is Role.PS:
        pod_spec["restartPolicy"] = "Always"
    elif policy == "Always":
        pod_spec["restartPolicy"] = "OnFailure"
        reader.say(
            Level.CHANGED,
            "restartPolicy",
            "Always becomes OnFailure: a program that has succeeded is not restarted",
        )
    else:  # Never and ExitCode
        pod_spec["restartPolicy"] = "Never"
    if policy == "ExitCode":
        reader.say(
            Level.CHANGED,
            "restartPolicy",
            "ExitCode is what the operator does by default (1 to 127 fail the job, 128 and above restart "
            "it), for all pods together; exit codes 15, 101 and 143 restart it too",
        )


def _run_policy(given: Reader, spec: JsonObject, policies: Mapping[Role, str]) -> None:
    clean = given.take("cleanPodPolicy") or "None"
    spec["cleanPodPolicy"] = str(_POLICIES.get(clean, CleanPodPolicy.NEVER))
    if clean == "Running":
        given.say(
            Level.CHANGED,
            "cleanPodPolicy",
            "Running becomes OnCompletion, which deletes the pods and logs of a completed job, and stops "
            "only the pods of a failed one that still run",
        )
    elif clean not in _POLICIES:
        given.say(Level.LOST, "cleanPodPolicy", f"{clean!r} is unknown; Never is used")
    for field in ("ttlSecondsAfterFinished", "suspend"):
        if (value := given.take(field)) is not None:
            spec[field] = value
    if (deadline := given.take("activeDeadlineSeconds")) is not None:
        spec["activeDeadlineSeconds"] = deadline
        given.say(
            Level.CHANGED,
            "activeDeadlineSeconds",
            "is enforced to the second, from the moment all pods run; Kubeflow looked at it only when "
            "something else happened to the job",
        )
    _backoff(given, spec, policies)
    if (manager := given.take("managedBy")) not in (None, _OWN_CONTROLLER):
        given.say(Level.LOST, "managedBy", f"{manager!r} does not manage jobs of this API")
    _scheduling_policy(given.inside("schedulingPolicy"), spec)
    given.finish()


def _backoff(given: Reader, spec: JsonObject, policies: Mapping[Role, str]) -> None:
    limit = given.take("backoffLimit")
    if policies.get(Role.WORKER) == "Never":
        spec["backoffLimit"] = 0
        if limit:
            given.say(
                Level.CHANGED, "backoffLimit", "becomes 0: with restartPolicy Never no failure is retried"
            )
    elif limit is not None:
        spec["backoffLimit"] = min(limit, MAX_BACKOFF_LIMIT) if isinstance(limit, int) else limit
        given.say(
            Level.CHANGED,
            "backoffLimit",
            "counts restarts of the whole job after failures of the program; Kubeflow added up the restarts "
            "of containers",
        )
    elif "ExitCode" in policies.values():
        spec["backoffLimit"] = MAX_BACKOFF_LIMIT
        given.say(
            Level.NOTE,
            "backoffLimit",
            f"is not set, so Kubeflow retried forever; it becomes {MAX_BACKOFF_LIMIT}, the maximum",
        )


def _scheduling_policy(given: Reader, spec: JsonObject) -> None:
    fields = ("minAvailable", "queue", "minResources", "priorityClass")
    kept = {field: given.take(field) for field in fields}
    if found := {field: value for field, value in kept.items() if value is not None}:
        spec["schedulingPolicy"] = found
    if given.take("scheduleTimeoutSeconds") is not None:
        given.say(
            Level.LOST,
            "scheduleTimeoutSeconds",
            "Volcano has no such timeout; spec.startupDeadlineSeconds limits the wait for pods",
        )
    given.finish()


def _elastic_policy(given: Reader, spec: JsonObject, *, is_live: bool) -> None:
    worker = spec.get(str(Role.WORKER)) or {}
    bounds = {"requests": given.take("minReplicas"), "limits": given.take("maxReplicas")}
    found = {field: value for field, value in bounds.items() if value is not None}
    if found and is_live:
        worker.update(found)
        spec["elastic"] = 1
        given.say(
            Level.CHANGED,
            "minReplicas, maxReplicas",
            "take effect: the job runs with any number of workers between them, and restarts from its "
            "checkpoint when it is resized",
        )
    elif found:
        given.say(
            Level.LOST,
            "minReplicas, maxReplicas",
            "left out, because Kubeflow only gave them to an autoscaler and the job would be resized here; "
            "--elastic converts them",
        )
    if given.take("maxRestarts") is not None:
        given.say(Level.LOST, "maxRestarts", "Kubeflow never read it; spec.backoffLimit limits restarts")
    if given.take("metrics") is not None:
        given.say(
            Level.LOST,
            "metrics",
            f"create a HorizontalPodAutoscaler whose scaleTargetRef is {names.API_VERSION} {names.KIND}; "
            "the job has a scale subresource",
        )
    given.finish()


def _names(spec: JsonObject, name: str, findings: list[Finding]) -> None:
    """Keep the names of pods in the templates resolvable, and report what is not set here."""
    templates = {
        role: list(texts(spec[role]["template"])) for role in map(str, TYPES.values()) if role in spec
    }
    every_text = "\n".join(text for each in templates.values() for text in each)
    named = set(re.findall(rf"\b{re.escape(name)}-(worker|master)-\d+\b", every_text)) if name else set()
    if named:
        spec["intranet"] = str(Intranet.SERVICE)
        why = "becomes Service, because the templates name pods: each gets a Service with its name"
        findings.append(Finding(Level.CHANGED, "spec.intranet", why))
    if "master" in named:
        why = f"the templates name {name}-master-N, which is {name}-ps-N here; change them"
        findings.append(Finding(Level.LOST, "spec.paddleReplicaSpecs", why))
    for role, written in templates.items():
        field, joined = f"spec.{role}.template", "\n".join(written)
        findings += [
            Finding(Level.LOST, field, f"uses {variable}, which is not set here")
            for variable in OWN_VARIABLES
            if variable in joined
        ]
        if str(Role.PS) in spec and "paddle.distributed.launch" in joined:
            why = (
                "starts paddle.distributed.launch, but each pod is a server or a trainer already "
                "(TRAINING_ROLE); start the program itself"
            )
            findings.append(Finding(Level.CHANGED, field, why))
