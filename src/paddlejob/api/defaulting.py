"""The effective spec: defaults filled in, and spellings of existing manifests interpreted.

Everything here is total. Text that nobody understands falls back to what earlier operators did with it,
so that a running job goes on; `validation` is what tells its author.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from paddlejob.api.v1 import (
    CleanPodPolicy,
    Intranet,
    Mode,
    PaddleJob,
    PaddleJobSpec,
    Role,
    RoleSpec,
    SuccessPolicy,
)

CLEAN_POD_POLICIES = {
    **{policy.casefold(): policy for policy in CleanPodPolicy},
    "onfailed": CleanPodPolicy.ON_FAILURE,
    "nerver": CleanPodPolicy.NEVER,
}
"""Accepted spellings of `cleanPodPolicy`, lower case."""

INTRANETS = {
    **{intranet.casefold(): intranet for intranet in Intranet},
    "hostnetwork": Intranet.HOST,
}
"""Accepted spellings of `intranet`, lower case."""

WITH_GLOO_RANGE = range(3)


class Rendezvous(msgspec.Struct, frozen=True, gc=False):
    """An etcd through which Paddle's own elastic launcher finds its peers."""

    server: str
    """Such as `10.0.0.9:2379`."""
    nodes: str
    """The fewest and the most, such as `1:4`."""


class EffectiveSpec(msgspec.Struct, frozen=True, gc=False):
    """A spec with nothing left open."""

    mode: Mode
    intranet: Intranet
    clean_pod_policy: CleanPodPolicy
    with_gloo: int
    roles: tuple[tuple[Role, RoleSpec], ...]
    rendezvous: Rendezvous | None = None
    """Set where the platform has an etcd for elastic jobs."""


class Alias(msgspec.Struct, frozen=True, gc=False):
    """A spelling that is accepted although it is not the one of the API."""

    field: str
    """Path of the field as written, such as `spec.cleanPolicy`."""
    written: str
    meaning: str
    """The field and value that say the same, or empty where what was written has no effect."""

    def __str__(self) -> str:
        if not self.meaning:
            return f"{self.field}: {self.written} has no effect beside spec.cleanPodPolicy; remove it"
        return f"{self.field}: {self.written} is read as {self.meaning}; please write it that way"


def effective(spec: PaddleJobSpec) -> EffectiveSpec:
    """Return what a spec means.

    Guarantees: never raises. An unknown `cleanPodPolicy` keeps the pods, an unknown `intranet` is PodIP,
    a `withGloo` out of range counts as absent; these are what earlier operators did.
    """
    return EffectiveSpec(
        mode=spec.mode,
        intranet=read_intranet(spec.intranet) or Intranet.POD_IP,
        clean_pod_policy=read_clean_pod_policy(_written_policy(spec)) or CleanPodPolicy.NEVER,
        with_gloo=_with_gloo(spec),
        roles=tuple(spec.roles()),
    )


def effective_of(job: PaddleJob) -> EffectiveSpec:
    """Return what a job's spec means; of one that cannot be read, that its pods are not ours to delete."""
    meant = effective(job.spec)
    if not job.undecodable:
        return meant
    return msgspec.structs.replace(meant, clean_pod_policy=CleanPodPolicy.NEVER)


def read_clean_pod_policy(text: str) -> CleanPodPolicy | None:
    """Return the policy that a text means, or None for a text that means nothing; absent is OnCompletion."""
    return CLEAN_POD_POLICIES.get(text.casefold()) if text else CleanPodPolicy.ON_COMPLETION


def read_intranet(text: str) -> Intranet | None:
    """Return the network that a text means, or None for a text that means nothing; absent is PodIP."""
    return INTRANETS.get(text.casefold()) if text else Intranet.POD_IP


def read_success_policy(text: str) -> SuccessPolicy | None:
    """Return the policy that a text means, or None for a text that means nothing; absent is AllWorkers."""
    if not text:
        return SuccessPolicy.ALL_WORKERS
    return next((policy for policy in SuccessPolicy if policy == text), None)


def aliases(spec: PaddleJobSpec) -> tuple[Alias, ...]:
    """Return what the author of a spec should write differently, although it is understood."""
    return tuple(_aliases(spec))


def _aliases(spec: PaddleJobSpec) -> Iterator[Alias]:
    if spec.clean_policy and spec.clean_pod_policy:
        yield Alias("spec.cleanPolicy", spec.clean_policy, "")
    elif spec.clean_policy and (policy := read_clean_pod_policy(spec.clean_policy)):
        yield Alias("spec.cleanPolicy", spec.clean_policy, f"cleanPodPolicy: {policy}")
    if (policy := read_clean_pod_policy(spec.clean_pod_policy)) and spec.clean_pod_policy not in ("", policy):
        yield Alias("spec.cleanPodPolicy", spec.clean_pod_policy, f"cleanPodPolicy: {policy}")
    if (intranet := read_intranet(spec.intranet)) and spec.intranet not in ("", intranet):
        yield Alias("spec.intranet", spec.intranet, f"intranet: {intranet}")


def _written_policy(spec: PaddleJobSpec) -> str:
    return spec.clean_pod_policy or spec.clean_policy


def _with_gloo(spec: PaddleJobSpec) -> int:
    """Gloo meets at the first parameter server, so there is none without one."""
    if not spec.replicas(Role.PS):
        return 0
    return 1 if spec.with_gloo is None or spec.with_gloo not in WITH_GLOO_RANGE else spec.with_gloo
