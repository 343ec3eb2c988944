"""A job's gang: its PodGroup comes before its pods, and goes when the job ends.

A PodGroup that the user made is used as it is, never changed and never deleted. One that the operator made
follows the job: its size, its queue, its end. Pods that are there already are never taken away because of
what becomes of their PodGroup; only pods that are still to be created wait for it.
"""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.pod_group import PodGroup
from paddlejob.core.actions import Action, Create, Delete, Kind, PatchGroup
from paddlejob.core.classify import Roster
from paddlejob.core.gang import GROUP_KINDS, Gang, GangSystem
from paddlejob.core.policy.gang_choice import Choice, choose, scheduler_names
from paddlejob.core.policy.gang_group import (
    bad_news,
    changes_of,
    desired_spec,
    group_manifest,
    queue_obstacle,
)
from paddlejob.core.policy.gang_queue import queue_up
from paddlejob.core.policy.gathering import ALONE, Gathering
from paddlejob.core.snapshot import Snapshot

USERS_GROUP_GRACE_SECONDS = 5.0
"""How long a job that names Volcano's scheduler waits for its author's PodGroup.

The documents put job and PodGroup into one file; whoever creates the second must not find it taken.
"""

OPEN_PHASES = ("Inqueue", "Running")
"""In these phases of its PodGroup Volcano lets pods in; older ones refuse them in any other."""

_UNSEEN = "no scheduler has looked at it yet; see that Volcano's runs"


def gather(world: Snapshot, roster: Roster) -> Gathering:
    """Return what a live job's gang needs."""
    if world.gang_apis is None:
        return ALONE
    choice = _choice(world, roster)
    leftovers = _removals(world, but=choice.kind) if not any(roster.active()) else ()
    if choice.obstacle:
        return Gathering(actions=leftovers, is_open=False, obstacle=choice.obstacle)
    if choice.system is None:
        return Gathering(actions=leftovers)
    gathers = queue_up if choice.system is GangSystem.KUEUE else _gather_group
    gathering = gathers(world, roster, choice)
    return msgspec.structs.replace(gathering, actions=(*leftovers, *gathering.actions))


def removals(world: Snapshot) -> tuple[Action, ...]:
    """Return the deletion of the PodGroup that the operator made."""
    return _removals(world, but=None)


def _removals(world: Snapshot, *, but: Kind | None) -> tuple[Action, ...]:
    return tuple(
        Delete(kind, group.metadata.name, group.metadata.uid)
        for kind in GROUP_KINDS
        if kind is not but
        and (group := world.pod_groups.get(kind)) is not None
        and _is_ours(world, group)
        and group.metadata.deletion_timestamp is None
    )


def _choice(world: Snapshot, roster: Roster) -> Choice:
    """Pods that are there decide for those that are missing; a new attempt is free to choose."""
    assert world.gang_apis is not None
    wish = choose(world.job, world.settings.scheduling, world.gang_apis)
    marks = [
        member.pod.metadata.annotations.get(names.ANNOTATION_GANG, "")
        for member in (*roster.active(), *roster.probes)
    ]
    if not marks:
        return wish
    system = next((system for system in GangSystem if system in marks), None)
    if system is None:
        return Choice()
    kind = world.gang_apis.kind_of(system) or system.kinds[0]
    return Choice(system, kind, may_create=wish.system is system and wish.may_create)


def _gather_group(world: Snapshot, roster: Roster, choice: Choice) -> Gathering:
    assert choice.kind is not None
    assert world.gang_apis is not None
    gang, has_pods, name = _gang(world, choice), any(roster.active()), world.job.name
    if choice.kind not in world.gang_apis.ready:
        return Gathering(gang)
    group = world.pod_groups.get(choice.kind)
    if group is None:
        return _without_group(world, choice, gang, has_pods=has_pods)
    if group.metadata.deletion_timestamp is not None:
        text = f"waiting for PodGroup {name} of the last attempt to be gone"
        return Gathering(gang, is_open=has_pods, obstacle=text)
    if group.metadata.controller_uid not in ("", world.job.metadata.uid):
        text = f"waiting for PodGroup {name}, which belongs to another object, to be gone"
        return Gathering(gang, is_open=has_pods, obstacle=text)
    actions = _adjustments(world, choice.kind, group) if _is_ours(world, group) else ()
    if choice.system is GangSystem.NATIVE:
        return _with_native_group(group, gang, actions)
    return _with_volcano_group(world, group, gang, actions, has_pods=has_pods)


