"""Ranks, endpoints and the environment that PaddlePaddle reads.

docs/reference/environment.md lists the variables and their readers. Variables that all pods of a job share go
into its ConfigMap, the others into the pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec, Rendezvous
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import ATTEMPT_GUARD, Env
from paddlejob.api.v1 import Mode, PaddleJob, Role, RoleSpec
from paddlejob.core.accelerators import CUSTOM_DEVICES, device_type, several_cards
from paddlejob.core.attempts.spares import job_mark, spare_keys
from paddlejob.core.gang.model import Gang
from paddlejob.core.network import Network, network_of
from paddlejob.core.pod_set import PodSet, Replica, is_spare, pod_name, rank_of
from paddlejob.core.recorder import Recorder

TRAINING_ROLES: Mapping[Role, str] = {Role.PS: "PSERVER", Role.WORKER: "TRAINER", Role.HETER: "HETER_TRAINER"}

_ENDPOINT_LISTS: Mapping[Role, str] = {
    Role.PS: Env.PSERVER_ENDPOINTS,
    Role.WORKER: Env.TRAINER_ENDPOINTS,
    Role.HETER: Env.ALL_HETER_ENDPOINTS,
}


_RANKS = (Env.TRAINER_ID, Env.RANK, Env.GLOBAL_RANK)
"""The variables of a worker of a collective job that are its rank."""

PORT_BLOCKS = 100
"""Number of port blocks that restarts in place use in turn."""


class JobContext(msgspec.Struct, frozen=True):
    """Everything that names, endpoints and environment depend on."""

    job: PaddleJob
    spec: EffectiveSpec
    port: int
    pods_have_ipv6: bool = False
    attempt: int = 0
    gang: Gang | None = None
    recorder: Recorder | None = None
    """Set if the job's workers report their progress."""
    keeps_launcher_logs: bool = False
    """Whether the files in which Paddle's launcher logs its processes are kept at a known place."""

    @property
    def network(self) -> Network:
        return network_of(self.spec.intranet, pods_have_ipv6=self.pods_have_ipv6)

    @property
    def knows_hosts_beforehand(self) -> bool:
        """Whether the environment of the pods is known before they have addresses."""
        return self.network.by_name or self.spec.rendezvous is not None

    @property
    def process_port(self) -> int:
        """The first port of the current programs.

        Each restart in place moves on by a block, so that a process of an earlier attempt on an unreachable
        node cannot join. Pods on the host network are not restarted in place: their ports are reserved.
        """
        status = self.job.status
        restarts = max(0, status.process_attempt - status.base_attempt)
        if self.network.has_host_ports:
            return self.port
        return self.port + names.PORTS_PER_POD * (restarts % PORT_BLOCKS)

    def role_spec(self, role: Role) -> RoleSpec:
        """Return the spec of a role that has replicas."""
        return next(spec for name, spec in self.spec.roles if name is role)


def endpoint(host: str, port: int) -> str:
    """Join host and port as Paddle joins POD_IP and PADDLE_PORT to find itself in a list."""
    return f"{host}:{port}"


def endpoints(hosts: Sequence[str], port: int) -> str:
    """Return a comma-separated list of endpoints with the same port."""
    return ",".join(endpoint(host, port) for host in hosts)


def gloo_env(level: int, server: str, port: int) -> dict[str, str]:
    """Return the variables of gloo's HTTP rendezvous at the first server, which connects trainers only."""
    return {
        Env.WITH_GLOO: str(level),
        Env.GLOO_RENDEZVOUS: names.GLOO_RENDEZVOUS_HTTP,
        Env.GLOO_HTTP_ENDPOINT: endpoint(server, port),
    }


def service_host(context: JobContext, replica: Replica) -> str:
    """Return the name of a pod's own service.

    It has a dot, because Paddle's launcher does not accept a host without a dot as an address.
    """
    return f"{pod_name(context.job.name, replica)}.{context.job.metadata.namespace}"


