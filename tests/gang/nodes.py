"""Nodes on paper: all that a scheduler sees of a node is its object."""

from __future__ import annotations

import time
from typing import Any

from devcluster import ControlPlane

MERGE = {"content_type": "application/merge-patch+json"}


class Nodes:
    """Nodes without a kubelet, removed at the end of a test."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.names: list[str] = []

    def add(self, cpu: int, *, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """Add a node that is ready, and return its name."""
        name = f"node-{time.monotonic_ns()}"
        metadata = {"name": name, "labels": labels or {}}
        self.plane.request("POST", "/api/v1/nodes", {"metadata": metadata})
        self.names.append(name)
        room = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
        status = {"capacity": room, "allocatable": room, "conditions": ready}
        self.plane.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, **MERGE)
        # A new node is tainted until its controller has seen it ready; there is none here.
        self.plane.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None, **spec}}, **MERGE)
        return name

    def remove_all(self) -> None:
        """Remove the nodes that were added."""
        for name in self.names:
            self.plane.request("DELETE", f"/api/v1/nodes/{name}")
