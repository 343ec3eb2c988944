"""Whatever a tenant can write into an object concerns that object alone."""

from __future__ import annotations

import pytest

from kube.deep_json import DEPTHS, DeepTransport, deep
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.testing.build import job
from tests.operator.small_cluster import Cluster, on_a_cluster


async def _submit_too_deep(cluster: Cluster, levels: int) -> None:
    cluster.client = Client(DeepTransport(cluster.server, "operator", None))
    manifest = job(name="deep").worker(1).manifest
    manifest = {**manifest, "metadata": {"name": "deep", "namespace": "default"}}
    manifest["spec"]["worker"]["template"]["spec"]["x"] = deep(levels)
    cluster.server.create(PADDLE_JOBS, manifest)


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_job_that_is_nested_too_deeply_says_so_and_harms_no_other(levels):
    async def act(cluster: Cluster) -> None:
        await _submit_too_deep(cluster, levels)
        await cluster.submit(job(name="innocent").worker(1))
        await cluster.operate(30)
        assert [pod["metadata"]["name"] for pod in cluster.server.objects(PODS)] == ["innocent-worker-0"]
        assert cluster.status("deep")["reason"] == "InvalidSpec"
        assert "nested more than 100 levels deep" in cluster.status("deep")["message"]
        writes = len(list(cluster.server.log.select(verb="patch", resource="paddlejobs/status")))
        await cluster.operate(600)
        assert len(list(cluster.server.log.select(verb="patch", resource="paddlejobs/status"))) == writes

        spec = {"worker": {"template": {"spec": {"x": None}}}}
        cluster.server.patch(PADDLE_JOBS, "default", "deep", {"spec": spec})
        await cluster.operate(30)
        assert cluster.server.get(PODS, "default", "deep-worker-0") is not None

    on_a_cluster(act)


def test_a_job_that_has_ended_stays_ended_when_it_becomes_too_deep():
    async def act(cluster: Cluster) -> None:
        await _submit_too_deep(cluster, 9984)
        ended = {"phase": "Failed", "reason": "BackoffLimitExceeded", "message": "worker-0 failed"}
        cluster.server.patch(PADDLE_JOBS, "default", "deep", {"status": ended}, subresource="status")
        await cluster.operate(60)
        assert cluster.status("deep")["phase"] == "Failed"
        assert cluster.status("deep")["message"] == "worker-0 failed"

    on_a_cluster(act)
