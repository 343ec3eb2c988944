"""Which changes of objects cause a reconcile, and how soon."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.api.meta import HasMeta
from paddlejob.api.pod import Pod, PodStatus
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.pod_set import has_ended


def needs_reconcile(old: PaddleJob, new: PaddleJob) -> bool:
    """Tell a change that a decision may depend on from the echo of our own status writes."""
    return (
        old.metadata.generation != new.metadata.generation
        or old.metadata.uid != new.metadata.uid
        or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        or old.metadata.finalizers != new.metadata.finalizers
        or _kueue_queue(old) != _kueue_queue(new)
    )


def _kueue_queue(job: PaddleJob) -> str | None:
    """Return the only label that decides anything; a change of labels does not change the generation."""
    return job.metadata.labels.get(names.LABEL_KUEUE_QUEUE)


def is_idle(old: HasMeta | None, new: HasMeta | None) -> bool:
    """Tell whether a change of a child decides nothing: an echo of our own write, or the scheduler's work."""
    if new is None or new.metadata.deletion_timestamp is not None:
        return False
    if not isinstance(new, Pod):
        return True
    before = old.status if isinstance(old, Pod) else PodStatus()
    now = new.status
    same = (before.pod_ip, before.container_statuses) == (now.pod_ip, now.container_statuses)
    return same and now.phase in (before.phase, "Pending")


def only_progressed(old: HasMeta | None, new: Pod) -> bool:
    """Tell whether a pod has come further on its way to being ready, and nothing else happened to it."""
    before = progress(old) if isinstance(old, Pod) else 0
    containers = new.status.container_statuses
    has_ended = any(each.state.terminated or each.restart_count for each in containers)
    return before < progress(new) and new.status.phase in ("Pending", "Running") and not has_ended


def progress(pod: Pod) -> int:
    """Return how far a pod is on its way: it has an address, it runs, it is ready, or it has ended."""
    status = pod.status
    if has_ended(pod):
        return 4
    if status.phase != "Running":
        return int(bool(status.pod_ip))
    return 2 + all(each.ready for each in status.container_statuses)
