"""Computes the effective spec: applies defaults and interprets the spellings of existing manifests.

These functions never raise. Unknown text gets the meaning that earlier operators gave it, so that a running
job continues; `validation` reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import (
    CleanPodPolicy,
    Intranet,
    Mode,
    PaddleJob,
    PaddleJobSpec,
    Role,
    RoleSpec,
)

CLEAN_POD_POLICIES = {
    **{policy.casefold(): policy for policy in CleanPodPolicy},
    "onfailed": CleanPodPolicy.ON_FAILURE,
    "nerver": CleanPodPolicy.NEVER,
}
"""Accepted spellings of `cleanPodPolicy`, in lower case."""

INTRANETS = {
    **{intranet.casefold(): intranet for intranet in Intranet},
    "hostnetwork": Intranet.HOST,
}
"""Accepted spellings of `intranet`, in lower case."""

WITH_GLOO_RANGE = range(3)
_GLOO_ON_SERVERS = 2
_LAUNCHERS = ("paddle.distributed.launch", "paddle.distributed.fleet.launch", "fleetrun")


class Rendezvous(msgspec.Struct, frozen=True, gc=False):
    """The etcd through which Paddle's elastic launcher finds its peers."""

    server: str
    """Address such as `10.0.0.9:2379`."""
    nodes: str
    """Minimum and maximum number of nodes, such as `1:4`."""


class EffectiveSpec(msgspec.Struct, frozen=True, gc=False):
    """A spec with all defaults."""

    mode: Mode
    intranet: Intranet
    clean_pod_policy: CleanPodPolicy
    with_gloo: int
    roles: tuple[tuple[Role, RoleSpec], ...]
    rendezvous: Rendezvous | None = None
    """Set if the operator has an etcd for elastic jobs."""

    @property
    def gloo_on_servers(self) -> bool:
        """Whether gloo connects the servers too.

        Paddle's HTTP rendezvous leaves servers out. Both templates have to name a directory instead.
        """
        return _wants_gloo_on_servers(self) and all(
            Env.GLOO_FS_PATH in variable_names(each.template) for _, each in self.roles
        )


class Alias(msgspec.Struct, frozen=True, gc=False):
    """An accepted spelling that differs from the API's."""

    field: str
    """Path of the field as written, such as `spec.cleanPolicy`."""
    written: str
    meaning: str
    """The equivalent field and value, or empty if the written field has no effect."""

    def __str__(self) -> str:
        if not self.meaning:
            return f"{self.field}: {self.written} has no effect with spec.cleanPodPolicy; remove it"
        return f"{self.field}: {self.written} is read as {self.meaning}; write it that way"


def effective(spec: PaddleJobSpec) -> EffectiveSpec:
    """Return the effective spec.

    Like earlier operators, keeps the pods if `cleanPodPolicy` is unknown, uses PodIP if `intranet` is
    unknown, and ignores `withGloo` if it is out of range.
    """
    clean_pod_policy = read_clean_pod_policy(spec.clean_pod_policy or spec.clean_policy)
    return EffectiveSpec(
        mode=spec.mode,
        intranet=read_intranet(spec.intranet) or Intranet.POD_IP,
        clean_pod_policy=clean_pod_policy or CleanPodPolicy.NEVER,
        with_gloo=_with_gloo(spec),
        roles=tuple(spec.roles()),
    )


def effective_of(job: PaddleJob) -> EffectiveSpec:
    """Return a job's effective spec; the pods of a job that does not decode are never deleted."""
    spec = effective(job.spec)
    if not job.undecodable:
        return spec
    return msgspec.structs.replace(spec, clean_pod_policy=CleanPodPolicy.NEVER)


def read_clean_pod_policy(text: str) -> CleanPodPolicy | None:
    """Parse a clean policy; empty is OnCompletion, unknown text is None."""
    return CLEAN_POD_POLICIES.get(text.casefold()) if text else CleanPodPolicy.ON_COMPLETION


