"""The dashboard on a real API server: it can do what its user can do, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from playwright.async_api import expect

from apiserver.real_cluster import RealCluster
from devcluster import Cluster as ControlPlane
from paddlejob.api import names
from paddlejob.client.cluster import Cluster
from paddlejob.client.job import CHANGES
from paddlejob.dashboard.server import Dashboard
from simkube.build import JobBuilder, job
from tests.dashboard.browser import chromium, tab
from tests.dashboard.pages import opened

pytestmark = pytest.mark.apiserver

CRD = Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml"


@pytest.fixture
def real(control_plane: ControlPlane, namespace: str):
    control_plane.apply(CRD)
    with RealCluster(control_plane, namespace).running() as cluster:
        yield cluster


def add_account(control_plane: ControlPlane, namespace: str, name: str, *rules: dict) -> None:
    """Create a service account that may do what the rules say, in its own namespace."""
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    control_plane.request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}
    )
    control_plane.request("POST", f"{base}/roles", {"metadata": {"name": name}, "rules": list(rules)})
    control_plane.request(
        "POST",
        f"{base}/rolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )


@pytest.fixture
def kubeconfig_of(control_plane: ControlPlane, namespace: str):
    def make(name: str, *rules: dict) -> Path:
        add_account(control_plane, namespace, name, *rules)
        return control_plane.service_account_kubeconfig(namespace, name)

    return make


def rule(resource: str, *verbs: str) -> dict:
    return {"apiGroups": [names.GROUP], "resources": [resource], "verbs": list(verbs)}


async def submit(real: RealCluster, built: JobBuilder) -> None:
    await asyncio.to_thread(real.do, lambda: real.stage.submit(built))


async def rights_of(kubeconfig: Path, namespace: str) -> set[str]:
    async with Cluster.open(kubeconfig=kubeconfig, namespace=namespace) as jobs:
        return set(await jobs.rights(namespace))


async def test_buttons_follow_the_rights_of_the_user(real, kubeconfig_of, namespace):
    read = rule("paddlejobs", "get", "list", "watch")
    assert await rights_of(kubeconfig_of("viewer", read), namespace) == set()
    patcher = kubeconfig_of("patcher", read, rule("paddlejobs", "patch"))
    assert await rights_of(patcher, namespace) == {"suspend", "resume", "stop"}
    scaler = kubeconfig_of("scaler", read, rule("paddlejobs/scale", "patch"))
    assert await rights_of(scaler, namespace) == {"scale"}
    owner = kubeconfig_of("owner", read, rule("paddlejobs", "*"), rule("paddlejobs/scale", "*"))
    assert await rights_of(owner, namespace) == set(CHANGES)


async def test_a_user_without_rights_sees_nothing_and_gets_a_sentence(real, kubeconfig_of, namespace):
    await submit(real, job("secret").worker(1))
    async with (
        Cluster.open(kubeconfig=kubeconfig_of("nobody"), namespace=namespace) as jobs,
        opened(jobs) as pages,
    ):
        await pages.get("/", query=pages.query)
        async with pages.stream("/api/jobs") as events:
            told = await events.until("state", lambda each: each["state"] == "forbidden")
            assert f"cannot watch paddlejobs in namespace {namespace}" in told["message"]
            assert await events.until("all") == []
        for path in ("stream", "manifest", "environment/0"):
            refused = await pages.get(f"/api/jobs/{namespace}/secret/{path}")
            assert refused.status == 403
            assert "cannot get paddlejobs" in refused.json["error"]


async def test_a_viewer_sees_jobs_and_is_refused_changes_by_the_server(real, kubeconfig_of, namespace):
    kubeconfig = kubeconfig_of("viewer", rule("paddlejobs", "get", "list", "watch"))
    async with Cluster.open(kubeconfig=kubeconfig, namespace=namespace) as jobs, opened(jobs) as pages:
        await pages.get("/", query=pages.query)
        async with pages.stream("/api/jobs") as events:
            await events.until("all")
            await submit(real, job("demo").worker(1))
            await events.until("change", lambda each: each["rows"])
        refused = await pages.post(f"/api/jobs/{namespace}/demo/delete")
        assert refused.status == 403
        assert "needs delete on paddlejobs" in refused.json["error"]
        # Pods and their logs are not among his rights: the page says so, and shows the rest.
        async with pages.stream(f"/api/jobs/{namespace}/demo/stream?logs=1") as events:
            assert "cannot watch" in await events.until("trouble")


@pytest.mark.browser
async def test_the_pages_show_what_a_user_may_see_and_do(real, kubeconfig_of, namespace):
    read = rule("paddlejobs", "get", "list", "watch")
    pods = {
        "apiGroups": [""],
        "resources": ["pods", "pods/log", "events"],
        "verbs": ["get", "list", "watch"],
    }
    users = {
        "nobody": kubeconfig_of("nobody"),
        "viewer": kubeconfig_of("viewer", read, pods),
        "owner": kubeconfig_of("owner", rule("paddlejobs", "*"), rule("paddlejobs/scale", "*"), pods),
    }
    await submit(real, job("demo").worker(2))
    await submit(real, job("other").worker(1))
    async with chromium() as browser, contextlib.AsyncExitStack() as stack:
        pages = {}
        for name, kubeconfig in users.items():
            jobs = await stack.enter_async_context(Cluster.open(kubeconfig=kubeconfig, namespace=namespace))
            dashboard = await stack.enter_async_context(Dashboard(jobs))
            link = await dashboard.serve()
            found = await stack.enter_async_context(tab(browser, link))
            await found.page.goto(link)
            pages[name] = found
        nobody = pages["nobody"]
        await expect(nobody.page.get_by_role("alert")).to_contain_text("cannot watch paddlejobs")
        assert await nobody.violations() == []
        for name in ("viewer", "owner"):
            await expect(pages[name].page.locator("a.job")).to_have_count(2)
            await pages[name].open(f"jobs/{namespace}/demo")
            await expect(pages[name].page.locator(".title .phase")).to_have_text("Running")
        viewer, owner = pages["viewer"].page, pages["owner"].page
        await expect(owner.get_by_role("button", name="Suspend")).to_be_visible()
        await expect(viewer.locator(".actions button")).to_have_count(0)
        await owner.get_by_role("button", name="Suspend").click()
        for page in (viewer, owner):
            await expect(page.locator(".title .phase")).to_have_text("Suspended")
        await owner.get_by_role("button", name="Undo").click()
        await expect(viewer.locator(".title .phase")).to_have_text("Running")
        await owner.get_by_role("button", name="Delete", exact=True).click()
        await owner.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(owner.locator("a.job")).to_have_count(1)
        await expect(viewer.get_by_role("heading", name="This job was deleted")).to_be_visible()
        assert [pages[name].foreign for name in users] == [[], [], []]
        assert pages["owner"].errors == []
