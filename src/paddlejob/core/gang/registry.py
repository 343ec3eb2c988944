"""The gang schedulers that the operator supports. A new one needs an adapter module and a line here."""

from __future__ import annotations

from typing import Protocol

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import Role
from paddlejob.core.actions import Action, Delete, Kind
from paddlejob.core.gang.choose import Choice, choose
from paddlejob.core.gang.kueue import Kueue
from paddlejob.core.gang.model import GROUP_KINDS, Gang, GangSystem, Placement
from paddlejob.core.gang.native import Native
from paddlejob.core.gang.state import ALONE, GangState
from paddlejob.core.gang.volcano import Volcano
from paddlejob.core.pod_set import PodSet
from paddlejob.core.snapshot import Snapshot


class Adapter(Protocol):
    """The interface of a gang scheduler."""

    def reconcile(self, snapshot: Snapshot, pod_set: PodSet, choice: Choice) -> GangState:
        """Return the state of the gang's object, and whether pods may be created."""

    def is_outgrown(self, snapshot: Snapshot, pod_set: PodSet) -> bool:
        """Return whether the gang's object makes pods wait for others that will not exist."""

    def mark_pod(self, pod: JsonObject, gang: Gang, role: Role) -> None:
        """Assign a pod's manifest to the gang in the scheduler's format."""


ADAPTERS: dict[GangSystem, Adapter] = {
    GangSystem.VOLCANO: Volcano(),
    GangSystem.NATIVE: Native(),
    GangSystem.KUEUE: Kueue(),
}


def reconcile_gang(snapshot: Snapshot, pod_set: PodSet) -> GangState:
    """Return the state of the gang of an unfinished job."""
    if snapshot.gang_apis is None:
        return ALONE
    choice = _choice(snapshot, pod_set)
    leftovers = _removals(snapshot, but=choice.kind) if not any(pod_set.active) else ()
    if choice.obstacle:
        return GangState(actions=leftovers, admitted=False, obstacle=choice.obstacle)
    if choice.system is None:
        return GangState(actions=leftovers)
    state = ADAPTERS[choice.system].reconcile(snapshot, pod_set, choice)
    return msgspec.structs.replace(state, actions=(*leftovers, *state.actions))


def is_outgrown(snapshot: Snapshot, pod_set: PodSet) -> bool:
    """Return whether pods wait in a gang that no longer matches and cannot be patched."""
    return any(adapter.is_outgrown(snapshot, pod_set) for adapter in ADAPTERS.values())


def mark_pod(pod: JsonObject, gang: Gang, role: Role) -> None:
    """Add a pod's manifest to a gang, for its scheduler and for later reconciles."""
    spec = pod["spec"]
    pod["metadata"]["annotations"][names.ANNOTATION_GANG] = str(gang.system)
    ADAPTERS[gang.system].mark_pod(pod, gang, role)
    if gang.priority_class:
        spec.setdefault("priorityClassName", gang.priority_class)
    placement = gang.placements.get(role, Placement())
    if placement.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **placement.node_selector}
    if placement.tolerations:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *placement.tolerations]


def removals(snapshot: Snapshot) -> tuple[Action, ...]:
    """Return the deletions of the gang objects that the operator created."""
    return _removals(snapshot, but=None)


def _removals(snapshot: Snapshot, *, but: Kind | None) -> tuple[Action, ...]:
    found = ((kind, snapshot.pod_groups.get(kind)) for kind in GROUP_KINDS if kind is not but)
    return tuple(
        Delete(kind, group.metadata.name, group.metadata.uid)
        for kind, group in found
        if group is not None and _is_ours(snapshot, group) and group.metadata.deletion_timestamp is None
    )


def _choice(snapshot: Snapshot, pod_set: PodSet) -> Choice:
    """Choose the system of the existing pods; only an attempt without pods may choose another."""
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


def _is_ours(snapshot: Snapshot, group: PodGroup) -> bool:
    return group.metadata.controller_uid == snapshot.job.metadata.uid
