"""With how many workers an elastic job goes on: with all it was asked for, or with what it can get.

A job that cannot have all of its workers goes on with fewer after a while. Pods for the missing ones wait in
the wings as probes: they belong to the next attempt, whose key the ConfigMap does not have, so they cannot
start; but the scheduler gives them a place as soon as there is one, and then the job grows.
"""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec, Rendezvous
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Mode, PaddleJobSpec, Phase, Role, RoleSpec
from paddlejob.core import explain
from paddlejob.core.classify import PodState, Roster
from paddlejob.core.policy import backoff
from paddlejob.core.policy.formation import Reform, is_complete, is_formed
from paddlejob.core.snapshot import Snapshot


class WorkerRange(msgspec.Struct, frozen=True):
    """The fewest and the most workers that a job trains with."""

    least: int
    most: int


def worker_range(spec: PaddleJobSpec) -> WorkerRange | None:
    """Return the bounds of an elastic job, None for a job of fixed size.

    `elastic` switches it on, and so do `worker.requests` and `worker.limits`, which are the bounds.
    """
    worker = spec.worker
    if worker is None or (spec.elastic is None and not worker.requests and not worker.limits):
        return None
    return WorkerRange(worker.requests or 1, max(worker.limits or 0, worker.replicas))


def with_workers(spec: EffectiveSpec, workers: int) -> EffectiveSpec:
    """Return a spec that asks for so many workers, if that is fewer; 0 is as many as the user wants."""

    def reduced(role: Role, role_spec: RoleSpec) -> RoleSpec:
        if role is not Role.WORKER or not 0 < workers < role_spec.replicas:
            return role_spec
        return msgspec.structs.replace(role_spec, replicas=workers)

    return msgspec.structs.replace(
        spec, roles=tuple((role, reduced(role, each)) for role, each in spec.roles)
    )


def with_rendezvous(spec: EffectiveSpec, given: PaddleJobSpec, etcd_server: str) -> EffectiveSpec:
    """Leave an elastic collective job to Paddle's own launcher where there is an etcd for it.

    The launcher restarts the training processes when pods come and go, so no pod depends on another one.
    """
    bounds = worker_range(given)
    if not etcd_server or bounds is None or spec.mode not in (Mode.COLLECTIVE, Mode.SINGLE):
        return spec
    nodes = f"{bounds.least}:{bounds.most}"
    return msgspec.structs.replace(spec, rendezvous=Rendezvous(etcd_server, nodes))


def reform_elastically(world: Snapshot, roster: Roster) -> tuple[Reform | None, float | None]:
    """Return how to grow or shrink, and when to look again."""
    bounds = worker_range(world.job.spec)
    if bounds is None or world.settings.etcd_server:
        return None, None
    if roster.probes:
        return _growth(world, roster)
    waits_for_creation = bool(roster.vacant) and not world.failures
    if is_formed(world) or is_complete(roster) or waits_for_creation:
        return None, None
    return _shrinkage(world, roster, bounds.least)


def _growth(world: Snapshot, roster: Roster) -> tuple[Reform | None, float | None]:
    """Take in workers that found a place, not at once where the size has just changed several times."""
    found = sum(bool(probe.pod.status.pod_ip) and not probe.is_leaving for probe in roster.probes)
    if not found:
        return None, None
    status = world.job.status
    in_a_row = backoff.restarts_in_a_row(status, world.now)
    delay = backoff.delay_seconds(world.job.spec.restart_policy, in_a_row, first_at_once=True)
    left = delay - (world.now - (status.attempt_time or world.now)).total_seconds()
    if left > 0:
        return None, left
    workers = roster.desired(Role.WORKER) + found
    full = workers >= world.job.spec.replicas(Role.WORKER)
    message = f"growing back to {workers} workers"
    return Reform(Phase.SCALING, Reason.GROWN, message, workers=0 if full else workers), None


def _shrinkage(world: Snapshot, roster: Roster, least: int) -> tuple[Reform | None, float | None]:
    """Give up, after a while, on workers that the cluster has no room for."""
    homeless = (PodState.PENDING, PodState.FAILED, PodState.UNKNOWN)
    placed = {member.seat for member in roster.active(Role.WORKER) if member.state not in homeless}
    affordable = len(placed | roster.finished)
    if not least <= affordable < roster.desired(Role.WORKER):
        return None, None
    status = world.job.status
    moments = (world.job.metadata.creation_timestamp, status.attempt_time, status.resume_time)
    began = max((moment for moment in moments if moment), default=world.now)
    left = world.settings.elastic_wait_seconds - (world.now - began).total_seconds()
    if left > 0:
        return None, left
    held_up = explain.first_obstacle(roster.active(Role.WORKER))
    why = f": {held_up[0].seat}: {held_up[1]}" if held_up else ""
    message = f"going on with {affordable} of {roster.desired(Role.WORKER)} workers{why}"
    return Reform(Phase.SCALING, Reason.SHRUNK, message, workers=affordable), None
