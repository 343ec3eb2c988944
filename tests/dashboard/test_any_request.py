"""Whatever is sent to a dashboard: an answer in words, no error of the server, and the next one works."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from paddlejob.client.errors import ClientError
from paddlejob.client.local_runs import LocalRuns
from paddlejob.dashboard import pages
from paddlejob.dashboard.server import Dashboard
from paddlejob.dashboard.shared import SharedDashboard
from paddlejob.dashboard.users import plain_token
from paddlejob.kube.transport.cluster import ClusterConfig
from simkube.build import job
from tests.support.fuzz import TEXT, VALUES, changed, encodable, mangled, refusal

PATHS = st.sampled_from(
    [
        *("/", "/static/app.js", "/static/", "/api/about", "/api/namespaces", "/api/rights/", "/api/history"),
        *("/api/jobs", "/api/jobs/default/demo/stream", "/api/jobs/default/demo/manifest", "/api/validate"),
        *("/api/jobs/default/demo/environment/worker-0", "/api/jobs/default/demo/scale", "/api/sign-in"),
        *("/api/history/default/demo", "/api/jobs/../../etc/error", "/api/sign-out", "/healthz", "*"),
    ]
)
NAMED = st.sampled_from(
    ["/api/rights/{}", "/api/history/default/{}", "/api/jobs/default/{}/manifest", "/api/jobs/{}/demo/stream"]
)
ANY_PATH = PATHS | st.tuples(NAMED, TEXT).map(lambda pair: pair[0].format(quote(encodable(pair[1]), safe="")))
HEADERS = st.sampled_from(
    [
        "Host",
        "Origin",
        "Cookie",
        "Last-Event-ID",
        "Sec-Fetch-Site",
        "Content-Type",
        "Accept-Encoding",
        "Range",
    ]
)
ONE_LINE = (TEXT.map(encodable) | st.binary(max_size=20)).map(lambda text: b"".join(text.splitlines()))
BODIES = (
    VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(["text", "workers", "token"]), VALUES).map(
        lambda value: json.dumps(value).encode()
    )
    | st.binary(max_size=60)
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "HEAD", "PUT"]),
    ANY_PATH,
    st.tuples(ONE_LINE, ONE_LINE).map(lambda parts: b"".join(parts).replace(b" ", b"+")),
    st.lists(st.tuples(HEADERS, ONE_LINE), max_size=3),
    BODIES,
)
Request = tuple[str, str, bytes, list[tuple[str, bytes]], bytes]


async def status_of(port: int, cookie: str, request: Request) -> int:
    """Send a request byte by byte as it is; return the status, and do not wait for a stream to end."""
    method, path, query, headers, body = request
    # A job that is submitted would run.
    sent = body if path != "/api/jobs" else b'{"text": 1}'
    given = {
        "Host": f"127.0.0.1:{port}".encode(),
        "Origin": f"http://127.0.0.1:{port}".encode(),
        "Cookie": cookie.encode(),
        **dict(headers),
        "Content-Length": str(len(sent)).encode(),
    }
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{method} {path}?".encode() + query + b" HTTP/1.1\r\n")
        writer.writelines(name.encode() + b": " + value + b"\r\n" for name, value in given.items())
        writer.write(b"\r\n" + sent)
        async with asyncio.timeout(60):
            line = await reader.readline()
        return int(line.split()[1])
    finally:
        writer.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


DEEP = b"[" * 100_000


@given(requests=st.lists(REQUESTS, min_size=1, max_size=5))
@example(requests=[("POST", "/api/validate", b"", [], DEEP)])
@example(requests=[("POST", "/api/validate", b"", [], b'{"text": "\xff"}')])
@example(requests=[("GET", "/api/about", b"", [("Cookie", b"paddlejob-1=\xff\xfe")], b"")])
@example(requests=[("GET", "/api/jobs/default/%00/manifest", b"", [], b"")])
@example(requests=[("GET", "/api/history/default/..%2f..%2f" + "a" * 300, b"", [], b"")])
@example(requests=[("GET", "/", b"token=%ff%ed%a0%80", [("Cookie", b"")], b"")])
@example(requests=[("GET", "/api/jobs", b"last=%00&namespace=%2e%2e", [("Last-Event-ID", b"\xff")], b"")])
@example(requests=[("POST", "/api/jobs/default/demo/scale", b"", [], b'{"workers": 1%s}' % (b"0" * 400))])
def test_any_request_to_the_dashboard_of_one_user_is_answered(folder: Path, requests: list[Request]):
    async def scenario() -> None:
        async with Dashboard(LocalRuns(folder)) as dashboard:
            link = URL(await dashboard.serve())
            assert link.port is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
            head = f"GET {link.raw_path_qs} HTTP/1.1\r\nHost: 127.0.0.1:{link.port}\r\n\r\n"
            writer.write(head.encode())
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            writer.close()
            cookie = answer.partition("Set-Cookie: ")[2].partition(";")[0]
            assert cookie
            for each in requests:
                assert await status_of(link.port, cookie, each) < 500, each
            assert await status_of(link.port, cookie, ("GET", "/api/about", b"", [], b"")) == 200

    asyncio.run(scenario())


@given(requests=st.lists(REQUESTS, min_size=1, max_size=5))
@example(requests=[("GET", "/api/about", b"", [("Cookie", b"paddlejob=\xff\xfe")], b"")])
@example(requests=[("POST", "/api/sign-in", b"", [("Origin", b"http://[")], b'{"token": "a"}')])
@example(requests=[("POST", "/api/sign-in", b"", [], DEEP)])
@example(requests=[("GET", "/api/about", b"", [("Host", b"[::1")], b"")])
def test_any_request_to_the_shared_dashboard_is_answered(requests: list[Request]):
    async def scenario() -> None:
        async with SharedDashboard(ClusterConfig(server="http://127.0.0.1:1")) as dashboard:
            port = await dashboard.serve("127.0.0.1:0")
            for each in requests:
                # Without a cluster, a token that looks like one cannot be tried: 502.
                assert await status_of(port, "", each) in {*range(500), 502}, each
            assert await status_of(port, "", ("GET", "/healthz", b"", [], b"")) == 200

    asyncio.run(scenario())


@given(TEXT)
def test_any_token_is_plain_or_refused(text: str):
    refusal(lambda: plain_token(text), ClientError)


JOB = job().ps(1).worker(2).manifest


@given(mangled(yaml.safe_dump(JOB), json.dumps(JOB)) | changed(JOB).map(json.dumps))
@example("a: &a [*a]\n")
@example("apiVersion: batch.paddlepaddle.org/v1\nkind: PaddleJob\nmetadata: &a\n  labels: *a\n")
@example('{"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": 1}')
def test_any_text_in_the_form_has_problems_or_none(text: str):
    assert all(isinstance(each, str) for each in pages.read_submission(text).problems)
