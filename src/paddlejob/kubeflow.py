"""Converts a Kubeflow PaddleJob, and reports lost or changed fields and changed Paddle variables.

No field is dropped silently: every object is read through a `Reader`, which reports unused fields.
"""

from __future__ import annotations

import copy
import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from paddlejob import kubelet
from paddlejob.api import names
from paddlejob.api.defaulting import effective
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import MAX_BACKOFF_LIMIT, CleanPodPolicy, Intranet, PaddleJob, Role
from paddlejob.core.paddle_env import JobContext, config_data, service_host
from paddlejob.core.pod_set import Replica, pod_name
from paddlejob.core.render import render_pod

API_VERSION = "kubeflow.org/v1"
CONTAINER = "paddle"
"""The name of the training container, at any position in the list."""
TYPES = {"worker": Role.WORKER, "master": Role.PS}
OWN_VARIABLES = ("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM", "POD_IP_DUMMY")
"""Variables that only Kubeflow sets."""
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
DEFAULT_PORT = 36543
PORT_NAME = "master"
_TYPE_OF = {role: kind for kind, role in TYPES.items()}
MAX_RANKS = 2
"""Only the first rank of a role may differ from the others."""


class Level(enum.StrEnum):
    """How a field was converted."""

    LOST = "lost"
    """The field has no counterpart."""
    CHANGED = "changed"
    """The field has another name, value or meaning."""
    NOTE = "note"
    """The field is kept, with a remark."""


class Finding(msgspec.Struct, frozen=True):
    """A remark about one field."""

    level: Level
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.field}: {self.text}"


class Reader:
    """Takes the fields of an object one by one. `finish` reports the fields that are left."""

    def __init__(self, fields: Any, path: str, findings: list[Finding]) -> None:
        self._left: JsonObject = dict(fields) if isinstance(fields, dict) else {}
        self.path = path
        self.findings = findings

    def take(self, field: str) -> Any:
        """Return and remove the value of a field, None if it is absent or null."""
        return self._left.pop(field, None)

    def inside(self, field: str) -> Reader:
        """Return a reader for the object in a field, empty if it is absent."""
        return Reader(self.take(field), f"{self.path}.{field}", self.findings)

    def report_lost(self, field: str, text: str) -> None:
        self.findings.append(Finding(Level.LOST, f"{self.path}.{field}", text))

    def report_changed(self, field: str, text: str) -> None:
        self.findings.append(Finding(Level.CHANGED, f"{self.path}.{field}", text))

    def report_note(self, field: str, text: str) -> None:
        self.findings.append(Finding(Level.NOTE, f"{self.path}.{field}", text))

    def finish(self) -> None:
        """Report all fields that were not taken."""
        for field, value in self._left.items():
            if value is not None:
                self.report_lost(field, "unknown field of kubeflow.org/v1, left out")


class Converted(msgspec.Struct, frozen=True):
    """A job in our API, and the remarks about its fields."""

    manifest: JsonObject
    findings: tuple[Finding, ...]


def is_kubeflow(document: Mapping[str, Any]) -> bool:
    """Return whether an object is a Kubeflow PaddleJob."""
    return document.get("apiVersion") == API_VERSION and document.get("kind") == names.KIND


def convert(document: JsonObject, *, elastic: bool = False) -> Converted:
    """Convert a job. With `elastic`, its elasticPolicy takes effect, which Kubeflow never used."""
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
    """Keep the metadata that a person wrote, including the label of a queue."""
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
        given.report_changed(
            "Master",
            "becomes spec.ps; its pods are called NAME-ps-N instead of NAME-master-N, and programs read the "
            "servers from PADDLE_PSERVERS_IP_PORT_LIST",
        )
    return policies


def _pod_template(reader: Reader, template: JsonObject, role: Role, policy: str) -> None:
    pod_spec = template.setdefault("spec", {})
    if "restartPolicy" in pod_spec:
        reader.report_note(
            "template.spec.restartPolicy", "Kubeflow ignored it in favor of the role's restartPolicy"
        )
    _restart_policy(reader, pod_spec, role, policy)
    containers = pod_spec.get("containers") or []
    position = next((index for index, each in enumerate(containers) if each.get("name") == CONTAINER), 0)
    if position:
        containers.insert(0, containers.pop(position))
        reader.report_changed(
            "template.spec.containers", f"{CONTAINER} comes first: the first container trains"
        )
    if len(containers) > 1:
        reader.report_changed(
            "template.spec.containers",
            f"only {CONTAINER} gets the variables for Paddle, which Kubeflow gave to every container",
        )


