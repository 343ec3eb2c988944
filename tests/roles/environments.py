"""The environments that the core gives the pods of a job, resolved as a kubelet would."""

from __future__ import annotations

from paddlejob.core.actions import Create, Kind, Plan
from paddlejob.kubelet import CONFIG_MAP, Source, Sources, resolve
from simkube.build import SnapshotBuilder


def environments(built: SnapshotBuilder) -> dict[str, dict[str, str]]:
    """Return every pod's environment by its replica; `built` is the snapshot before the first reconcile."""
    first = built.plan()
    second = built.pods_with_addresses().plan()
    data = (_manifests(first, Kind.CONFIG_MAP) or _manifests(second, Kind.CONFIG_MAP))[0]["data"]
    config = {Source(CONFIG_MAP, "demo"): {key: value.encode() for key, value in data.items()}}
    addresses = {pod.metadata.name: pod.status.pod_ip for pod in built.build().pods}
    return {
        pod["metadata"]["name"].removeprefix("demo-"): resolve(
            pod["spec"]["containers"][0],
            Sources({**pod, "status": {"podIP": addresses[pod["metadata"]["name"]]}}, config.get),
        )
        for pod in _manifests(first, Kind.POD)
    }


def _manifests(plan: Plan, kind: Kind) -> list[dict]:
    actions = (action for stage in plan.stages for action in stage)
    return [action.manifest for action in actions if isinstance(action, Create) and action.kind is kind]
