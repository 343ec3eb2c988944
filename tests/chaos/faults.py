"""Faults on a real node, drawn from a seed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.containers import Container, running_containers
from devcluster.control_plane.plane import ControlPlane
from e2e.network import disconnect

RESTARTED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "containerd")
"""Programs of the cluster that are killed with SIGKILL, and started again after a while."""
KINDS = (*RESTARTED, "operator", "rank", "pod", "network")
PAUSE_SECONDS = (2.0, 8.0)
AWAY_SECONDS = (0.0, 6.0)


@dataclass(frozen=True)
class Fault:
    """One thing that breaks."""

    kind: str
    after_seconds: float
    """Since the one before has been repaired."""
    away_seconds: float
    """Duration of a fault; the kubelet restarts a killed process of a pod."""
    choice: float
    """Which pod, as a fraction of those there are."""

    def __str__(self) -> str:
        """Return it as the log shows it."""
        return f"{self.kind} for {self.away_seconds:.1f} s"


def plan(seed: int) -> Iterator[Fault]:
    """Yield faults without end; every kind comes once before one comes again."""
    rng = random.Random(seed)
    while True:
        for kind in rng.sample(KINDS, len(KINDS)):
            yield Fault(kind, rng.uniform(*PAUSE_SECONDS), rng.uniform(*AWAY_SECONDS), rng.random())


class Breaker:
    """Carries faults out."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace

    def carry_out(self, fault: Fault) -> str:
        """Break something and repair it; return its name, empty if there was nothing to break."""
        if fault.kind in RESTARTED:
            self._plane.kill(fault.kind)
            time.sleep(fault.away_seconds)
            self._plane.launch([fault.kind])
            return fault.kind
        if fault.kind == "operator":
            found = self._containers("paddle-system")
            return _kill(found[0]) if found else ""
        found = self._containers(self._namespace)
        if not found:
            return ""
        chosen = found[int(fault.choice * len(found))]
        match fault.kind:
            case "rank":
                return _kill(chosen)
            case "pod":
                self._plane.request("DELETE", f"/api/v1/namespaces/{chosen.namespace}/pods/{chosen.pod}")
                return chosen.pod
            case _:
                return self._cut_off(chosen, fault.away_seconds)

    def _containers(self, namespace: str) -> list[Container]:
        pods = self._plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return running_containers(self._plane.directory, pods)

    def _cut_off(self, container: Container, seconds: float) -> str:
        try:
            restore = disconnect(self._plane.directory, container.pid)
        except (subprocess.CalledProcessError, ValueError):
            return ""  # the pod ended in the meantime
        time.sleep(seconds)
        restore()
        return container.pod


def _kill(container: Container) -> str:
    try:
        os.kill(container.pid, signal.SIGKILL)
    except ProcessLookupError:
        return ""
    return container.pod
