"""Manifests of a job's objects. Fields of the user's template that are unknown here are kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import command_line
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import Mode, PaddleJob, Role
from paddlejob.core import paddle_env
from paddlejob.core.attempts import supervision
from paddlejob.core.attempts.processes import template_hash
from paddlejob.core.attempts.supervision import default_restart_policy
from paddlejob.core.gang.registry import mark_pod
from paddlejob.core.paddle_env import JobContext
from paddlejob.core.pod_set import Replica, pod_name
from paddlejob.core.recorder import with_recorder

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def render_pod(
    context: JobContext, replica: Replica, *, config_hash: str | None = None, is_spare: bool = False
) -> JsonObject:
    """Return the pod of a replica, with the hash of the ConfigMap if it is known beforehand.

    A spare waits for the key with its rank.
    """
    metadata = _replica_metadata(context.job, replica)
    metadata["labels"][names.LABEL_ATTEMPT] = str(context.attempt)
    given = context.role_spec(replica.role).template.get("metadata") or {}
    metadata["labels"] = {**(given.get("labels") or {}), **metadata["labels"]}
    metadata["annotations"] = {**(given.get("annotations") or {}), names.ANNOTATION_ROLE: str(replica.role)}
    if given.get("finalizers"):
        metadata["finalizers"] = given["finalizers"]
    if supervision.is_supervised(context, replica.role):
        template = context.role_spec(replica.role).template
        metadata["annotations"][names.ANNOTATION_SUPERVISED] = template_hash(template)
    if is_spare:
        metadata["annotations"][names.ANNOTATION_SPARE] = "true"
    if config_hash is not None:
        metadata["annotations"][names.ANNOTATION_CONFIG_HASH] = config_hash
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}
    pod["spec"] = _pod_spec(context, replica, is_spare=is_spare)
    if context.gang is not None:
        mark_pod(pod, context.gang, replica.role)
    return pod


def render_service(context: JobContext, replica: Replica) -> JsonObject:
    """Return the headless service of a replica.

    Addresses are published before pods are ready, because peers must find each other to become ready. If pods
    have both address families, the name resolves to both: Paddle needs IPv4, which may not be the first one.
    """
    name = pod_name(context.job.name, replica)
    ports = [
        {
            "name": f"p-{offset}",
            "port": context.port + offset,
            "targetPort": context.port + offset,
            "protocol": "TCP",
        }
        for offset in range(names.PORTS_PER_POD)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _replica_metadata(context.job, replica),
        "spec": {
            "clusterIP": "None",
            "ipFamilyPolicy": "PreferDualStack",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_RESOURCE_NAME: name},
            "ports": ports,
        },
    }


def render_config_map(job: PaddleJob, data: Mapping[str, str]) -> JsonObject:
    """Return the ConfigMap with the environment of all pods."""
    metadata = _metadata(job, job.name)
    metadata["labels"][names.LABEL_RESOURCE_NAME] = job.name
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def _metadata(job: PaddleJob, name: str) -> JsonObject:
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {names.LABEL_JOB: job.name},
        "ownerReferences": [msgspec.to_builtins(job.owner_reference)],
    }


def _replica_metadata(job: PaddleJob, replica: Replica) -> JsonObject:
    name = pod_name(job.name, replica)
    metadata = _metadata(job, name)
    metadata["labels"].update(
        {
            names.LABEL_ROLE: str(replica.role),
            names.LABEL_INDEX: str(replica.index),
            names.LABEL_RESOURCE_NAME: name,
            names.LABEL_RESOURCE_TYPE: str(replica.role),
        }
    )
    return metadata


def _pod_spec(context: JobContext, replica: Replica, *, is_spare: bool) -> JsonObject:
    name = pod_name(context.job.name, replica)
    pod_spec = _without_nulls(context.role_spec(replica.role).template.get("spec") or {})
    first, *others = pod_spec.get("containers") or [{}]
    pod_spec["containers"] = [_training_container(context, replica, first, is_spare=is_spare), *others]
    is_supervised = supervision.is_supervised(context, replica.role)
    if context.recorder is not None and (is_supervised or replica.role is not Role.PS):
        reports = replica.role is not Role.PS
        pod_spec = with_recorder(pod_spec, context.recorder, context.job.metadata.key, reports=reports)
    if is_supervised:
        pod_spec = supervision.with_supervisor(pod_spec, context, first)
    if _has_launcher_logs(context, pod_spec, first):
        pod_spec = _with_launcher_logs(pod_spec)
    pod_spec.setdefault("restartPolicy", default_restart_policy(context, replica.role))
    if context.job.status.suspect_nodes:
        pod_spec["affinity"] = _away_from(context.job.status.suspect_nodes, pod_spec.get("affinity") or {})
    return context.network.settings(name) | pod_spec | context.network.required_settings()


def _has_launcher_logs(context: JobContext, pod_spec: JsonObject, given: JsonObject) -> bool:
    """Return whether the launcher gets a directory for its logs.

    By default it writes to its working directory, and fails if it cannot. PADDLE_LOG_DIR would win over
    --log_dir of the command.
    """
    return (
        context.spec.mode in (Mode.COLLECTIVE, Mode.SINGLE)
        and (context.keeps_launcher_logs or not _can_write_anywhere(pod_spec, given))
        and "--log_dir" not in command_line(given)
        and all(variable.get("name") != Env.LOG_DIR for variable in given.get("env") or ())
    )


def _can_write_anywhere(pod_spec: JsonObject, container: JsonObject) -> bool:
    """Return whether the template lets the container write to its working directory, whoever owns it."""
    of_pod, of_container = (each.get("securityContext") for each in (pod_spec, container))
    merged = {
        **(of_pod if isinstance(of_pod, dict) else {}),
        **(_without_nulls(of_container) if isinstance(of_container, dict) else {}),
    }
    is_root = merged.get("runAsUser", 0) == 0 and merged.get("runAsNonRoot") is not True
    return is_root and merged.get("readOnlyRootFilesystem") is not True


def _with_launcher_logs(pod_spec: JsonObject) -> JsonObject:
    first, *others = pod_spec["containers"]
    variable = {"name": Env.LOG_DIR, "value": names.LAUNCHER_LOG_DIR}
    first = {**first, "env": [*first["env"], variable]}
    mounts, volumes = first.get("volumeMounts") or [], pod_spec.get("volumes") or []
    # A user may keep the logs on a volume of the template.
    if all(str(mount.get("mountPath")).rstrip("/") != names.LAUNCHER_LOG_DIR for mount in mounts):
        mount = {"name": names.LAUNCHER_LOGS, "mountPath": names.LAUNCHER_LOG_DIR}
        first["volumeMounts"] = [*mounts, mount]
        if all(volume.get("name") != names.LAUNCHER_LOGS for volume in volumes):
            volumes = [*volumes, {"name": names.LAUNCHER_LOGS, "emptyDir": {}}]
    return {**pod_spec, "containers": [first, *others], "volumes": volumes}


def _away_from(nodes: tuple[str, ...], affinity: JsonObject) -> JsonObject:
    """Return the template's affinity, with a preference for other nodes added."""
    of_nodes = affinity.get("nodeAffinity") or {}
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    preferred = [*(of_nodes.get(_PREFERRED) or ()), {"weight": 100, "preference": {"matchFields": others}}]
    return {**affinity, "nodeAffinity": {**of_nodes, _PREFERRED: preferred}}


