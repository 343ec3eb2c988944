"""Chooses the gang scheduler of a job: by the job itself, then by the operator's settings."""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.actions import Kind
from paddlejob.core.gang.model import GangApis, GangSystem, Scheduling

_SYSTEMS = {
    GangSystem.VOLCANO: "Volcano (scheduling.volcano.sh/v1beta1)",
    GangSystem.NATIVE: "PodGroups of Kubernetes itself (scheduling.k8s.io/v1beta1 or v1alpha2)",
    GangSystem.KUEUE: "Kueue (kueue.x-k8s.io/v1beta2 or v1beta1)",
}


class Choice(msgspec.Struct, frozen=True):
    """The chosen system, or the reason why there is none."""

    system: GangSystem | None = None
    kind: Kind | None = None
    may_create: bool = True
    """Whether the operator creates the group if the user has not."""
    obstacle: str = ""
    """Why a requested gang is not possible; the pods wait until it is."""


NO_GANG = Choice()


def choose(job: PaddleJob, scheduling: Scheduling, apis: GangApis) -> Choice:
    """Return the gang scheduler for the pods of a job that has no pods yet.

    1. A job with the label of a Kueue queue waits in that queue.
    2. If the template of any role names Volcano's scheduler, all roles use Volcano.
    3. `--scheduling=volcano` does the same for jobs that name no other scheduler.
    4. `spec.schedulingPolicy` asks for a gang of any scheduler that the cluster has.
    5. `--scheduling=native` and `auto` apply to all other jobs.
    """
    if job.metadata.labels.get(names.LABEL_KUEUE_QUEUE):
        return _need(GangSystem.KUEUE, apis, f"remove the label {names.LABEL_KUEUE_QUEUE}")
    return _choose_scheduler(job, scheduling, apis)


def _choose_scheduler(job: PaddleJob, scheduling: Scheduling, apis: GangApis) -> Choice:
    schedulers = scheduler_names(job)
    named = frozenset(schedulers.values())
    asked = job.spec.scheduling_policy is not None
    if names.VOLCANO in named:
        if len(named) > 1:
            return Choice(obstacle=_disagreement(schedulers))
        by_operator = asked or scheduling in (Scheduling.VOLCANO, Scheduling.AUTO)
        return _need(GangSystem.VOLCANO, apis, "remove schedulerName: volcano", may_create=by_operator)
    if scheduling is Scheduling.VOLCANO and not named:
        return _need(GangSystem.VOLCANO, apis, "start the operator without --scheduling=volcano")
    if asked or scheduling is Scheduling.AUTO:
        found = _first(_suitable(scheduling, named), apis)
        is_lost = asked and found is NO_GANG
        return Choice(obstacle=_nothing_suitable(schedulers)) if is_lost else found
    if scheduling is Scheduling.NATIVE and len(named) <= 1:
        return _need(GangSystem.NATIVE, apis, "start the operator without --scheduling=native")
    return NO_GANG


def relevant_systems(job: PaddleJob, scheduling: Scheduling) -> tuple[GangSystem, ...]:
    """Return the systems that must be discovered before a decision about a job."""
    if job.metadata.labels.get(names.LABEL_KUEUE_QUEUE):
        return (GangSystem.KUEUE,)
    if names.VOLCANO in scheduler_names(job).values():
        return (GangSystem.VOLCANO,)
    if job.spec.scheduling_policy is not None or scheduling is Scheduling.AUTO:
        return (GangSystem.VOLCANO, GangSystem.NATIVE)
    return {
        Scheduling.VOLCANO: (GangSystem.VOLCANO,),
        Scheduling.NATIVE: (GangSystem.NATIVE,),
    }.get(scheduling, ())


def scheduler_names(job: PaddleJob) -> dict[Role, str]:
    """Return the scheduler names in the templates by role, without roles that name none."""
    pod_specs = {role: spec.template.get("spec") for role, spec in job.spec.roles()}
    given = {
        role: pod_spec.get("schedulerName")
        for role, pod_spec in pod_specs.items()
        if isinstance(pod_spec, dict)
    }
    return {role: name for role, name in given.items() if name and isinstance(name, str)}


def _suitable(scheduling: Scheduling, named: frozenset[str]) -> tuple[GangSystem, ...]:
    """Return suitable systems: Volcano needs its own scheduler, Kubernetes' gangs any one for all pods."""
    volcano = (GangSystem.VOLCANO,) if not named else ()
    native = (GangSystem.NATIVE,) if len(named) <= 1 else ()
    return (*native, *volcano) if scheduling is Scheduling.NATIVE else (*volcano, *native)


def _first(systems: tuple[GangSystem, ...], apis: GangApis) -> Choice:
    """Return the first system that the cluster has; wait while a preferred one is being discovered."""
    for system in systems:
        kind = apis.kind_of(system)
        if kind is not None:
            return Choice(system, kind)
        if apis.is_loading(system):
            return Choice(obstacle=f"checking whether the cluster serves {_SYSTEMS[system]}")
    trouble = next((apis.trouble[kind] for kind in _kinds(systems) if kind in apis.trouble), "")
    return Choice(obstacle=trouble) if trouble else NO_GANG


def _need(system: GangSystem, apis: GangApis, way_out: str, *, may_create: bool = True) -> Choice:
    found = _first((system,), apis)
    if found.system is not None:
        return msgspec.structs.replace(found, may_create=may_create)
    missing = f"this cluster does not serve {_SYSTEMS[system]}; install it, or {way_out}"
    return Choice(obstacle=found.obstacle or missing)


def _kinds(systems: tuple[GangSystem, ...]) -> tuple[Kind, ...]:
    return tuple(kind for system in systems for kind in system.kinds)


def _disagreement(schedulers: dict[Role, str]) -> str:
    written = ", ".join(f"{role} names {name}" for role, name in schedulers.items())
    return f"a gang needs one scheduler, but {written}; name volcano on the worker only"


def _nothing_suitable(schedulers: dict[Role, str]) -> str:
    if schedulers:
        written = ", ".join(f"{role} names scheduler {name}" for role, name in schedulers.items())
        return (
            f"spec.schedulingPolicy asks for a gang, but {written}, which schedules no gangs here; "
            "remove schedulerName or spec.schedulingPolicy"
        )
    return (
        "spec.schedulingPolicy asks for a gang, but this cluster serves neither "
        f"{_SYSTEMS[GangSystem.VOLCANO]} nor {_SYSTEMS[GangSystem.NATIVE]}; "
        "install Volcano, or remove spec.schedulingPolicy"
    )