def _restart_policy(reader: Reader, pod_spec: JsonObject, role: Role, policy: str) -> None:
    if policy == "OnFailure":
        pod_spec["restartPolicy"] = "OnFailure"
        reader.report_note(
            "restartPolicy",
            "OnFailure is kept: the kubelet restarts a failed container in place; remove it to let the "
            "operator restart all pods together",
        )
    elif policy == "Always" and role is Role.PS:
        pod_spec["restartPolicy"] = "Always"
    elif policy == "Always":
        pod_spec["restartPolicy"] = "OnFailure"
        reader.report_changed(
            "restartPolicy", "Always becomes OnFailure: a program that has succeeded is not restarted"
        )
    else:  # Never and ExitCode
        pod_spec["restartPolicy"] = "Never"
    if policy == "ExitCode":
        reader.report_changed(
            "restartPolicy",
            "ExitCode is the default of the operator (1 to 127 fail the job, 128 and above restart "
            "it), for all pods together; exit codes 15, 101 and 143 restart it too",
        )


def _run_policy(given: Reader, spec: JsonObject, policies: Mapping[Role, str]) -> None:
    clean = given.take("cleanPodPolicy") or "None"
    spec["cleanPodPolicy"] = str(_POLICIES.get(clean, CleanPodPolicy.NEVER))
    if clean == "Running":
        given.report_changed(
            "cleanPodPolicy",
            "Running becomes OnCompletion, which deletes the pods and logs of a completed job, and stops "
            "only the pods of a failed one that still run",
        )
    elif clean not in _POLICIES:
        given.report_lost("cleanPodPolicy", f"{clean!r} is unknown; Never is used")
    for field in ("ttlSecondsAfterFinished", "suspend"):
        if (value := given.take(field)) is not None:
            spec[field] = value
    if (deadline := given.take("activeDeadlineSeconds")) is not None:
        spec["activeDeadlineSeconds"] = deadline
        given.report_changed(
            "activeDeadlineSeconds",
            "is enforced to the second, from the moment all pods run; Kubeflow looked at it only when "
            "something else happened to the job",
        )
    _backoff(given, spec, policies)
    if (manager := given.take("managedBy")) not in (None, _OWN_CONTROLLER):
        given.report_lost("managedBy", f"{manager!r} does not manage jobs of this API")
    _scheduling_policy(given.inside("schedulingPolicy"), spec)
    given.finish()


def _backoff(given: Reader, spec: JsonObject, policies: Mapping[Role, str]) -> None:
    limit = given.take("backoffLimit")
    if policies.get(Role.WORKER) == "Never":
        spec["backoffLimit"] = 0
        if limit:
            given.report_changed("backoffLimit", "becomes 0: with restartPolicy Never no failure is retried")
    elif limit is not None:
        spec["backoffLimit"] = min(limit, MAX_BACKOFF_LIMIT) if isinstance(limit, int) else limit
        given.report_changed(
            "backoffLimit",
            "counts restarts of the whole job after failures of the program; Kubeflow added up the restarts "
            "of containers",
        )
    elif "ExitCode" in policies.values():
        spec["backoffLimit"] = MAX_BACKOFF_LIMIT
        given.report_note(
            "backoffLimit",
            f"is not set, so Kubeflow retried forever; it becomes {MAX_BACKOFF_LIMIT}, the maximum",
        )


