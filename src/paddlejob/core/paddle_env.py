"""Who a pod is and where its peers are: ranks, endpoints and the environment that PaddlePaddle reads.

The variables and what reads them in each mode are listed in docs/reference/environment.md. What all pods of
a job share goes into its ConfigMap; what differs from pod to pod goes into the pod.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec, Rendezvous
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import ATTEMPT_GUARD, Env
from paddlejob.api.v1 import Mode, PaddleJob, Role, RoleSpec
from paddlejob.core.accelerators import accelerators
from paddlejob.core.gang.model import Gang
from paddlejob.core.network import Network, network_of
from paddlejob.core.pod_set import PodSet, Replica, pod_name
from paddlejob.core.recording.recorder import Recorder

TRAINING_ROLES: Mapping[Role, str] = {Role.PS: "PSERVER", Role.WORKER: "TRAINER", Role.HETER: "HETER_TRAINER"}

_ENDPOINT_LISTS: Mapping[Role, str] = {
    Role.PS: Env.PSERVER_ENDPOINTS,
    Role.WORKER: Env.TRAINER_ENDPOINTS,
    Role.HETER: Env.ALL_HETER_ENDPOINTS,
}


class JobContext(msgspec.Struct, frozen=True):
    """A job and the port it was given: all that names, endpoints and environment follow from."""

    job: PaddleJob
    spec: EffectiveSpec
    port: int
    pods_have_ipv6: bool = False
    attempt: int = 0
    gang: Gang | None = None
    recorder: Recorder | None = None
    """Set where the job's workers report how far they are."""

    @property
    def network(self) -> Network:
        """How the pods reach each other."""
        return network_of(self.spec.intranet, pods_have_ipv6=self.pods_have_ipv6)

    @property
    def knows_hosts_beforehand(self) -> bool:
        """Whether the environment of the pods is known before they have addresses."""
        return self.network.by_name or self.spec.rendezvous is not None

    def role_spec(self, role: Role) -> RoleSpec:
        """Return what the user wants of a role that has replicas."""
        return next(spec for name, spec in self.spec.roles if name is role)


def endpoint(host: str, port: int) -> str:
    """Join host and port just as Paddle joins POD_IP and PADDLE_PORT, to find itself in a list as text."""
    return f"{host}:{port}"


def endpoints(hosts: Sequence[str], port: int) -> str:
    """Return the same port at many hosts, in their order."""
    return ",".join(endpoint(host, port) for host in hosts)


def gloo_env(level: int, server: str, port: int) -> dict[str, str]:
    """Return what makes servers and trainers meet over gloo at a port of the first server."""
    return {
        Env.WITH_GLOO: str(level),
        Env.GLOO_RENDEZVOUS: names.GLOO_RENDEZVOUS_HTTP,
        Env.GLOO_HTTP_ENDPOINT: endpoint(server, port),
    }


def service_host(context: JobContext, replica: Replica) -> str:
    """Return the name of a pod's own service.

    It has a dot, because Paddle's launcher takes a name without one for no address and never becomes master.
    """
    return f"{pod_name(context.job.name, replica)}.{context.job.metadata.namespace}"


def hosts_of(
    context: JobContext, pod_set: PodSet, published: Mapping[str, str] = {}
) -> dict[Role, list[str]] | None:
    """Return every pod's host by role and rank, or None while some pod has no address yet.

    If the pod of a finished worker is gone, its host is the one in the `published` environment: the others
    still count it, but do not call it. If another pod has got that address since, it is a mere name.
    """
    living = (member for member in pod_set.active if member.replica not in pod_set.finished)
    taken = {member.pod.status.pod_ip for member in living}
    hosts: dict[Role, list[str]] = {}
    if context.spec.rendezvous is not None:
        return hosts
    by_name = context.network.by_name
    for replica in pod_set.wanted:
        if by_name:
            host = service_host(context, replica)
        else:
            member = pod_set.members.get(replica)
            host = member.pod.status.pod_ip if member and not member.is_leaving else ""
        if replica in pod_set.finished:
            known = host or published_host(published, replica)
            host = known if known and known not in taken else service_host(context, replica)
        if not host:
            return None
        hosts.setdefault(replica.role, []).append(host)
    return hosts


