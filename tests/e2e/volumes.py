"""Volumes of the shipped manifests, as directories of this machine: the node shares its files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.images import ROOT
from e2e.jobs import Body, Space


def example_data(name: str) -> Path:
    """Give the directory with an example's data, which is made when it is not there."""
    command = [sys.executable, str(ROOT / "scripts" / "example_data.py"), name]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def claimed(name: str, claim: str, directory: Path) -> list[Body]:
    """Give a volume that is a directory, and a claim for it that all pods may share."""
    size = {"storage": "10Gi"}
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": "slow"}
    volume = {"capacity": size, "hostPath": {"path": str(directory)}, **shared}
    bound = {"resources": {"requests": size}, "volumeName": name, **shared}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": bound},
    ]


@contextmanager
def provided(space: Space, bodies: list[Body]) -> Iterator[None]:
    """Create a volume and its claim; volumes have no namespace that would take them along."""
    space.create(*bodies)
    try:
        yield
    finally:
        space.kubectl("delete", "persistentvolume", bodies[0]["metadata"]["name"], "--wait=false")
