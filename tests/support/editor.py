"""A user whose only right is the role `edit` in one namespace."""

from __future__ import annotations

from pathlib import Path

from devcluster import Cluster
from tests.support.waiting import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def editor_kubeconfig(cluster: Cluster, namespace: str) -> Path:
    """Create the user and return its kubeconfig; the roles that extend `edit` to PaddleJobs must be there."""
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "eve"}})
    binding = {
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "eve", "namespace": namespace}],
    }
    cluster.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)

    def is_aggregated() -> bool:
        role = cluster.request("GET", f"{RBAC}/clusterroles/edit")
        return any("paddlejobs" in rule.get("resources", ()) for rule in role["rules"] or ())

    eventually(is_aggregated)
    return cluster.service_account_kubeconfig(namespace, "eve")