def published_host(data: Mapping[str, str], replica: Replica) -> str:
    """Return the host of a pod that a ConfigMap tells its peers, empty where it tells none."""
    listed = data.get(_ENDPOINT_LISTS[replica.role], "").split(",")
    return listed[replica.index].rpartition(":")[0] if replica.index < len(listed) else ""


def attempt_key(job: PaddleJob, attempt: int) -> str:
    """Return the key without which no container of an attempt can start.

    A pod of a new attempt must not start with the addresses of the old one, nor with those of an earlier job
    of the same name: its environment refers to this key, which the ConfigMap has only once it is right.
    """
    return f"{ATTEMPT_GUARD}{attempt}_{_mark(job)}"


def _mark(job: PaddleJob) -> str:
    """Return a short name of this very job, by its UID."""
    return f"{zlib.crc32(job.metadata.uid.encode()):08X}"


def config_data(
    context: JobContext, hosts: Mapping[Role, Sequence[str]], attempts: AbstractSet[int] = frozenset({0})
) -> dict[str, str]:
    """Return the environment that all pods share; `attempts` are those that the pods were made in."""
    spec = context.spec
    data = {
        Env.PADDLE_PORT: str(context.port),
        Env.TRAINER_PORTS_NUM: str(names.PORTS_PER_POD),
        Env.JOB_ID: f"{context.job.metadata.namespace}-{context.job.name}",
        **{attempt_key(context.job, attempt): str(attempt) for attempt in sorted(attempts)},
    }
    if spec.rendezvous is not None:
        return data | _launcher_data(context, spec.rendezvous)
    workers = hosts[Role.WORKER]
    data |= {
        Env.TRAINER_ENDPOINTS: endpoints(workers, context.port),
        Env.TRAINERS: ",".join(workers),
        Env.TRAINERS_NUM: str(len(workers)),
    }
    if spec.mode in (Mode.COLLECTIVE, Mode.SINGLE):
        data[Env.MASTER] = endpoint(workers[0], context.port + names.MASTER_PORT_OFFSET)
        data[Env.NNODES] = str(len(workers))
        return data
    servers = hosts[Role.PS]
    data[Env.PSERVER_ENDPOINTS] = endpoints(servers, context.port)
    if spec.with_gloo:
        data |= gloo_env(spec.with_gloo, servers[0], context.port + names.GLOO_PORT_OFFSET)
    if spec.mode is Mode.HETER:
        data[Env.ALL_HETER_ENDPOINTS] = endpoints(hosts[Role.HETER], context.port)
    return data


def _launcher_data(context: JobContext, rendezvous: Rendezvous) -> dict[str, str]:
    """Return what Paddle's elastic launcher reads; it must not see a list of endpoints, nor fixed ranks.

    The id is that of this very job: an etcd remembers what was there under a name before.
    """
    return {
        Env.JOB_ID: f"{context.job.metadata.namespace}-{context.job.name}-{_mark(context.job)}",
        Env.MASTER: f"etcd://{rendezvous.server}",
        Env.NNODES: rendezvous.nodes,
        Env.ELASTIC_LEVEL: "1",
        Env.ELASTIC_TIMEOUT: "30",
        # To the launcher every change of membership is a restart; how many there may be is ours to say.
        Env.MAX_RESTART: "10000",
    }


class DesiredConfig(msgspec.Struct, frozen=True):
    """The ConfigMap that connects the pods; empty while an address is missing."""

    data: dict[str, str] | None = None
    fingerprint: str | None = None


