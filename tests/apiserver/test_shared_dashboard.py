"""The dashboard inside a cluster, on a real API server with real tokens: it can do what a token can do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from playwright.async_api import expect

from apiserver.test_dashboard import CRD, add_account, rule
from devcluster import Cluster as ControlPlane
from devcluster import ensure
from paddlejob.dashboard.shared import SharedDashboard
from paddlejob.dashboard.users import IDLE_SECONDS, SESSION_SECONDS, Users
from paddlejob.kube.transport.config import load_config
from simkube.build import job
from tests.dashboard.browser import chromium, tab
from tests.dashboard.pages import Pages

pytestmark = pytest.mark.apiserver

READ = rule("paddlejobs", "get", "list", "watch")
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/{}/paddlejobs"


class Site:
    """A dashboard that many use; `port` is where."""

    def __init__(self, dashboard: SharedDashboard, port: int) -> None:
        self.dashboard = dashboard
        self.base = f"http://127.0.0.1:{port}"
        self._stack = contextlib.AsyncExitStack()

    async def pages(self, prefix: str = "", **headers: str) -> Pages:
        """Return a browser of its own."""
        jar = aiohttp.CookieJar(unsafe=True)
        session = await self._stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        found = Pages(self.base, session, **headers)
        found.base += prefix
        return found

    async def close(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def serving(control_plane: ControlPlane, **options) -> AsyncIterator[Site]:
    """Serve; the kubeconfig is that of an administrator, whose credentials must not be used."""
    config = load_config(control_plane.kubeconfig)
    assert config.user.client_certificate or config.user.token
    async with SharedDashboard(config, **options) as dashboard:
        site = Site(dashboard, await dashboard.serve("127.0.0.1:0"))
        try:
            yield site
        finally:
            await site.close()


@pytest.fixture
async def site(control_plane: ControlPlane) -> AsyncIterator[Site]:
    control_plane.apply(CRD)
    async with serving(control_plane, hosts=["hub.example.org"]) as found:
        yield found


@pytest.fixture
def teams(control_plane: ControlPlane) -> Iterator[tuple[str, str]]:
    """Two namespaces with a job each, and a user who may see the one of her own."""
    control_plane.apply(CRD)
    names = []
    for team in ("red", "blue"):
        body = {"metadata": {"generateName": f"{team}-"}}
        name = control_plane.request("POST", "/api/v1/namespaces", body)["metadata"]["name"]
        control_plane.await_found(f"/api/v1/namespaces/{name}/serviceaccounts/default")
        add_account(control_plane, name, "user", READ)
        control_plane.request("POST", JOBS.format(name), manifest(f"of-{team}"))
        names.append(name)
    yield names[0], names[1]
    for name in names:
        control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


def manifest(name: str) -> dict:
    """Return a job that does not say where it belongs."""
    return {**job().worker(1).manifest, "metadata": {"name": name}}


def token(control_plane: ControlPlane, namespace: str, name: str = "user") -> str:
    return control_plane.service_account_token(namespace, name)


async def signed_in(site: Site, secret: str) -> Pages:
    pages = await site.pages()
    assert (await pages.post("/api/sign-in", {"token": secret})).status == 200
    return pages


async def listed(pages: Pages, query: str = "") -> list[str]:
    async with pages.stream(f"/api/jobs{query}") as events:
        return [row["key"] for row in await events.until("all")]


async def refusal(pages: Pages, query: str = "") -> str:
    async with pages.stream(f"/api/jobs{query}") as events:
        return (await events.until("state", lambda each: each["state"] == "forbidden"))["message"]


async def test_nobody_gets_anything_without_a_token(site, teams):
    pages = await site.pages()
    assert (await pages.get("/")).status == 200
    assert (await pages.get("/static/app.js")).status == 200
    for path in ("about", "namespaces", "jobs", "history", f"jobs/{teams[0]}/of-red/manifest", "rights/x"):
        answer = await pages.get(f"/api/{path}")
        assert (answer.status, answer.json) == (401, {"error": "Sign in first.", "signIn": True}), path
    assert (await pages.post(f"/api/jobs/{teams[0]}/of-red/delete")).status == 401
    for wrong in ("", "  ", "not-a-token", "two words", "tökén"):
        answer = await pages.post("/api/sign-in", {"token": wrong})
        assert (answer.status, "token" in answer.json["error"]) == (422, True), wrong
        assert "Set-Cookie" not in answer.headers
    stranger = await site.pages(Authorization="Bearer not-a-token")
    assert (await stranger.get("/api/about")).status == 401
    # Nobody is anonymous here, as one without a token is to the API server.
    assert (await (await site.pages(Authorization="Bearer ")).get("/api/about")).status == 401


async def test_users_see_their_own_namespaces_and_never_those_of_others(site, control_plane, teams):
    red, blue = teams
    one = await signed_in(site, token(control_plane, red))
    other = await signed_in(site, f"Bearer {token(control_plane, blue)}\n")
    about = (await one.get("/api/about")).json
    assert (about["user"], about["scope"]) == (f"system:serviceaccount:{red}:user", red)
    found = await asyncio.gather(*(listed(each) for _ in range(5) for each in (one, other)))
    assert found == [[f"{red}/of-red"], [f"{blue}/of-blue"]] * 5
    assert f"cannot watch paddlejobs in namespace {blue}" in await refusal(one, f"?namespace={blue}")
    assert await listed(one, f"?namespace={blue}") == []
    assert "cannot watch paddlejobs in all namespaces" in await refusal(one, "?namespace=")
    assert (await one.get("/api/namespaces")).json == {"names": [], "all": False}
    for path in ("manifest", "stream", "error", "environment/0"):
        refused = await one.get(f"/api/jobs/{blue}/of-blue/{path}")
        assert (refused.status, "cannot get paddlejobs" in refused.json["error"]) == (403, True)
    assert (await one.post(f"/api/jobs/{blue}/of-blue/delete")).status == 403
    assert (await one.get(f"/api/jobs/{red}/of-red/manifest")).status == 200


async def test_a_user_without_rights_sees_nothing_and_gets_a_sentence(site, control_plane, teams):
    add_account(control_plane, teams[0], "nobody")
    pages = await signed_in(site, token(control_plane, teams[0], "nobody"))
    assert f"cannot watch paddlejobs in namespace {teams[0]}: needs" in await refusal(pages)
    assert await listed(pages) == []
    assert (await pages.get(f"/api/rights/{teams[0]}")).json == []


async def test_a_proxy_in_front_brings_the_token_with_each_request(site, control_plane, teams):
    red, blue = teams
    proxied = await site.pages(Authorization=f"Bearer {token(control_plane, red)}", Host="hub.example.org")
    assert await listed(proxied) == [f"{red}/of-red"]
    # It says who somebody is, whatever cookie is left from another day.
    pages = await signed_in(site, token(control_plane, blue))
    headers = {"Authorization": f"Bearer {token(control_plane, red)}"}
    assert (await pages.get("/api/about", headers=headers)).json["scope"] == red
    assert (await pages.get("/api/about")).json["scope"] == blue


async def test_one_who_may_see_everything_chooses_among_all_namespaces(site, control_plane, teams):
    name = f"everything-{teams[0]}"
    add_account(control_plane, teams[0], "admin")
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": teams[0]}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    control_plane.request("POST", path, binding)
    try:
        pages = await signed_in(site, token(control_plane, teams[0], "admin"))
        assert (await pages.get("/api/about")).json["scope"] == ""
        choices = (await pages.get("/api/namespaces")).json
        assert (choices["all"], {*teams, "default"} <= {*choices["names"]}) == (True, True)
        assert {f"{teams[0]}/of-red", f"{teams[1]}/of-blue"} <= set(await listed(pages))
        made = await pages.post(f"/api/jobs?namespace={teams[1]}", {"text": json.dumps(manifest("new"))})
        assert made.json["keys"] == [f"{teams[1]}/new"]
        assert f"{teams[1]}/new" in await listed(pages, f"?namespace={teams[1]}")
    finally:
        control_plane.request("DELETE", f"{path}/{name}")


async def test_a_token_that_is_revoked_ends_what_its_user_sees(site, control_plane, teams):
    pages = await signed_in(site, token(control_plane, teams[0]))
    async with pages.stream("/api/jobs") as events:
        await events.until("all")
        control_plane.request("DELETE", f"/api/v1/namespaces/{teams[0]}/serviceaccounts/user")
        async with asyncio.timeout(60):
            # The API server believes a token for some seconds after its account is gone.
            while (await pages.get("/api/about")).status == 200:
                await site.dashboard.users.review()
        with pytest.raises((AssertionError, asyncio.IncompleteReadError)):
            await events.until("nothing")
    assert (await pages.get(f"/api/jobs/{teams[0]}/of-red/manifest")).status == 401


async def test_who_does_nothing_is_forgotten(control_plane, teams):
    now = 0.0
    users = Users(load_config(control_plane.kubeconfig), clock=lambda: now)
    secret = await users.sign_in(token(control_plane, teams[0]))
    session = await users.session(users.token_of(secret))
    now += IDLE_SECONDS + 1
    await users.review()
    assert session.over.done()
    # The connections are gone, and are made again for the next page.
    assert (await users.session(users.token_of(secret))).scope == teams[0]
    now += SESSION_SECONDS + 1
    assert users.token_of(secret) == ""
    await users.close()


async def test_signing_out_ends_it_for_that_browser_only(site, control_plane, teams):
    one, same = [await signed_in(site, token(control_plane, teams[0])) for _ in range(2)]
    other = await signed_in(site, token(control_plane, teams[1]))
    assert (await one.post("/api/sign-out")).status == 200
    assert [(await each.get("/api/about")).status for each in (one, same, other)] == [401, 200, 200]


async def test_signing_in_again_ends_what_the_browser_had_before(site, control_plane, teams):
    pages = await signed_in(site, token(control_plane, teams[0]))
    (before,) = [f"{each.key}={each.value}" for each in pages.cookies]
    assert (await pages.post("/api/sign-in", {"token": token(control_plane, teams[1])})).status == 200
    assert (await pages.get("/api/about")).json["scope"] == teams[1]
    # Somebody else may have planted it, and would see what the user does from then on.
    assert (await (await site.pages(Cookie=before)).get("/api/about")).status == 401


async def test_nobody_pushes_out_the_others(site, control_plane, teams, monkeypatch):
    monkeypatch.setattr("paddlejob.dashboard.users.MAX_PER_USER", 2)
    other = await signed_in(site, token(control_plane, teams[1]))
    many = [await signed_in(site, token(control_plane, teams[0])) for _ in range(4)]
    found = [(await each.get("/api/about")).status for each in (other, *many)]
    assert found == [200, 401, 401, 200, 200]


async def test_the_cookie_stands_for_the_token_and_goes_nowhere_else(site, control_plane, teams, caplog):
    caplog.set_level(logging.DEBUG)
    secret = token(control_plane, teams[0])
    pages = await site.pages(Host="hub.example.org")
    headers = {"Origin": "https://hub.example.org"}
    answer = await pages.post("/api/sign-in", {"token": secret}, headers=headers)
    (cookie,) = answer.headers.getall("Set-Cookie")
    assert {"HttpOnly", "Secure", "SameSite=Strict"} <= set(cookie.split("; "))
    assert "Path" not in cookie
    assert "Max-Age" not in cookie
    assert secret not in cookie
    local = await (await site.pages()).post("/api/sign-in", {"token": secret})
    assert "Secure" not in local.headers["Set-Cookie"]
    assert secret not in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Host": "evil.example"}, 421, id="another name"),
        pytest.param({"Origin": "https://evil.example"}, 403, id="another site"),
        pytest.param({"Origin": "http://127.0.0.1:1"}, 403, id="another port of this machine"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, 403, id="another page of the site"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="what the browser says"),
        pytest.param({"Host": "hub.example.org", "Origin": "http://hub.example.org"}, 422, id="plain HTTP"),
        pytest.param({"Host": "hub.example.org", "Origin": "https://hub.example.org"}, 200, id="its name"),
        pytest.param({"Host": "localhost:9"}, 403, id="a forwarded port, with an origin of another"),
        pytest.param({"Host": "localhost:http", "Origin": "http://localhost:http"}, 200, id="no number"),
        pytest.param({"Host": "localhost:9", "Origin": "http://localhost:9"}, 200, id="a forwarded port"),
        pytest.param(
            {"Host": "hub.example.org", "Origin": "http://localhost:8001", "Sec-Fetch-Site": "same-origin"},
            200,
            id="kubectl proxy, which changes the name",
        ),
    ],
)
async def test_only_its_own_pages_may_sign_people_in(site, control_plane, teams, headers, status):
    pages = await site.pages()
    answer = await pages.post("/api/sign-in", {"token": token(control_plane, teams[0])}, headers=headers)
    assert answer.status == status, answer.text
    assert ("Set-Cookie" in answer.headers) == (status == 200)


async def test_it_works_below_a_path(control_plane, teams):
    async with serving(control_plane, prefix="/paddle") as site:
        pages = await site.pages("/paddle")
        assert (await pages.get("")).text == (await pages.get("/")).text != ""
        assert (await pages.post("/api/sign-in", {"token": token(control_plane, teams[0])})).status == 200
        assert await listed(pages) == [f"{teams[0]}/of-red"]
        outside = await site.pages()
        assert (await outside.get("/healthz", headers={"Host": "10.0.0.1:8080"})).text == "ok\n"
        assert (await outside.get("/api/about")).status == 404


@pytest.mark.browser
async def test_a_job_is_shown_to_one_who_may_not_see_its_pods(site, control_plane, teams):
    red, _ = teams
    async with chromium() as browser, tab(browser, f"{site.base}/") as found:
        await found.open(f"jobs/{red}/of-red")
        await found.page.get_by_label("Bearer token").fill(token(control_plane, red))
        await found.page.get_by_role("button", name="Sign in").click()
        await expect(found.page.locator(".title .phase")).to_have_text("Pending")
        await expect(found.page.get_by_role("alert")).to_contain_text("cannot watch pods")
        path = f"{JOBS.format(red)}/of-red/status"
        patch = {"status": {"phase": "Running", "message": "1/1 running"}}
        control_plane.request("PATCH", path, patch, content_type="application/merge-patch+json")
        await expect(found.page.locator(".title .phase")).to_have_text("Running")


@pytest.mark.browser
async def test_people_sign_in_choose_a_namespace_and_leave(site, control_plane, teams):
    red, blue = teams
    async with chromium() as browser, tab(browser, f"{site.base}/") as found:
        page = found.page
        await found.open(f"jobs/{red}/of-red/events")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert await found.violations() == []
        await found.picture("sign-in")
        await page.get_by_label("Bearer token").fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
        found.errors.clear()  # Chromium reports every refused request
        await page.get_by_label("Bearer token").fill(token(control_plane, red))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", name="of-red")).to_be_visible()
        await expect(page.locator(".account")).to_contain_text(f"{red}:user")
        await expect(page.locator(".actions button")).to_have_count(0)
        await page.get_by_role("button", name="Namespace:").click()
        await expect(page.get_by_role("dialog")).to_contain_text("You are not allowed to list PaddleJobs")
        assert await found.violations() == []
        await page.get_by_label("Name of a namespace").fill(blue)
        await page.keyboard.press("Enter")
        refusal = f"cannot watch paddlejobs in namespace {blue}"
        await expect(page.get_by_role("alert")).to_contain_text(refusal)
        assert await found.violations() == []
        await page.set_viewport_size({"width": 400, "height": 800})
        assert await found.overflow() <= 0
        await found.open(f"jobs/{red}")
        await expect(page.locator("a.job")).to_have_text("of-red")
        assert await found.overflow() <= 0
        assert found.errors == []
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert await page.evaluate("Object.values(localStorage).join() + document.cookie") == f"{blue}"
        assert found.foreign == []


def test_there_is_no_way_to_use_the_credentials_of_a_kubeconfig(control_plane):
    async def user() -> object:
        async with SharedDashboard(load_config(control_plane.kubeconfig)) as dashboard:
            return dashboard.users._config.user

    found = asyncio.run(user())
    assert repr(found) == "User()"


@pytest.fixture
def own_address() -> str:
    """An address of this machine that an API server may proxy to, which it refuses for loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        try:
            # Nothing is sent: this only chooses the address that something would be sent from.
            client.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address besides loopback")
        return str(client.getsockname()[0])