def read_intranet(text: str) -> Intranet | None:
    """Parse an intranet; empty is PodIP, unknown text is None."""
    return INTRANETS.get(text.casefold()) if text else Intranet.POD_IP


def aliases(spec: PaddleJobSpec) -> Iterator[Alias]:
    """Yield the aliases in a spec, which its author should replace."""
    if spec.clean_policy and spec.clean_pod_policy:
        yield Alias("spec.cleanPolicy", spec.clean_policy, "")
    elif spec.clean_policy and (policy := read_clean_pod_policy(spec.clean_policy)):
        yield Alias("spec.cleanPolicy", spec.clean_policy, f"cleanPodPolicy: {policy}")
    if (policy := read_clean_pod_policy(spec.clean_pod_policy)) and spec.clean_pod_policy not in ("", policy):
        yield Alias("spec.cleanPodPolicy", spec.clean_pod_policy, f"cleanPodPolicy: {policy}")
    if (intranet := read_intranet(spec.intranet)) and spec.intranet not in ("", intranet):
        yield Alias("spec.intranet", spec.intranet, f"intranet: {intranet}")


def ineffective_fields(spec: PaddleJobSpec) -> Iterator[str]:
    """Yield a message for each field without its full effect."""
    known = effective(spec)
    if _wants_gloo_on_servers(known) and not known.gloo_on_servers:
        yield (
            "spec.withGloo: 2 connects the workers only; to connect the servers too, mount a shared volume "
            f"in both templates and set {Env.GLOO_FS_PATH} to a directory on it"
        )
    if sample_set := spec.sample_set_ref:
        yield (
            f"spec.sampleSetRef: {sample_set.get('name')} has no effect, because SampleSets are not supported"
            f"; mount a persistentVolumeClaim with the data at {sample_set.get('mountPath')} in the templates"
        )
    launched = [role for role, each in known.roles if is_launched(each.template)]
    if spec.restart_policy.parked and launched:
        yield (
            f"spec.restartPolicy.parked has no effect on spec.{launched[0]}, because Paddle's launcher "
            "starts the ranks itself; start the program with python"
        )


def training_container(template: JsonObject) -> JsonObject:
    """Return the template's first container, empty if the template is malformed."""
    pod_spec = template.get("spec")
    containers = pod_spec.get("containers") if isinstance(pod_spec, dict) else None
    first = containers[0] if isinstance(containers, list) and containers else None
    return first if isinstance(first, dict) else {}


def is_launched(template: JsonObject) -> bool:
    """Return whether the command contains Paddle's launcher, which starts a process for each rank."""
    command = command_line(training_container(template))
    return any(launcher in command for launcher in _LAUNCHERS)


def command_line(container: JsonObject) -> str:
    """Return the words of a container's command and arguments, without values of a wrong type."""
    parts = (container.get(field) for field in ("command", "args"))
    words = (word for part in parts if isinstance(part, list) for word in part)
    return " ".join(word for word in words if isinstance(word, str))


def variable_names(template: JsonObject) -> tuple[object, ...]:
    """Return the names of the environment variables of a template's training container."""
    listed = training_container(template).get("env")
    variables = listed if isinstance(listed, list) else ()
    return tuple(each.get("name") for each in variables if isinstance(each, dict))


def _wants_gloo_on_servers(spec: EffectiveSpec) -> bool:
    # Paddle counts heter workers as servers, with the ranks of the servers.
    return spec.with_gloo == _GLOO_ON_SERVERS and spec.mode is Mode.PS


def _with_gloo(spec: PaddleJobSpec) -> int:
    # Gloo's rendezvous is on the first parameter server.
    if not spec.replicas(Role.PS):
        return 0
    return 1 if spec.with_gloo is None or spec.with_gloo not in WITH_GLOO_RANGE else spec.with_gloo
