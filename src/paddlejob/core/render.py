"""The objects of a job as they are sent to the API server. The user's template passes through untouched."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core import paddle_env
from paddlejob.core.gang.registry import mark_pod
from paddlejob.core.paddle_env import JobContext
from paddlejob.core.pod_set import Replica, pod_name
from paddlejob.core.recording.recorder import with_recorder

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def render_pod(context: JobContext, replica: Replica, *, config_hash: str | None = None) -> JsonObject:
    """Return the pod of a replica; `config_hash` is given when the ConfigMap is known beforehand."""
    metadata = _replica_metadata(context.job, replica)
    metadata["labels"][names.LABEL_ATTEMPT] = str(context.attempt)
    given = context.role_spec(replica.role).template.get("metadata") or {}
    metadata["labels"] = {**(given.get("labels") or {}), **metadata["labels"]}
    metadata["annotations"] = {**(given.get("annotations") or {}), names.ANNOTATION_ROLE: str(replica.role)}
    if given.get("finalizers"):
        metadata["finalizers"] = given["finalizers"]
    if config_hash is not None:
        metadata["annotations"][names.ANNOTATION_CONFIG_HASH] = config_hash
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(context, replica)}
    if context.gang is not None:
        mark_pod(pod, context.gang, replica.role)
    return pod


def render_service(context: JobContext, replica: Replica) -> JsonObject:
    """Return the headless service of a replica.

    Addresses are published before pods are ready: peers must find each other in order to become ready. Where
    pods have addresses of both families, so has the name: Paddle asks for IPv4, which need not be the first.
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
    """Return the ConfigMap that every pod of the job reads its environment from."""
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


def _pod_spec(context: JobContext, replica: Replica) -> JsonObject:
    name = pod_name(context.job.name, replica)
    pod_spec = _given(context.role_spec(replica.role).template.get("spec") or {})
    first, *others = pod_spec.get("containers") or [{}]
    pod_spec["containers"] = [_training_container(context, replica, first), *others]
    if context.recorder is not None and replica.role is not Role.PS:
        pod_spec = with_recorder(pod_spec, context.recorder, context.job.metadata.key)
    pod_spec.setdefault("restartPolicy", _default_restart_policy(context, replica.role))
    if context.job.status.suspect_nodes:
        pod_spec["affinity"] = _away_from(context.job.status.suspect_nodes, pod_spec.get("affinity") or {})
    return context.network.settings(name) | pod_spec | context.network.forced()


def _away_from(nodes: tuple[str, ...], affinity: JsonObject) -> JsonObject:
    """Prefer other nodes, with everything else that the template prefers or requires."""
    of_nodes = affinity.get("nodeAffinity") or {}
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    preferred = [*(of_nodes.get(_PREFERRED) or ()), {"weight": 100, "preference": {"matchFields": others}}]
    return {**affinity, "nodeAffinity": {**of_nodes, _PREFERRED: preferred}}


def _given(fields: JsonObject) -> JsonObject:
    """Return a copy without nulls, which are the same as absent: a default of ours takes their place."""
    return {name: value for name, value in fields.items() if value is not None}


def _default_restart_policy(context: JobContext, role: Role) -> str:
    """Only a worker that keeps its name can rejoin its peers by itself, and not a meeting that is over."""
    rejoins = role is Role.WORKER and context.network.by_name and not context.spec.with_gloo
    rejoins = rejoins or context.spec.rendezvous is not None
    return "OnFailure" if rejoins else "Never"


def _training_container(context: JobContext, replica: Replica, given: JsonObject) -> JsonObject:
    container = _given(given)
    container["env"] = _merged_env(list(paddle_env.pod_env(context, replica)), given.get("env") or [])
    container["envFrom"] = [*(given.get("envFrom") or ()), {"configMapRef": {"name": context.job.name}}]
    ports = _merged_ports(context, given.get("ports") or [])
    if ports:
        container["ports"] = ports
    container.setdefault("terminationMessagePolicy", names.LAST_WORDS_POLICY)
    return container


def _merged_env(ours: list[JsonObject], users: list[JsonObject]) -> list[JsonObject]:
    """Put ours first, so that the user's may refer to them; the user's value wins where it is safe."""
    theirs = {variable.get("name") for variable in users}
    kept = [one for one in ours if one["name"] in names.PROTECTED_ENV or one["name"] not in theirs]
    given = {one["name"] for one in kept}
    return [*kept, *(variable for variable in users if variable.get("name") not in given)]


def _merged_ports(context: JobContext, users: list[JsonObject]) -> list[JsonObject]:
    """Declare the job's ports unless the user did."""
    declared = {port.get("containerPort") for port in users}
    ours = context.network.ports(context.port)
    return [*users, *(port for port in ours if port["containerPort"] not in declared)]
