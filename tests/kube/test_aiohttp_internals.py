"""The internals of aiohttp that paddlejob.kube.transport.http relies on.

pyproject.toml allows aiohttp below 3.15 only. Before that bound is raised, these tests must pass with the new
version. Each pair checks that a hook still works, and that aiohttp still needs it: if the second test of a
pair fails, the hook can be removed.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import tomllib
from pathlib import Path

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from paddlejob.kube.errors import TransportError
from paddlejob.kube.transport import http
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.tls import tls_context
from tests.kube.https_server import CA, Server, serve_bytes, transport_to
from tests.support.waiting import eventually_async

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
TLS = tls_context(ClusterConfig(server="https://127.0.0.1", certificate_authority=CA))

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
OK = HEAD + b"Content-Length: 2\r\n\r\n{}"
INVALID_CHUNK = b"not a chunk size\r\n"


def plain_session(**options) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20), **options)


async def get(session: aiohttp.ClientSession, server: Server) -> bytes:
    async with session.get(server.url, ssl=TLS) as response:
        return await response.read()


def idle_connection(session: aiohttp.ClientSession) -> ResponseHandler:
    ((protocol, _),) = next(iter(session.connector._conns.values()))
    return protocol


def test_the_installed_aiohttp_is_within_the_declared_bounds():
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    bounds = re.search(r"'aiohttp>=(\d+)\.(\d+),<(\d+)\.(\d+)'", str(project["dependencies"]))
    assert bounds is not None
    first, end = tuple(map(int, bounds.groups()[:2])), tuple(map(int, bounds.groups()[2:]))
    assert first <= tuple(map(int, aiohttp.__version__.split(".")[:2])) < end


# --- _Connector._get drops an idle connection with unexpected data


def test_the_overridden_method_of_the_connector_exists():
    method = aiohttp.TCPConnector._get
    assert inspect.iscoroutinefunction(method)
    assert list(inspect.signature(method).parameters) == ["self", "key", "traces"]
    assert "self._get(" in inspect.getsource(aiohttp.BaseConnector.connect)
    assert isinstance(inspect.getattr_static(ResponseHandler, "should_close"), property)
    assert isinstance(inspect.getattr_static(aiohttp.connector.Connection, "protocol"), property)


class Unasked:
    """Sends a second response on an idle connection."""

    def __init__(self) -> None:
        self.received = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await self.received.wait()
        writer.write(OK.replace(b"{}", b"[]"))
        await asyncio.Event().wait()

    async def second_body(self, session: aiohttp.ClientSession, server: Server) -> bytes:
        """Return the body that a second request gets after the unasked response has arrived."""
        assert await get(session, server) == b"{}"
        idle = idle_connection(session)
        self.received.set()
        await eventually_async(lambda: idle.should_close)
        return await get(session, server)


async def test_our_connector_drops_an_idle_connection_with_data():
    unasked = Unasked()
    async with serve_bytes(unasked) as server, plain_session(connector=http._Connector()) as session:
        assert await unasked.second_body(session, server) == b"{}"


async def test_aiohttp_reads_unasked_data_as_the_next_response():
    unasked = Unasked()
    async with serve_bytes(unasked) as server, plain_session() as session:
        assert await unasked.second_body(session, server) == b"[]"


# --- _session._retry_connection = False prevents a second PUT or DELETE


async def test_a_session_has_the_retry_flag():
    async with plain_session() as session:
        assert session._retry_connection is True
    async with serve_bytes(close_at_second_request) as server, transport_to(server) as transport:
        assert transport._open_session()._retry_connection is False


async def close_at_second_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("retries", "raised"),
    [pytest.param(False, aiohttp.ServerDisconnectedError, id="off"), pytest.param(True, None, id="on")],
)
async def test_the_flag_decides_whether_aiohttp_repeats_a_delete(retries, raised):
    async with serve_bytes(close_at_second_request) as server, plain_session() as session:
        session._retry_connection = retries
        await get(session, server)
        outcome = None
        try:
            async with session.delete(server.url, ssl=TLS) as response:
                await response.read()
        except aiohttp.ClientError as error:
            outcome = type(error)
    assert outcome is raised


# --- close() relies on callbacks that complete within a few rounds of the event loop


async def open_sockets_after_close(monkeypatch, rounds: int) -> int:
    """Close a transport after a cancelled request, and return the number of its open sockets."""
    asked = asyncio.Event()

    async def talk(reader, writer):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(http, "_MAX_CALLBACK_ROUNDS", rounds)
    async with serve_bytes(talk) as server, transport_to(server) as transport:
        request = asyncio.create_task(transport.request("GET", "/"))
        await asked.wait()
        request.cancel()
        await asyncio.wait([request])
        await transport.close()
        return sum(sock.fileno() >= 0 for sock in transport._sockets)


async def test_closing_needs_far_fewer_rounds_than_the_limit(monkeypatch):
    assert await open_sockets_after_close(monkeypatch, http._MAX_CALLBACK_ROUNDS // 4) == 0


async def test_aiohttp_returns_from_close_before_its_sockets_are_closed(monkeypatch):
    assert await open_sockets_after_close(monkeypatch, 0) == 1


# --- _check_connection finds the connection that aiohttp dropped after an invalid chunk


class Invalid:
    """Sends a chunk, and an invalid one when the reader waits for it."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n")
        await self.waiting.wait()
        writer.write(INVALID_CHUNK)
        await asyncio.Event().wait()


async def test_a_stream_notices_an_invalid_chunk(monkeypatch):
    monkeypatch.setattr(http, "_LIVENESS_CHECK_SECONDS", 0.05)
    invalid = Invalid()
    async with (
        serve_bytes(invalid) as server,
        transport_to(server) as transport,
        transport.stream("/") as stream,
    ):
        chunks = stream.chunks()
        assert await anext(chunks) == b"a\n"
        invalid.waiting.set()
        with pytest.raises(TransportError, match="broke in the middle of a response"):
            await asyncio.wait_for(anext(chunks), 20)


async def test_aiohttp_drops_the_connection_after_an_invalid_chunk_without_waking_the_reader():
    invalid = Invalid()
    async with (
        serve_bytes(invalid) as server,
        plain_session() as session,
        session.get(server.url, ssl=TLS) as response,
    ):
        assert await response.content.readany() == b"a\n"
        reading = asyncio.create_task(response.content.readany())
        invalid.waiting.set()

        def is_dropped() -> bool:
            transport = response.connection and response.connection.transport
            return transport is None or transport.is_closing()

        await eventually_async(is_dropped)
        assert not reading.done()
        reading.cancel()
