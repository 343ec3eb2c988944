from __future__ import annotations

import pytest

from paddlejob.kube.backoff import RetryPolicy
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import in_cluster_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.rendezvous.peers import JobShape
from paddlejob.plainjob.rendezvous.pod_lister import ClusterLister, ListingError
from plainjob.api_server import api_server, pod_environment, service_account
from plainjob.pods import pod


@pytest.fixture
async def server():
    async with api_server() as running:
        yield running


@pytest.fixture
async def lister_for(server, tmp_path):
    clients = []

    def make(authority="ca.crt"):
        config = in_cluster_config(pod_environment(server), service_account(tmp_path / "sa", authority))
        clients.append(Client(HttpTransport(config), retry_policy=RetryPolicy(max_tries=1)))
        return ClusterLister(clients[-1])

    yield make
    for client in clients:
        await client.close()


async def test_pods_are_asked_for_by_label_with_the_service_accounts_token(server, lister_for):
    server.pods = [pod("a", "10.0.0.1"), pod("b", "10.0.0.2", index=1)]
    assert list(await lister_for().list_pods("default", "job-name=job")) == server.pods
    assert server.requests == ["/api/v1/namespaces/default/pods?labelSelector=job-name%3Djob"]


async def test_the_jobs_shape(lister_for):
    assert await lister_for().job_shape("default", "job") == JobShape(3, 3)


async def test_a_server_with_a_strange_certificate_is_not_believed(server, lister_for):
    with pytest.raises(ListingError, match="certificate"):
        await lister_for("other-ca.crt").list_pods("default", "job-name=job")
    assert server.requests == []


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        pytest.param(401, SettingsError, "may not list pods in default: run `kubectl apply", id="not known"),
        pytest.param(
            403, SettingsError, "may not list pods in default: run `kubectl apply", id="not allowed"
        ),
        pytest.param(500, ListingError, "refused with 500", id="broken"),
    ],
)
async def test_refused_pods(server, lister_for, code, error, message):
    server.refusals = [code]
    with pytest.raises(error, match=message):
        await lister_for().list_pods("default", "job-name=job")


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        pytest.param(401, SettingsError, "does not know the service account", id="not known"),
        pytest.param(404, SettingsError, "there is no Job 'job' in default: set JOB_NAME", id="no such job"),
        pytest.param(500, ListingError, "refused with 500", id="broken"),
    ],
)
async def test_refused_job(server, lister_for, code, error, message):
    server.refusals = [code]
    with pytest.raises(error, match=message):
        await lister_for().job_shape("default", "job")


async def test_a_job_that_may_not_be_read_has_no_shape(server, lister_for):
    server.refusals = [403]
    assert await lister_for().job_shape("default", "job") is None