def hosts_of(
    context: JobContext, pod_set: PodSet, published: Mapping[str, str] = {}
) -> dict[Role, list[str]] | None:
    """Return the hosts of all pods by role and rank, None while a pod has no address.

    If the pod of a finished worker is gone, its host comes from the `published` environment: the others still
    count it, but do not call it. If another pod has that address now, the service name takes its place.
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
            known = host or published_host(published, replica.role, pod_set.rank(replica))
            host = known if known and known not in taken else service_host(context, replica)
        if not host:
            return None
        hosts.setdefault(replica.role, []).append(host)
    return hosts


def published_host(data: Mapping[str, str], role: Role, rank: int) -> str:
    """Return the host of a rank in a ConfigMap's data, empty if it has none."""
    listed = data.get(_ENDPOINT_LISTS[role], "").split(",")
    return listed[rank].rpartition(":")[0] if rank < len(listed) else ""


def attempt_key(job: PaddleJob, attempt: int) -> str:
    """Return the ConfigMap key without which no container of an attempt can start.

    A pod must not start with the addresses of an earlier attempt, or of a deleted job with the same name. Its
    environment refers to this key, which the ConfigMap has only when its addresses are right.
    """
    return f"{ATTEMPT_GUARD}{attempt}_{job_mark(job)}"


def config_data(
    context: JobContext,
    hosts: Mapping[Role, Sequence[str]],
    attempts: AbstractSet[int] = frozenset({0}),
    published: Mapping[str, str] = {},
) -> dict[str, str]:
    """Return the environment that all pods share; `attempts` are the attempts of the pods."""
    spec = context.spec
    data = {
        Env.PADDLE_PORT: str(context.process_port),
        Env.TRAINER_PORTS_NUM: str(names.PORTS_PER_POD),
        Env.JOB_ID: f"{context.job.metadata.namespace}-{context.job.name}",
        **{attempt_key(context.job, attempt): str(attempt) for attempt in sorted(attempts)},
    }
    if context.job.status.process_attempt > context.job.status.base_attempt:
        data[Env.PROCESS_ATTEMPT] = str(context.job.status.process_attempt)
    if spec.rendezvous is not None:
        return data | _launcher_data(context, spec.rendezvous)
    workers = hosts[Role.WORKER]
    data |= {
        Env.TRAINER_ENDPOINTS: endpoints(workers, context.process_port),
        Env.TRAINERS: ",".join(workers),
        Env.TRAINERS_NUM: str(len(workers)),
    }
    if spec.mode in (Mode.COLLECTIVE, Mode.SINGLE):
        data[Env.MASTER] = endpoint(workers[0], context.process_port + names.MASTER_PORT_OFFSET)
        data[Env.NNODES] = str(len(workers))
        return data
    servers = hosts[Role.PS]
    data[Env.PSERVER_ENDPOINTS] = endpoints(servers, context.process_port)
    if spec.with_gloo:
        data |= gloo_env(spec.with_gloo, servers[0], context.process_port + names.GLOO_PORT_OFFSET)
    if spec.with_gloo and _gloo_on_servers(context, attempts, published):
        # Files of earlier attempts stay in the directory; the prefix keeps them apart.
        prefix = f"{data[Env.JOB_ID]}-{job_mark(context.job)}-{context.job.status.first_process_attempt}"
        data |= {Env.GLOO_RENDEZVOUS: names.GLOO_RENDEZVOUS_FILE, Env.SYS_JOB_ID: prefix}
    if spec.mode is Mode.HETER:
        data[Env.ALL_HETER_ENDPOINTS] = endpoints(hosts[Role.HETER], context.process_port)
    return data


def _gloo_on_servers(context: JobContext, attempts: AbstractSet[int], published: Mapping[str, str]) -> bool:
    """Return whether gloo connects the servers.

    Pods that already have the ConfigMap keep its rendezvous, because a change of it would restart them. Their
    templates may have changed since, or an earlier operator created them.
    """
    has_begun = any(attempt_key(context.job, attempt) in published for attempt in attempts)
    return Env.SYS_JOB_ID in published if has_begun else context.spec.gloo_on_servers


