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
from paddlejob.core.gang import GROUP_KINDS, Gang, GangSystem
from paddlejob.core.pod_set import PodSet
from paddlejob.core.policy.gang_choice import Choice, choose, scheduler_names
from paddlejob.core.policy.gang_group import (
    changes_of,
    desired_spec,
    group_manifest,
    queue_obstacle,
    unschedulable_reason,
)
from paddlejob.core.policy.gang_queue import reconcile_workload
from paddlejob.core.policy.gang_state import ALONE, GangState
from paddlejob.core.snapshot import Snapshot

USERS_GROUP_GRACE_SECONDS = 5.0
"""How long a job that names Volcano's scheduler waits for its author's PodGroup.

The documents put job and PodGroup into one file; whoever creates the second must not find it taken.
"""

OPEN_PHASES = ("Inqueue", "Running")
"""In these phases of its PodGroup Volcano lets pods in; older ones refuse them in any other."""

_UNSEEN = "no scheduler has looked at it yet; see that Volcano's runs"


def reconcile_gang(snapshot: Snapshot, pod_set: PodSet) -> GangState:
    """Return what a live job's gang needs."""
    if snapshot.gang_apis is None:
        return ALONE
    choice = _choice(snapshot, pod_set)
    leftovers = _removals(snapshot, but=choice.kind) if not any(pod_set.active) else ()
    if choice.obstacle:
        return GangState(actions=leftovers, admitted=False, obstacle=choice.obstacle)
    if choice.system is None:
        return GangState(actions=leftovers)
    gathers = reconcile_workload if choice.system is GangSystem.KUEUE else _gather_group
    gang_state = gathers(snapshot, pod_set, choice)
    return msgspec.structs.replace(gang_state, actions=(*leftovers, *gang_state.actions))


def removals(snapshot: Snapshot) -> tuple[Action, ...]:
    """Return the deletion of the PodGroup that the operator made."""
    return _removals(snapshot, but=None)


def _removals(snapshot: Snapshot, *, but: Kind | None) -> tuple[Action, ...]:
    return tuple(
        Delete(kind, group.metadata.name, group.metadata.uid)
        for kind in GROUP_KINDS
        if kind is not but
        and (group := snapshot.pod_groups.get(kind)) is not None
        and _is_ours(snapshot, group)
        and group.metadata.deletion_timestamp is None
    )


def _choice(snapshot: Snapshot, pod_set: PodSet) -> Choice:
    """Pods that are there decide for those that are missing; a new attempt is free to choose."""
    assert snapshot.gang_apis is not None
    wish = choose(snapshot.job, snapshot.settings.scheduling, snapshot.gang_apis)
    marks = [
        member.pod.metadata.annotations.get(names.ANNOTATION_GANG, "")
        for member in (*pod_set.active, *pod_set.standby)
    ]
    if not marks:
        return wish
    system = next((system for system in GangSystem if system in marks), None)
    if system is None:
        return Choice()
    kind = snapshot.gang_apis.kind_of(system) or system.kinds[0]
    return Choice(system, kind, may_create=wish.system is system and wish.may_create)


def _gather_group(snapshot: Snapshot, pod_set: PodSet, choice: Choice) -> GangState:
    assert choice.kind is not None
    assert snapshot.gang_apis is not None
    gang, has_pods, name = _gang(snapshot, choice), any(pod_set.active), snapshot.job.name
    if choice.kind not in snapshot.gang_apis.ready:
        return GangState(gang)
    group = snapshot.pod_groups.get(choice.kind)
    if group is None:
        return _without_group(snapshot, choice, gang, has_pods=has_pods)
    if group.metadata.deletion_timestamp is not None:
        text = f"waiting for PodGroup {name} of the last attempt to be gone"
        return GangState(gang, admitted=has_pods, obstacle=text)
    if group.metadata.controller_uid not in ("", snapshot.job.metadata.uid):
        text = f"waiting for PodGroup {name}, which belongs to another object, to be gone"
        return GangState(gang, admitted=has_pods, obstacle=text)
    actions = _adjustments(snapshot, choice.kind, group) if _is_ours(snapshot, group) else ()
    if choice.system is GangSystem.NATIVE:
        return _with_native_group(group, gang, actions)
    return _with_volcano_group(snapshot, group, gang, actions, has_pods=has_pods)


