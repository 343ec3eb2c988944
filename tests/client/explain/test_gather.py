"""What is read, with which rights, and at what cost."""

from __future__ import annotations

import pytest

from paddlejob.client.explain import explain_job
from paddlejob.client.explain.gather import JOBS
from paddlejob.kube.errors import NotFoundError
from paddlejob.testing.build import job
from tests.client.explain import reading
from tests.testing.simulated import simulated


def submit(server, built, **status):
    manifest = {**built.manifest, "metadata": {"name": "demo", "namespace": "default"}}
    server.create(JOBS, manifest)
    if status:
        server.patch(JOBS, "default", "demo", {"status": status}, subresource="status")


@simulated
async def test_a_job_that_does_not_exist_is_an_error():
    with pytest.raises(NotFoundError):
        await explain_job(reading.client(reading.server()), "default", "demo")


@simulated
async def test_what_may_not_be_read_is_a_line():
    server = reading.server()
    submit(server, job().worker(2), phase="Pending", reason="WaitingForPods", message="waiting for 2 pods")
    forbidden = ("/nodes", "/resourcequotas", "/limitranges", "/events", "/pods")
    found = await explain_job(reading.client(server, *forbidden), "default", "demo")
    assert found.summary == "waiting for 2 pods"
    assert found.rank == "worker-0"
    assert set(found.unseen) == {
        "cannot see pods: needs list on pods",
        "cannot see events: needs list on events",
        "cannot see nodes: needs list on nodes",
        "cannot see resourcequotas: needs list on resourcequotas",
        "cannot see limitranges: needs list on limitranges",
    }
