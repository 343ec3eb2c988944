"""What the tests of an installation share: the shipped files, and a way to apply them as people do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from devcluster import Cluster

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CRD = DEPLOY / "v1" / "crd.yaml"
OPERATOR = DEPLOY / "v1" / "operator.yaml"
NAMESPACED = DEPLOY / "v1" / "operator-namespaced.yaml"
NAMESPACE = "paddle-system"
ACCOUNT = "paddle-manager-sa"


def objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def apply(cluster: Cluster, *files: Path) -> None:
    """Apply files and wait until PaddleJobs can be created."""
    cluster.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
    cluster.kubectl("wait", "--for=condition=Established", "crd/paddlejobs.batch.paddlepaddle.org")


def account_kubeconfig(cluster: Cluster) -> Path:
    """Return a kubeconfig that acts as the operator's service account, with all its rights and no other."""
    return cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