@pytest.mark.usefixtures("kubectl")
async def test_it_works_behind_kubectl_proxy(control_plane, teams, own_address):
    red, _ = teams
    program = ensure(["kubectl"], kubernetes=control_plane.access.kubernetes)["kubectl"]
    name = control_plane.url.removeprefix("https://")
    config = load_config(control_plane.kubeconfig)
    async with SharedDashboard(config, hosts=[name]) as dashboard, contextlib.AsyncExitStack() as stack:
        port = await dashboard.serve(f"{own_address}:0")
        path = f"/api/v1/namespaces/{red}/pods"
        body = {"metadata": {"name": "dashboard"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        control_plane.request("POST", path, body)
        status = {"status": {"phase": "Running", "podIP": own_address, "podIPs": [{"ip": own_address}]}}
        patch = ("--subresource=status", "--type=merge", f"--patch={json.dumps(status)}")
        control_plane.kubectl("patch", "pod", "dashboard", f"--namespace={red}", *patch)
        command = (program, f"--kubeconfig={control_plane.kubeconfig}", "proxy", "--port=0")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        stack.push_async_callback(process.wait)
        stack.callback(process.terminate)
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().split()[-1]
        jar = aiohttp.CookieJar(unsafe=True)
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        pages = Pages(f"http://{address}", session)
        pages.base += f"{path}/dashboard:{port}/proxy"
        headers = {"Origin": f"http://{address}", "Sec-Fetch-Site": "same-origin"}
        secret = token(control_plane, red)
        assert (await pages.post("/api/sign-in", {"token": secret}, headers=headers)).status == 200
        assert (await pages.get("/")).text.startswith("<!doctype html>")
        assert await listed(pages) == [f"{red}/of-red"]
