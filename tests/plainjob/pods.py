"""Pods of a Job, in one line each."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlejob.api.meta import ObjectMeta, OwnerReference
from paddlejob.api.pod import (
    ContainerState,
    ContainerStatus,
    ContainerWaiting,
    Pod,
    PodAddress,
    PodCondition,
    PodStatus,
)
from paddlejob.plainjob.rendezvous.peers import INDEX_ANNOTATION


def pod(
    name,
    address="",
    phase="Running",
    *,
    second="",
    index=None,
    job="job-1",
    deleted=False,
    waiting="",
    unscheduled="",
) -> Pod:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid=job, controller=True)
    meta = ObjectMeta(
        name=name,
        annotations={} if index is None else {INDEX_ANNOTATION: str(index)},
        owner_references=(owner,),
        deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if deleted else None,
    )
    containers = (
        (ContainerStatus(state=ContainerState(waiting=ContainerWaiting(reason=waiting))),) if waiting else ()
    )
    conditions = (
        (PodCondition(type="PodScheduled", status="False", message=unscheduled),) if unscheduled else ()
    )
    status = PodStatus(
        phase=phase,
        pod_ip=address,
        pod_ips=tuple(PodAddress(one) for one in (address, second) if one),
        container_statuses=containers,
        conditions=conditions,
    )
    return Pod(metadata=meta, status=status)