def _scheduling_policy(given: Reader, spec: JsonObject) -> None:
    fields = ("minAvailable", "queue", "minResources", "priorityClass")
    kept = {field: given.take(field) for field in fields}
    if found := {field: value for field, value in kept.items() if value is not None}:
        spec["schedulingPolicy"] = found
    if given.take("scheduleTimeoutSeconds") is not None:
        given.report_lost(
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
        given.report_changed(
            "minReplicas, maxReplicas",
            "take effect: the job runs with any number of workers between them, and restarts from its "
            "checkpoint when it is resized",
        )
    elif found:
        given.report_lost(
            "minReplicas, maxReplicas",
            "left out, because Kubeflow only gave them to an autoscaler and the job would be resized here; "
            "--elastic converts them",
        )
    if given.take("maxRestarts") is not None:
        given.report_lost("maxRestarts", "Kubeflow never read it; spec.backoffLimit limits restarts")
    if given.take("metrics") is not None:
        given.report_lost(
            "metrics",
            f"create a HorizontalPodAutoscaler with the scaleTargetRef {names.API_VERSION} {names.KIND}; "
            "the job has a scale subresource",
        )
    given.finish()


def _names(spec: JsonObject, name: str, findings: list[Finding]) -> None:
    """Keep pod names in the templates resolvable, and report variables that are not set here."""
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


def texts(value: Any) -> Iterator[str]:
    """Yield every string in a tree of objects and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


class Difference(msgspec.Struct, frozen=True):
    """A variable that differs. None means that it is not set."""

    variable: str
    kubeflow: str | None
    here: str | None

    def __str__(self) -> str:
        if self.kubeflow is None:
            return f"+ {self.variable}={self.here}"
        if self.here is None:
            return f"- {self.variable}={self.kubeflow}"
        return f"~ {self.variable}={self.here} (was {self.kubeflow})"


def differences(document: JsonObject, manifest: JsonObject) -> Iterator[tuple[str, list[Difference]]]:
    """Yield the first pods of each role with the variables that the conversion changes."""
    job = _job(manifest)
    for role, spec in job.spec.roles():
        for index in range(min(spec.replicas, MAX_RANKS)):
            replica = Replica(role, index)
            before, after = _kubeflow(document, replica), _here(job, replica)
            found = [
                Difference(variable, before.get(variable), after.get(variable))
                for variable in sorted({*before, *after})
                if before.get(variable) != after.get(variable)
            ]
            yield pod_name(job.name, replica), found


def _job(manifest: JsonObject) -> PaddleJob:
    """Return the job without the variables of its templates, which the conversion keeps."""
    bare = copy.deepcopy(manifest)
    for role in Role:
        for container in _containers(bare["spec"].get(str(role)) or {})[:1]:
            container.pop("env", None)
            container.pop("envFrom", None)
    metadata = {"namespace": "default", "name": _name(manifest), **manifest["metadata"], "uid": "uid"}
    return msgspec.convert({**bare, "metadata": metadata}, PaddleJob)


def _here(job: PaddleJob, replica: Replica) -> dict[str, str]:
    spec = effective(job.spec)
    context = JobContext(job, spec, names.BASE_PORT)
    hosts = {
        role: [_host(context, Replica(role, index)) for index in range(each.replicas)]
        for role, each in spec.roles
    }
    shared = {key: value.encode() for key, value in config_data(context, hosts).items()}
    pod = render_pod(context, replica)
    pod["status"] = {"podIP": _host(context, replica)}
    sources = kubelet.Sources(pod, lambda _: shared)
    resolved = kubelet.resolve(pod["spec"]["containers"][0], sources)
    return {key: value for key, value in resolved.items() if not key.startswith(names.ATTEMPT_GUARD)}


def _host(context: JobContext, replica: Replica) -> str:
    if context.network.by_name:
        return service_host(context, replica)
    return _address(context.job.name, str(replica.role), replica.index)


def _kubeflow(document: JsonObject, replica: Replica) -> dict[str, str]:
    """Return the variables that Kubeflow's training operator 1.9 sets."""
    name = _name(document)
    specs = {TYPES[kind.lower()]: each for kind, each in document["spec"]["paddleReplicaSpecs"].items()}
    first = Replica(Role.PS if Role.PS in specs else Role.WORKER, 0)
    address = _address(name, _TYPE_OF[replica.role], replica.index)
    master = address if replica == first else f"{name}-{_TYPE_OF[first.role]}-0"
    env = {
        "PYTHONUNBUFFERED": "0",
        "PADDLE_JOB_ID": name,
        "PADDLE_NNODES": str(
            sum(1 if each.get("replicas") is None else each["replicas"] for each in specs.values())
        ),
        "PADDLE_MASTER": f"{master}:{_port(specs[first.role])}",
    }
    if replica == first:
        env["POD_IP_DUMMY"] = address
    if first.role is Role.PS:
        env["PADDLE_SERVER_NUM" if replica.role is Role.PS else "PADDLE_TRAINER_NUM"] = "1"
    return env


def _port(replica_spec: JsonObject) -> int:
    for container in _containers(replica_spec):
        for port in container.get("ports") or () if container.get("name") == CONTAINER else ():
            if port.get("name") == PORT_NAME:
                return int(port["containerPort"])
    return DEFAULT_PORT


def _containers(replica_spec: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = ((replica_spec.get("template") or {}).get("spec") or {}).get("containers") or []
    return found


def _name(document: JsonObject) -> str:
    metadata = document["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _address(name: str, role: str, index: int) -> str:
    """Return a placeholder for the address of a pod."""
    return f"<IP of {name}-{role}-{index}>"