def _with_native_group(group: PodGroup, gang: Gang | None, actions: tuple[Action, ...]) -> GangState:
    """Kubernetes' own scheduler holds the pods back itself until enough of them are there."""
    name, events = group.metadata.name, unschedulable_reason(group)
    is_replaced = any(isinstance(action, Delete) for action in actions)
    return GangState(
        gang,
        actions,
        admitted=not is_replaced,
        obstacle=f"making PodGroup {name} anew for another number of pods",
        remark=f"waiting for PodGroup {name}: {events}" if events else "",
    )


def _with_volcano_group(
    snapshot: Snapshot, group: PodGroup, gang: Gang | None, actions: tuple[Action, ...], *, has_pods: bool
) -> GangState:
    phase, events = group.status.phase, unschedulable_reason(group)
    is_queued = phase in OPEN_PHASES
    stuck = "" if is_queued else queue_obstacle(group, snapshot.queues)
    words = ": ".join(word for word in (phase, events, stuck) if word) or _UNSEEN
    says = f"waiting for {_described(snapshot, group)}: {words}"
    remark = says if events or not is_queued else ""
    return GangState(gang, actions, admitted=has_pods or is_queued, obstacle=says, remark=remark)


def _without_group(snapshot: Snapshot, choice: Choice, gang: Gang | None, *, has_pods: bool) -> GangState:
    assert choice.kind is not None
    name, spec = snapshot.job.name, desired_spec(snapshot.job, choice.kind)
    if not choice.may_create:
        text = (
            f"waiting for PodGroup {name}, which does not exist; create one with minMember "
            f"{spec['minMember']} in this namespace, or give the job a spec.schedulingPolicy"
        )
        return GangState(gang, admitted=has_pods, obstacle=text)
    left = _grace_left(snapshot)
    if left > 0 and not has_pods:
        text = f"waiting a moment for a PodGroup {name} of the job's author"
        return GangState(gang, admitted=False, obstacle=text, look_again_in_seconds=left)
    create = Create(choice.kind, name, group_manifest(snapshot.job, choice.kind, spec))
    admitted = has_pods or choice.system is GangSystem.NATIVE
    return GangState(
        gang, (create,), admitted=admitted, obstacle=f"waiting for PodGroup {name}: just created"
    )


def _gang(snapshot: Snapshot, choice: Choice) -> Gang | None:
    """A pod that replaces another in a complete gang of Kubernetes' own needs a place for itself alone.

    As a member it would wait for as many peers as the gang once began with, which may be more than are left.
    """
    assert choice.system is not None
    status = snapshot.job.status
    if choice.system is GangSystem.NATIVE and status.attempt > status.base_attempt:
        return None
    policy = snapshot.job.spec.scheduling_policy
    queue, priority = (policy.queue, policy.priority_class) if policy else ("", "")
    return Gang(choice.system, snapshot.job.name, queue, priority)


def _adjustments(snapshot: Snapshot, kind: Kind, group: PodGroup) -> tuple[Action, ...]:
    """Make our own PodGroup follow the job; one of fixed size is replaced while there are no pods."""
    changes = changes_of(desired_spec(snapshot.job, kind), group, kind)
    if not changes:
        return ()
    metadata = group.metadata
    if kind is not Kind.POD_GROUP_V1ALPHA2:
        return (PatchGroup(kind, metadata.name, {"uid": metadata.uid}, "spec", changes),)
    return () if snapshot.pods else (Delete(kind, metadata.name, metadata.uid),)


def _grace_left(snapshot: Snapshot) -> float:
    created = snapshot.job.metadata.creation_timestamp
    if created is None or names.VOLCANO not in scheduler_names(snapshot.job).values():
        return 0.0
    return USERS_GROUP_GRACE_SECONDS - (snapshot.now - created).total_seconds()


def _described(snapshot: Snapshot, group: PodGroup) -> str:
    """Name a PodGroup, and a size that the job can never reach."""
    pods = sum(spec.replicas for _, spec in snapshot.job.spec.roles())
    if group.spec.min_member > pods:
        too_large = f"whose minMember {group.spec.min_member} exceeds the job's {pods} pods"
        return f"PodGroup {group.metadata.name}, {too_large}"
    return f"PodGroup {group.metadata.name}"


def _is_ours(snapshot: Snapshot, group: PodGroup) -> bool:
    return group.metadata.controller_uid == snapshot.job.metadata.uid
