"""What we count for a pod is what Kubernetes counts, and our amounts are written as it writes them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from core import test_gang_requests as cases
from devcluster import Cluster
from paddlejob.api.quantity import write_all
from paddlejob.core.gang.requests import pod_requests

MERGE = {"content_type": "application/merge-patch+json"}
SUFFIXES = ("m", "", "k", "M", "G", "Ki", "Mi", "Gi")
COUNTED = {name: spec for name, (spec, _) in cases.CASES.items() if spec and "overhead" not in spec}
"""The API server takes an overhead from RuntimeClasses only."""


def runnable(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec that the API server accepts: with names and images."""
    containers = {
        field: [
            {**one, "name": f"{field[0]}{number}", "image": "i"} for number, one in enumerate(spec[field])
        ]
        for field in ("containers", "initContainers")
        if field in spec
    }
    return {**spec, **containers}


def usage(cluster: Cluster, namespace: str, spec: dict[str, Any], resources: list[str]) -> dict[str, str]:
    """Create a pod and return what the API server's own quota counts for it."""
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {f"requests.{resource}": "1000" if "/" in resource else "1Pi" for resource in resources}
    body = {"metadata": {"name": "all"}, "spec": {"hard": hard}}
    cluster.request("POST", quotas, body)
    used = dict.fromkeys(hard, "0")
    cluster.request("PATCH", f"{quotas}/all/status", {"status": {"hard": hard, "used": used}}, **MERGE)
    pod = {"metadata": {"name": "pod"}, "spec": runnable(spec)}
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    counted = cluster.request("GET", f"{quotas}/all")["status"]["used"]
    return {name.removeprefix("requests."): amount for name, amount in counted.items()}


@pytest.mark.parametrize("spec", COUNTED.values(), ids=COUNTED)
def test_a_pods_requests_are_what_a_quota_counts(control_plane: Cluster, namespace: str, spec) -> None:
    ours = write_all(pod_requests(spec))
    if ours:
        assert usage(control_plane, namespace, spec, list(ours)) == ours


@pytest.mark.parametrize("seed", range(12))
def test_sums_are_written_as_the_api_server_writes_them(control_plane: Cluster, namespace: str, seed) -> None:
    rng = random.Random(seed)
    whole = [f"{rng.randint(1, 5000)}{rng.choice(SUFFIXES)}" for _ in range(3)]
    # Finer than a thousandth is rounded in pods.
    broken = [f"{rng.randint(1, 99)}.{rng.randint(0, 999)}{rng.choice(SUFFIXES[1:])}" for _ in range(3)]
    amounts = rng.sample(whole + broken, rng.randint(1, 6))
    spec = {"containers": [cases.container({"memory": amount}) for amount in amounts]}
    assert usage(control_plane, namespace, spec, ["memory"]) == write_all(pod_requests(spec)), amounts
