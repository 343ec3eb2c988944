"""Only the browser that opened the link, and only from the dashboard's own pages."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest
from yarl import URL

from paddlejob.client.errors import ClientError
from paddlejob.dashboard import session
from paddlejob.dashboard.pages import STATIC
from paddlejob.dashboard.server import Dashboard
from tests.dashboard.pages import opened


async def test_the_link_works_once_and_gives_a_cookie_that_no_script_and_no_other_site_can_use(runs):
    async with opened(runs) as pages:
        refused = await pages.get("/", query={"token": "guessed"})
        assert refused.status == 401
        assert not refused.cookies
        answer = await pages.get("/", query=pages.query)
        assert answer.status == 200
        (cookie,) = answer.cookies.values()
        assert cookie["httponly"]
        assert cookie["samesite"] == "Strict"
        # So it goes to this page and below, also where a proxy serves others under the same name.
        assert not cookie["path"]
        assert cookie.value != pages.query["token"]
        assert (await pages.get("/api/about")).json["isLocal"]
        again = await pages.get("/", query=pages.query, cookies={cookie.key: ""})
        assert again.status == 401
        assert "works once" in again.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/static/app.js"),
        ("GET", "/api/about"),
        ("GET", "/api/jobs"),
        ("GET", "/api/jobs/default/demo/stream"),
        ("POST", "/api/jobs"),
        ("POST", "/api/jobs/default/demo/delete"),
    ],
)
async def test_without_the_cookie_nothing_is_served(runs, method, path):
    async with opened(runs) as pages:
        answer = await pages.request(method, path, headers={"Origin": pages.base})
        assert answer.status == 401
        assert "private" in answer.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", ""])
async def test_a_foreign_name_for_this_machine_is_refused(pages, host):
    assert (await pages.get("/api/about", headers={"Host": host})).status == 421


async def test_a_name_that_was_allowed_is_served(runs):
    async with Dashboard(runs) as dashboard:
        link = URL(await dashboard.serve(hosts=("proxy.example",)))
        async with opened(runs) as pages:
            pages.base = str(link.origin())
            headers = {"Host": "proxy.example"}
            assert (await pages.get("/", query=dict(link.query), headers=headers)).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
async def test_another_site_can_neither_change_nor_read(pages, origin):
    assert (await pages.post("/api/jobs/default/demo/delete", headers={"Origin": origin})).status == 403
    assert (await pages.get("/api/about", headers={"Origin": origin})).status == 403


async def test_a_change_needs_an_origin(pages):
    assert (await pages.request("POST", "/api/validate", json={"text": ""})).status == 403
    assert (await pages.post("/api/validate", {"text": ""})).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_what_a_browser_says_of_a_foreign_page_is_believed(pages, site):
    headers = {"Sec-Fetch-Site": site}
    assert (await pages.get("/api/about", headers=headers)).status == 403
    # A link from elsewhere may lead to the page itself.
    assert (await pages.get("/", headers=headers)).status == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/about", "/nowhere", "/static/../server.py"])
async def test_every_answer_forbids_other_origins(pages, path):
    answer = await pages.get(path)
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Server"] == "paddlejob"
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_what_a_user_may_see_is_not_kept_by_the_browser(pages):
    for path in ("/api/about", "/api/history", "/api/jobs/default/nobody/environment/0"):
        assert (await pages.get(path)).headers["Cache-Control"] == "no-store", path


async def test_nobody_can_open_streams_without_end(pages, monkeypatch):
    monkeypatch.setattr(session, "MAX_STREAMS", 2)
    async with pages.stream("/api/jobs") as first, pages.stream("/api/jobs") as second:
        for events in (first, second):
            await events.until("state")
        for path in ("/api/jobs", "/api/jobs/default/demo/stream"):
            refused = await pages.get(path)
            assert (refused.status, refused.text.strip()) == (
                429,
                "Too many pages are open at once; close some of them.",
            )
    async with asyncio.timeout(60):
        while (await pages.get("/api/jobs/default/demo/stream")).status == 429:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["Host: evil.example"], id="a second name"),
        pytest.param(["Transfer-Encoding: chunked", "Content-Length: 5"], id="two lengths"),
        pytest.param(["Content-Length: 5", "Content-Length: 6"], id="two lengths of one kind"),
        pytest.param(["Transfer-Encoding: chunked, identity"], id="two encodings"),
        pytest.param([" folded: line"], id="a folded line"),
        pytest.param(["Origin : http://127.0.0.1"], id="a space before the colon"),
    ],
)
async def test_a_request_that_a_proxy_could_read_otherwise_is_refused(pages, lines):
    url = URL(pages.base)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = ["POST /api/validate HTTP/1.1", f"Host: {url.authority}", f"Origin: {pages.base}", *lines]
    writer.write("\r\n".join([*head, "", "0\r\n\r\n"]).encode())
    async with asyncio.timeout(60):
        status = (await reader.readline()).split()[1]
    writer.close()
    assert status == b"400"


async def test_files_outside_are_not_served(pages):
    for path in ("/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static//etc/passwd", "/static"):
        assert (await pages.get(URL(pages.base + path, encoded=True).raw_path)).status in (403, 404)


async def test_only_this_machine_can_connect(pages):
    port = URL(pages.base).port
    for address in {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}:
        if not address.startswith("127."):
            with socket.socket() as client:
                assert client.connect_ex((address, port)) != 0


async def test_a_taken_port_is_told(runs, pages):
    async with Dashboard(runs) as dashboard:
        with pytest.raises(ClientError, match="cannot listen on 127"):
            await dashboard.serve(URL(pages.base).port)


def _files() -> list[Path]:
    return [path for path in STATIC.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]


def test_pages_refer_to_nothing_outside_and_to_no_absolute_path():
    text = (STATIC / "index.html").read_text()
    assert all(not each.startswith(("/", "http")) for each in re.findall(r'(?:src|href)="([^"]*)"', text))
    for path in _files():
        if path.parent.name != "vendor" and path.suffix == ".js":
            found = re.findall(r'["`](https?://[^"`]*|/api[^"`]*|/static[^"`]*)["`]', path.read_text())
            assert found == [], path.name


def test_all_files_together_are_small():
    import gzip

    assert sum(len(gzip.compress(path.read_bytes())) for path in _files()) <= 120 * 1024


def test_every_vendored_module_has_its_licence_beside_it():
    for path in (STATIC / "vendor").glob("*.js"):
        assert (STATIC / "vendor" / f"{path.stem.partition('-')[0]}.LICENSE").is_file(), path.name
