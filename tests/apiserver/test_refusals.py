"""What the cluster itself refuses a job, by quota or by policy: the job says so and goes on once it may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from behaviour.stage import Stage
from devcluster import ApiError, Cluster
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job
from tests.support.waiting import eventually

CRD = Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        ]
    },
    "validations": [
        {
            "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
            "message": "every pod needs the label team",
        }
    ],
}

Act = Callable[[Stage], Awaitable[None]]


@pytest.fixture
def perform(control_plane: Cluster, namespace: str) -> Callable[[Act], None]:
    """Return a function that plays an act with the operator on the real API server."""
    control_plane.apply(CRD)

    async def play(act: Act) -> None:
        async with Client(HttpTransport(load_config(control_plane.kubeconfig))) as client:
            await Stage(client, namespace).play(act)

    return lambda act: asyncio.run(play(act))


def allow_pods(cluster: Cluster, namespace: str, count: int) -> None:
    """Set the quota, and its status too: no quota controller runs here, and admission goes by the status."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"pods": str(count)}
    try:
        quota = cluster.request("GET", f"{path}/team")
    except ApiError:
        quota = cluster.request("POST", path, {"metadata": {"name": "team"}, "spec": {"hard": hard}})
    used = (quota.get("status") or {}).get("used") or {"pods": "0"}
    quota = cluster.request("PUT", f"{path}/team", {**quota, "spec": {"hard": hard}})
    cluster.request("PUT", f"{path}/team/status", {**quota, "status": {"hard": hard, "used": used}})


def test_a_quota_is_named_in_the_message_and_waited_for(perform, control_plane, namespace):
    allow_pods(control_plane, namespace, 1)

    async def act(stage: Stage) -> None:
        async def is_told() -> bool:
            return "exceeded quota: team" in (await stage.status()).get("message", "")

        await stage.submit(job().ps(1).worker(1))
        await stage.until(is_told, "the job tells of the quota")
        status = await stage.status()
        assert (status["phase"], status["reason"]) == ("Pending", "CreateFailed")
        assert status["message"].startswith("cannot create Pod demo-worker-0: ")
        assert "limited: pods=1" in status["message"]
        assert await stage.names() == ["demo-ps-0"]
        allow_pods(control_plane, namespace, 2)
        await stage.phase("Running")

    perform(act)


@pytest.fixture
def policy(control_plane: Cluster, namespace: str) -> Iterator[None]:
    """Refuse the namespace's pods without a label, from the moment on at which that has taken effect."""
    name = f"{namespace}-labels"
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    policies = f"{ADMISSION}/validatingadmissionpolicies"
    bindings = f"{ADMISSION}/validatingadmissionpolicybindings"
    control_plane.request("POST", policies, {"metadata": {"name": name}, "spec": POLICY})
    control_plane.request("POST", bindings, {"metadata": {"name": name}, "spec": binding})
    probe = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    eventually(lambda: not _is_admitted(control_plane, namespace, probe))
    yield
    control_plane.request("DELETE", f"{bindings}/{name}")
    control_plane.request("DELETE", f"{policies}/{name}")


def _is_admitted(cluster: Cluster, namespace: str, pod: dict) -> bool:
    try:
        cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    except ApiError:
        return False
    return True


@pytest.mark.usefixtures("policy")
@pytest.mark.timeout(120)
def test_a_policy_is_quoted_and_an_edit_of_the_template_heeds_it(perform):
    async def act(stage: Stage) -> None:
        async def is_told() -> bool:
            return "every pod needs the label team" in (await stage.status()).get("message", "")

        await stage.submit(job().worker(2))
        await stage.until(is_told, "the job quotes the policy")
        status = await stage.status()
        assert (status["phase"], status["reason"]) == ("Pending", "CreateFailed")
        assert "correct spec.worker.template" in status["message"]
        assert await stage.names() == []
        await stage.edit(worker={"template": {"metadata": {"labels": {"team": "vision"}}}})
        await stage.phase("Running")

    perform(act)