def _with_native_group(group: PodGroup, gang: Gang | None, actions: tuple[Action, ...]) -> Gathering:
    """Kubernetes' own scheduler holds the pods back itself until enough of them are there."""
    name, news = group.metadata.name, bad_news(group)
    is_replaced = any(isinstance(action, Delete) for action in actions)
    return Gathering(
        gang,
        actions,
        is_open=not is_replaced,
        obstacle=f"making PodGroup {name} anew for another number of pods",
        remark=f"waiting for PodGroup {name}: {news}" if news else "",
    )


def _with_volcano_group(
    world: Snapshot, group: PodGroup, gang: Gang | None, actions: tuple[Action, ...], *, has_pods: bool
) -> Gathering:
    phase, news = group.status.phase, bad_news(group)
    is_queued = phase in OPEN_PHASES
    stuck = "" if is_queued else queue_obstacle(group, world.queues)
    words = ": ".join(word for word in (phase, news, stuck) if word) or _UNSEEN
    says = f"waiting for {_described(world, group)}: {words}"
    remark = says if news or not is_queued else ""
    return Gathering(gang, actions, is_open=has_pods or is_queued, obstacle=says, remark=remark)


def _without_group(world: Snapshot, choice: Choice, gang: Gang | None, *, has_pods: bool) -> Gathering:
    assert choice.kind is not None
    name, spec = world.job.name, desired_spec(world.job, choice.kind)
    if not choice.may_create:
        text = (
            f"waiting for PodGroup {name}, which does not exist; create one with minMember "
            f"{spec['minMember']} in this namespace, or give the job a spec.schedulingPolicy"
        )
        return Gathering(gang, is_open=has_pods, obstacle=text)
    left = _grace_left(world)
    if left > 0 and not has_pods:
        text = f"waiting a moment for a PodGroup {name} of the job's author"
        return Gathering(gang, is_open=False, obstacle=text, look_again_in_seconds=left)
    create = Create(choice.kind, name, group_manifest(world.job, choice.kind, spec))
    is_open = has_pods or choice.system is GangSystem.NATIVE
    return Gathering(gang, (create,), is_open=is_open, obstacle=f"waiting for PodGroup {name}: just created")


def _gang(world: Snapshot, choice: Choice) -> Gang | None:
    """A pod that replaces another in a complete gang of Kubernetes' own needs a place for itself alone.

    As a member it would wait for as many peers as the gang once began with, which may be more than are left.
    """
    assert choice.system is not None
    status = world.job.status
    if choice.system is GangSystem.NATIVE and status.attempt > status.base_attempt:
        return None
    policy = world.job.spec.scheduling_policy
    queue, priority = (policy.queue, policy.priority_class) if policy else ("", "")
    return Gang(choice.system, world.job.name, queue, priority)


def _adjustments(world: Snapshot, kind: Kind, group: PodGroup) -> tuple[Action, ...]:
    """Make our own PodGroup follow the job; one of fixed size is replaced while there are no pods."""
    changes = changes_of(desired_spec(world.job, kind), group, kind)
    if not changes:
        return ()
    metadata = group.metadata
    if kind is not Kind.POD_GROUP_V1ALPHA2:
        return (PatchGroup(kind, metadata.name, {"uid": metadata.uid}, "spec", changes),)
    return () if world.pods else (Delete(kind, metadata.name, metadata.uid),)


def _grace_left(world: Snapshot) -> float:
    created = world.job.metadata.creation_timestamp
    if created is None or names.VOLCANO not in scheduler_names(world.job).values():
        return 0.0
    return USERS_GROUP_GRACE_SECONDS - (world.now - created).total_seconds()


def _described(world: Snapshot, group: PodGroup) -> str:
    """Name a PodGroup, and a size that the job can never reach."""
    pods = sum(spec.replicas for _, spec in world.job.spec.roles())
    if group.spec.min_member > pods:
        too_large = f"whose minMember {group.spec.min_member} exceeds the job's {pods} pods"
        return f"PodGroup {group.metadata.name}, {too_large}"
    return f"PodGroup {group.metadata.name}"


def _is_ours(world: Snapshot, group: PodGroup) -> bool:
    return group.metadata.controller_uid == world.job.metadata.uid
