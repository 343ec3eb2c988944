"""What a shared dashboard does by itself; tests/apiserver has what it does with tokens."""

from __future__ import annotations

import asyncio
import gc
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from paddlejob.client.cluster import Cluster
from paddlejob.dashboard import shared, users
from paddlejob.dashboard.session import MAX_WATCHED, UserSession
from paddlejob.dashboard.shared import Certificate, SharedDashboard
from paddlejob.kube.client import Client
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.http import HttpTransport
from tests.dashboard.pages import Answer, Pages

NOWHERE = ClusterConfig(server="http://127.0.0.1:1")


def write_certificate(files: Certificate, name: str) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    subprocess.run(
        [*command.split(), "-subj", f"/CN={name}", "-out", files.chain, "-keyout", files.key],
        check=True,
        capture_output=True,
    )


async def test_a_renewed_certificate_is_served_and_a_broken_one_is_not(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(shared, "CERTIFICATE_SECONDS", 0.01)
    files = Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    await asyncio.to_thread(write_certificate, files, "first")
    async with SharedDashboard(NOWHERE) as dashboard:
        port = await dashboard.serve("127.0.0.1:0", files)

        async def served() -> str:
            return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

        first = await served()
        assert first == files.chain.read_text()
        files.chain.write_text("half a certif")
        await asyncio.sleep(0.05)
        assert await served() == first
        await asyncio.to_thread(write_certificate, files, "second")
        async with asyncio.timeout(30):
            while await served() == first:
                await asyncio.sleep(0.01)
        assert await served() == files.chain.read_text()


async def test_tokens_are_reviewed_whatever_happens(monkeypatch, caplog):
    monkeypatch.setattr(users, "REVIEW_SECONDS", 0.0)
    reviewed = asyncio.Event()

    async def review() -> None:
        if not caplog.records:
            raise ValueError("a bug")
        reviewed.set()

    async with SharedDashboard(NOWHERE) as dashboard:
        monkeypatch.setattr(dashboard.users, "review", review)
        async with asyncio.timeout(30):
            await reviewed.wait()
    assert "the next token review is in" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Origin": "http://["}, 403, id="half an address"),
        pytest.param({"Origin": "null"}, 403, id="no address"),
        pytest.param(
            {"Origin": "http://[", "Sec-Fetch-Site": "same-origin"}, 403, id="what no browser sends"
        ),
        pytest.param({"Host": "[::1"}, 421, id="half a name"),
    ],
)
async def test_an_address_that_is_none_is_refused(headers, status):
    async with SharedDashboard(NOWHERE) as dashboard, aiohttp.ClientSession() as session:
        pages = Pages(f"http://127.0.0.1:{await dashboard.serve('127.0.0.1:0')}", session)
        assert (await pages.post("/api/sign-in", {"token": "a"}, headers=headers)).status == status


async def test_namespaces_that_nobody_looks_at_are_not_all_watched():
    cluster = Cluster(Client(HttpTransport(NOWHERE)))
    session = UserSession(cluster, scope="default", user="somebody")
    for number in range(5 * MAX_WATCHED):
        session.watch(f"namespace-{number}")
    assert len(session._watched) <= MAX_WATCHED
    await session.close()
    await cluster.close()


class Reviewer:
    """An API server that knows one token, and holds reviews back until they are released."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.released = asyncio.Event()
        self.user = "alice"
        self.config = NOWHERE

    async def answer(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        if request.path.endswith("selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}}, status=201)
        self.asked.append(token)
        await self.released.wait()
        if not token.startswith("good"):
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        return web.json_response({"status": {"userInfo": {"username": self.user}}}, status=201)


@pytest.fixture
async def reviewer() -> AsyncIterator[Reviewer]:
    found = Reviewer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.config = ClusterConfig(server=f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield found
    await runner.cleanup()


async def test_made_up_tokens_cost_a_bounded_number_of_connections_and_leave_nothing(reviewer):
    before = transports()
    async with SharedDashboard(reviewer.config) as dashboard, aiohttp.ClientSession() as session:
        pages = Pages(f"http://127.0.0.1:{await dashboard.serve('127.0.0.1:0')}", session)

        async def about(token: str) -> Answer:
            return await pages.get("/api/about", headers={"Authorization": f"Bearer {token}"})

        async with asyncio.timeout(60):
            strangers = [asyncio.create_task(about(f"made-up-{number}")) for number in range(90)]
            refused = 0
            for done in asyncio.as_completed(strangers):
                answer = await done
                assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
                if (refused := refused + 1) == 90 - users.MAX_WAITING:
                    break
            while len(reviewer.asked) < users.MAX_ADMITTING:
                await asyncio.sleep(0)
            assert transports() - before == users.MAX_ADMITTING
            reviewer.released.set()
            answers = [await each for each in strangers]
        assert sorted(each.status for each in answers) == [401] * users.MAX_WAITING + [503] * refused
        assert len(reviewer.asked) == users.MAX_WAITING
        assert transports() == before
        # A refused token is remembered.
        [first, *_] = reviewer.asked
        assert (await about(first)).status == 401
        assert len(reviewer.asked) == users.MAX_WAITING
        assert (await about("good")).json["user"] == "alice"


def transports() -> int:
    gc.collect()
    return sum(isinstance(each, HttpTransport) for each in gc.get_objects())


async def test_requests_with_the_same_token_share_one_review(reviewer):
    found = users.Users(reviewer.config)
    sessions = [asyncio.create_task(found.session("good")) for _ in range(5)]
    while not reviewer.asked:
        await asyncio.sleep(0)
    sessions[0].cancel()
    reviewer.released.set()
    assert len({await each for each in sessions[1:]}) == 1
    assert reviewer.asked == ["good"]
    await found.close()


async def test_closing_ends_the_reviews(reviewer):
    found = users.Users(reviewer.config)
    waiting = asyncio.create_task(found.session("good"))
    while not reviewer.asked:
        await asyncio.sleep(0)
    await found.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    reviewer.released.set()


@pytest.mark.parametrize(("user", "kept"), [("alice", 200), ("", 201)])
async def test_users_without_a_known_name_do_not_share_their_sessions(reviewer, user, kept):
    """Before Kubernetes 1.28 the API server does not return the name of a user."""
    reviewer.user = user
    reviewer.released.set()
    found = users.Users(reviewer.config)
    first = await found.sign_in("good-1")
    others = [await found.sign_in("good-2") for _ in range(users.MAX_PER_USER)]
    assert sum(bool(found.token_of(each)) for each in (first, *others)) == kept
    await found.close()