def _without_nulls(fields: JsonObject) -> JsonObject:
    """Return a copy without nulls, which mean the same as absent fields."""
    return {name: value for name, value in fields.items() if value is not None}


def _training_container(
    context: JobContext, replica: Replica, given: JsonObject, *, is_spare: bool
) -> JsonObject:
    container = _without_nulls(given)
    ours = list(paddle_env.pod_env(context, replica, is_spare=is_spare))
    container["env"] = _merged_env(ours, given.get("env") or [])
    container["envFrom"] = [*(given.get("envFrom") or ()), {"configMapRef": {"name": context.job.name}}]
    ports = _merged_ports(context, given.get("ports") or [])
    if ports:
        container["ports"] = ports
    container.setdefault("terminationMessagePolicy", names.TERMINATION_MESSAGE_POLICY)
    return container


def _merged_env(ours: list[JsonObject], users: list[JsonObject]) -> list[JsonObject]:
    """Put ours first, so that the user's may refer to them; the user's value wins unless protected."""
    theirs = {variable.get("name") for variable in users}
    kept = [one for one in ours if one["name"] in names.PROTECTED_ENV or one["name"] not in theirs]
    given = {one["name"] for one in kept}
    return [*kept, *(variable for variable in users if variable.get("name") not in given)]


def _merged_ports(context: JobContext, users: list[JsonObject]) -> list[JsonObject]:
    """Add the job's ports unless the user declared them."""
    declared = {port.get("containerPort") for port in users}
    ours = context.network.ports(context.port)
    return [*users, *(port for port in ours if port["containerPort"] not in declared)]
