"""Which changes of cached objects can change a decision."""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import HasMeta
from paddlejob.api.pod import Pod, PodStatus
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.pod_set import has_ended


class Trigger(msgspec.Struct, frozen=True):
    """Why a job is reconciled."""

    initial: bool
    """The object existed when the operator started."""
    child: bool = False
    """An object of the job changed, not the job itself."""
    idle: bool = False
    """No field changed that a decision depends on; counts may have changed."""


def needs_reconcile(old: PaddleJob, new: PaddleJob) -> bool:
    """Return whether a job changed in a field that decisions depend on, unlike our own status writes."""
    return (
        old.metadata.generation != new.metadata.generation
        or old.metadata.uid != new.metadata.uid
        or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        or old.metadata.finalizers != new.metadata.finalizers
        or _kueue_queue(old) != _kueue_queue(new)
    )


def _kueue_queue(job: PaddleJob) -> str | None:
    """Return the only label that decisions depend on; labels do not change the generation."""
    return job.metadata.labels.get(names.LABEL_KUEUE_QUEUE)


def is_idle(old: HasMeta | None, new: HasMeta | None) -> bool:
    """Return whether no decision depends on a change of a child, such as our own write or scheduling."""
    if new is None or new.metadata.deletion_timestamp is not None:
        return False
    if not isinstance(new, Pod):
        return True
    before = old.status if isinstance(old, Pod) else PodStatus()
    now = new.status
    same = (before.pod_ip, before.container_statuses) == (now.pod_ip, now.container_statuses)
    return same and now.phase in (before.phase, "Pending")


def only_progressed(old: HasMeta | None, new: Pod) -> bool:
    """Return whether a pod reached a later startup stage and nothing else changed."""
    before = startup_stage(old) if isinstance(old, Pod) else 0
    containers = new.status.container_statuses
    failed = any(each.state.terminated or each.restart_count for each in containers)
    return before < startup_stage(new) and new.status.phase in ("Pending", "Running") and not failed


def startup_stage(pod: Pod) -> int:
    """Return 1 if a pod has an address, 2 if it runs, 3 if it is ready, 4 if it has ended, else 0."""
    status = pod.status
    if has_ended(pod):
        return 4
    if status.phase != "Running":
        return int(bool(status.pod_ip))
    return 2 + all(each.ready for each in status.container_statuses)