def desired_config_of(context: JobContext, pod_set: PodSet, published: Mapping[str, str]) -> DesiredConfig:
    """Return the ConfigMap as it should be now.

    It lets the pods start whose addresses it has. A pod of the newest attempt that is not to be seen yet is
    not among them, unless it has a name that is known beforehand.
    """
    hosts = hosts_of(context, pod_set, published)
    if hosts is None:
        return DesiredConfig()
    attempts = {member.attempt for member in pod_set.active}
    if context.knows_hosts_beforehand:
        attempts.add(context.attempt)
    data = config_data(context, hosts, attempts)
    return DesiredConfig(data, config_hash(data))


def config_hash(data: Mapping[str, str]) -> str:
    """Return a short fingerprint of a ConfigMap's data."""
    text = "\n".join(f"{key}={data[key]}" for key in sorted(data))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pod_env(context: JobContext, replica: Replica) -> Iterator[JsonObject]:
    """Yield the variables of one pod, in an order in which later ones may refer to earlier ones."""
    yield _own_address(context, replica)
    role = TRAINING_ROLES[replica.role]
    literal = {Env.TRAINING_ROLE: role, Env.PADDLE_TRAINING_ROLE: role, "PYTHONUNBUFFERED": "1"}
    if context.spec.rendezvous is None:
        literal |= _rank_env(context, replica)
    for name, value in literal.items():
        yield {"name": name, "value": value}
    yield _from_config(Env.ATTEMPT, context, attempt_key(context.job, context.attempt))
    if context.spec.mode is Mode.HETER and replica.role is not Role.PS:
        yield from _stage_env(context, replica)


def _rank_env(context: JobContext, replica: Replica) -> dict[str, str]:
    """Return a pod's place among its peers, where that is fixed beforehand."""
    env = {
        Env.TRAINER_ID: str(replica.index),
        Env.CURRENT_ENDPOINT: endpoint(f"$({Env.POD_IP})", context.port),
    }
    if context.spec.mode in (Mode.COLLECTIVE, Mode.SINGLE):
        env[Env.RANK] = str(replica.index)
        if not accelerators(context.role_spec(replica.role)):
            env[Env.DISTRI_BACKEND] = "gloo"
    return env


def _own_address(context: JobContext, replica: Replica) -> JsonObject:
    """Paddle looks POD_IP:PADDLE_PORT up in the list of servers as text, so it is spelled as there."""
    if context.network.by_name:
        return {"name": Env.POD_IP, "value": service_host(context, replica)}
    return {"name": Env.POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def _stage_env(context: JobContext, replica: Replica) -> Iterator[JsonObject]:
    """Heter jobs are a pipeline of two stages: the workers are the first, the heter pods the second."""
    is_worker = replica.role is Role.WORKER
    counts = [role.replicas for name, role in context.spec.roles if name in (Role.WORKER, Role.HETER)]
    yield {"name": Env.STAGE_ID, "value": "1" if is_worker else "2"}
    yield {"name": Env.STAGE_NUM, "value": "2"}
    yield {"name": Env.STAGE_TRAINERS_NUM, "value": str(counts)}
    yield {"name": Env.HETER_DEVICE_TYPE, "value": _device_type(context.role_spec(replica.role))}
    following, preceding = Env.NEXT_HETER_ENDPOINTS, Env.PREVIOUS_HETER_ENDPOINTS
    if is_worker:
        yield _from_config(following, context, Env.ALL_HETER_ENDPOINTS)
        yield {"name": preceding, "value": ""}
    else:
        yield {"name": following, "value": ""}
        yield _from_config(preceding, context, Env.TRAINER_ENDPOINTS)


def _from_config(name: str, context: JobContext, key: str) -> JsonObject:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": context.job.name, "key": key}}}


def _device_type(role_spec: RoleSpec) -> str:
    asked = accelerators(role_spec)
    if not asked:
        return "cpu"
    return "xpu" if any("xpu" in name or "baidu" in name or "kunlun" in name for name in asked) else "gpu"