def _launcher_data(context: JobContext, rendezvous: Rendezvous) -> dict[str, str]:
    """Return the variables of Paddle's elastic launcher, which must not see endpoints or fixed ranks.

    The job id contains the UID, because the etcd keeps the data of earlier jobs with the same name.
    """
    return {
        Env.JOB_ID: f"{context.job.metadata.namespace}-{context.job.name}-{job_mark(context.job)}",
        Env.MASTER: f"etcd://{rendezvous.server}",
        Env.NNODES: rendezvous.nodes,
        Env.ELASTIC_LEVEL: "1",
        Env.ELASTIC_TIMEOUT: "30",
        # The launcher counts every change of membership as a restart; the operator limits restarts itself.
        Env.MAX_RESTART: "10000",
    }


class DesiredConfig(msgspec.Struct, frozen=True):
    """Data of the ConfigMap that connects the pods; None while an address is missing."""

    data: dict[str, str] | None = None
    fingerprint: str | None = None


def desired_config_of(context: JobContext, pod_set: PodSet, published: Mapping[str, str]) -> DesiredConfig:
    """Return the ConfigMap as it should be now.

    It has the keys of the attempts of the active pods. The key of the newest attempt is added before its pods
    exist only if their names are known beforehand.
    """
    hosts = hosts_of(context, pod_set, published)
    if hosts is None:
        return DesiredConfig()
    attempts = {member.attempt for member in pod_set.active if not is_spare(member.pod)}
    if context.knows_hosts_beforehand:
        attempts.add(context.attempt)
    data = config_data(context, hosts, attempts, published) | _former_spares(context, pod_set)
    return DesiredConfig(data, config_hash(data))


def _former_spares(context: JobContext, pod_set: PodSet) -> dict[str, str]:
    """Return the keys that let the spares start that have a rank now."""
    data = {}
    for member in pod_set.active:
        if is_spare(member.pod):
            attempt, rank = spare_keys(context.job, member.replica, member.attempt)
            data[attempt] = str(max(member.attempt, context.job.status.process_attempt))
            data[rank] = str(pod_set.rank(member.replica))
    return data


def config_hash(data: Mapping[str, str]) -> str:
    text = "\n".join(f"{key}={data[key]}" for key in sorted(data))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pod_env(context: JobContext, replica: Replica, *, is_spare: bool = False) -> Iterator[JsonObject]:
    """Yield the variables of one pod; later ones may refer to earlier ones."""
    yield _own_address(context, replica)
    role = TRAINING_ROLES[replica.role]
    literal = {Env.TRAINING_ROLE: role, Env.PADDLE_TRAINING_ROLE: role, "PYTHONUNBUFFERED": "1"}
    if context.spec.rendezvous is None:
        literal |= _rank_env(context, replica)
        if is_spare:
            # Its rank and its port are not known yet.
            literal |= {Env.CURRENT_ENDPOINT: f"$({Env.POD_IP}):$({Env.PADDLE_PORT})"}
            literal = {name: text for name, text in literal.items() if name not in _RANKS}
    else:
        # The launcher assigns ranks; this wins over the --rank 0 of paddleformers-cli.
        literal[Env.RANK] = "-1"
    is_collective = context.spec.mode in (Mode.COLLECTIVE, Mode.SINGLE)
    if is_collective:
        literal |= _device_env(context)
    for name, value in literal.items():
        yield {"name": name, "value": value}
    if is_collective and context.spec.rendezvous is None:
        yield _from_config(Env.GLOBAL_SIZE, context, Env.TRAINERS_NUM)
    attempt, rank = attempt_key(context.job, context.attempt), ""
    if is_spare:
        attempt, rank = spare_keys(context.job, replica, context.attempt)
    yield _from_config(Env.ATTEMPT, context, attempt)
    if rank:
        yield from (_from_config(name, context, rank) for name in _RANKS)
    if context.spec.mode is Mode.HETER and replica.role is not Role.PS:
        yield from _stage_env(context, replica)


