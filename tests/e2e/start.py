"""How long a job waits for the operator and the kubelet, with programs that do nothing."""

from __future__ import annotations

import time

from e2e.images import WIDE_AND_DEEP
from e2e.jobs import Body, Space, collective, eventually


def measure(space: Space, name: str) -> tuple[float, float]:
    """Give the seconds from submit to Running, and from the ConfigMap to the last running container."""
    job = space.submit(parameter_server_job(name))
    eventually(lambda: name in space.names("configmaps"), within_seconds=30)
    configured = time.monotonic()
    eventually(lambda: all(runs(pod) for pod in job.pods()), within_seconds=60)
    containers = time.monotonic() - configured
    job.await_phase("Running")
    running = time.monotonic() - job.submitted
    space.kubectl("delete", "pdj", name)
    eventually(lambda: not job.pods(), within_seconds=60)
    return running, containers


def parameter_server_job(name: str) -> Body:
    body = collective(name, WIDE_AND_DEEP, ["sleep", "600"], replicas=2)
    body["spec"]["ps"] = body["spec"]["worker"]
    return body


def runs(pod: Body) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all("running" in status["state"] for status in statuses)
