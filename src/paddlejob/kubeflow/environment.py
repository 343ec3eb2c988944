"""The variables for Paddle that a pod has under Kubeflow, those that it has here, and how they differ."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import effective
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.paddle_env import JobContext, config_data, service_host
from paddlejob.core.pod_set import Replica, pod_name
from paddlejob.core.render import render_pod
from paddlejob.kubeflow.convert import CONTAINER, TYPES
from paddlejob.kubelet import environment as kubelet

DEFAULT_PORT = 36543
PORT_NAME = "master"
_TYPE_OF = {role: kind for kind, role in TYPES.items()}
MOST_RANKS = 2
"""The first rank of a role may be special; all others are alike."""


class Difference(msgspec.Struct, frozen=True):
    """A variable that a pod has on one side only, or with another value. None means that it is not set."""

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
    """Yield each kind of pod of a job of Kubeflow and of the job it was converted to, and how they differ."""
    job = _job(manifest)
    for role, spec in job.spec.roles():
        for index in range(min(spec.replicas, MOST_RANKS)):
            replica = Replica(role, index)
            before, after = _kubeflow(document, replica), _here(job, replica)
            found = [
                Difference(variable, before.get(variable), after.get(variable))
                for variable in sorted({*before, *after})
                if before.get(variable) != after.get(variable)
            ]
            yield pod_name(job.name, replica), found


def _job(manifest: JsonObject) -> PaddleJob:
    """Return the job without the variables that its templates have themselves, which come over unchanged."""
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
    """Return what Kubeflow's training operator 1.9 sets."""
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
    """Return what stands for the address of a pod, which it has when it runs."""
    return f"<IP of {name}-{role}-{index}>"