def environment_of(data: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in a ConfigMap's data, without the keys that hold back containers."""
    return {name: value for name, value in data.items() if not name.startswith(ATTEMPT_GUARD)}


def process_env(data: Mapping[str, str], role: Role, rank: int, attempt: int) -> dict[str, str]:
    """Return the environment of a program that restarts in place, from the data of the job's ConfigMap.

    It has the variables that refer to the ConfigMap, and the ones that contain a port.
    """
    listed = data.get(_ENDPOINT_LISTS[role], "").split(",")
    env = environment_of(data)
    env[Env.ATTEMPT] = str(attempt)
    if rank < len(listed):
        env[Env.CURRENT_ENDPOINT] = listed[rank]
    if Env.MASTER in data:
        env[Env.GLOBAL_SIZE] = data[Env.TRAINERS_NUM]
    if Env.ALL_HETER_ENDPOINTS in data and role is Role.WORKER:
        env[Env.NEXT_HETER_ENDPOINTS] = data[Env.ALL_HETER_ENDPOINTS]
    if Env.ALL_HETER_ENDPOINTS in data and role is Role.HETER:
        env[Env.PREVIOUS_HETER_ENDPOINTS] = data[Env.TRAINER_ENDPOINTS]
    return env


def _rank_env(context: JobContext, replica: Replica) -> dict[str, str]:
    """Return the rank of a pod."""
    rank = str(rank_of(context.job.status, replica))
    env = {
        Env.TRAINER_ID: rank,
        Env.CURRENT_ENDPOINT: endpoint(f"$({Env.POD_IP})", context.process_port),
    }
    if context.spec.mode in (Mode.COLLECTIVE, Mode.SINGLE):
        env |= {
            Env.RANK: rank,
            Env.GLOBAL_RANK: rank,
            Env.LOCAL_SIZE: "1",
            Env.LOCAL_RANK: "0",
            Env.RANK_IN_NODE: "0",
        }
    return env


def _device_env(context: JobContext) -> dict[str, str]:
    """Return the variables about the devices and ports of a collective job's processes.

    The launcher sets the devices again for each process. A pod with several cards gets none: Paddle then
    refuses to start a single process that would leave the other cards idle.
    """
    worker, env = context.role_spec(Role.WORKER), {}
    kind = device_type(worker)
    if kind != "cpu" and not several_cards(worker):
        env[Env.SELECTED_DEVICES.format(kind)] = "0"
    if kind in CUSTOM_DEVICES.values():
        env |= {Env.DISTRI_BACKEND: "xccl", Env.XCCL_BACKEND: kind}
    elif kind == "cpu":
        env[Env.DISTRI_BACKEND] = "gloo"
    if context.network.has_host_ports:
        first, last = context.port + names.LAUNCHER_PORT_OFFSET, context.port + names.PORTS_PER_POD - 1
        env[Env.PORT_RANGE] = f"{first}:{last}"
    return env


def _own_address(context: JobContext, replica: Replica) -> JsonObject:
    """Return POD_IP as in the list of servers: Paddle looks itself up there by text."""
    if context.network.by_name:
        return {"name": Env.POD_IP, "value": service_host(context, replica)}
    return {"name": Env.POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def _stage_env(context: JobContext, replica: Replica) -> Iterator[JsonObject]:
    """Yield the stage of a heter job's pod: workers are the first stage, heter pods the second."""
    is_worker = replica.role is Role.WORKER
    counts = [role.replicas for name, role in context.spec.roles if name in (Role.WORKER, Role.HETER)]
    yield {"name": Env.STAGE_ID, "value": "1" if is_worker else "2"}
    yield {"name": Env.STAGE_NUM, "value": "2"}
    yield {"name": Env.STAGE_TRAINERS_NUM, "value": str(counts)}
    yield {"name": Env.HETER_DEVICE_TYPE, "value": device_type(context.role_spec(replica.role))}
    following, preceding = Env.NEXT_HETER_ENDPOINTS, Env.PREVIOUS_HETER_ENDPOINTS
    if is_worker:
        yield _from_config(following, context, Env.ALL_HETER_ENDPOINTS)
        yield {"name": preceding, "value": ""}
    else:
        yield {"name": following, "value": ""}
        yield _from_config(preceding, context, Env.TRAINER_ENDPOINTS)


def _from_config(name: str, context: JobContext, key: str) -> JsonObject:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": context.job.name, "key": key}}}
