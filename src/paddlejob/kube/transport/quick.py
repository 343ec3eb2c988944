"""A fast-starting transport for short-lived, read-only commands.

Importing aiohttp takes longer than most commands. So simple reads use the standard library; everything else
(writes, streams, proxies, a rejected token, any error) uses HttpTransport.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from paddlejob.kube.transport import Response, Stream, WebSocket
from paddlejob.kube.transport.auth import authenticator_for
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.tls import tls_context

if TYPE_CHECKING:
    from paddlejob.kube.transport.auth import Credentials
    from paddlejob.kube.transport.http import HttpTransport

RESPONSE_SIZE_LIMIT = 16 << 20
CONNECT_TIMEOUT_SECONDS = 10.0


class QuickTransport:
    """Connects to one API server; imports HttpTransport only if a request needs it."""

    def __init__(self, config: ClusterConfig, *, user_agent: str = "paddlejob") -> None:
        self._config = config
        self._user_agent = user_agent
        self._authenticator = authenticator_for(config.user)
        self._full: HttpTransport | None = None
        address = urlsplit(config.server)
        unusual = config.proxy_url or config.tls_server_name or config.user.impersonate or address.username
        self._is_simple = not unusual

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = 30.0,
    ) -> Response:
        if method == "GET" and self._is_simple and self._full is None:
            credentials = await self._authenticator.credentials()
            response = await asyncio.to_thread(self._get, path, query, credentials, timeout_seconds)
            if response is not None:
                return response
        return await self._transport().request(
            method, path, query=query, body=body, content_type=content_type, timeout_seconds=timeout_seconds
        )

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        return self._transport().stream(path, query=query, idle_timeout_seconds=idle_timeout_seconds)

    def websocket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport().websocket(path, query=query, protocols=protocols)

    async def close(self) -> None:
        if self._full is not None:
            await self._full.close()

    def _transport(self) -> HttpTransport:
        if self._full is None:
            from paddlejob.kube.transport.http import HttpTransport  # noqa: PLC0415 - imports aiohttp

            self._full = HttpTransport(
                self._config, authenticator=self._authenticator, user_agent=self._user_agent
            )
        return self._full

    def _get(
        self,
        path: str,
        query: Mapping[str, str] | None,
        credentials: Credentials,
        timeout_seconds: float | None,
    ) -> Response | None:
        """Return the response, or None if HttpTransport has to repeat the request."""
        address = urlsplit(self._config.server)
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        target = f"{address.path.rstrip('/')}{path}"
        if query:
            target = f"{target}?{urlencode(query, quote_via=quote)}"
        try:
            connection = self._connection(credentials, timeout_seconds or CONNECT_TIMEOUT_SECONDS)
            try:
                connection.request("GET", target, headers=headers)
                answer = connection.getresponse()
                content = answer.read(RESPONSE_SIZE_LIMIT + 1)
            finally:
                connection.close()
        except (OSError, ValueError, http.client.HTTPException):
            return None
        if answer.status == 401 or len(content) > RESPONSE_SIZE_LIMIT:
            return None
        return Response(answer.status, content, {key.lower(): value for key, value in answer.getheaders()})

    def _connection(self, credentials: Credentials, timeout_seconds: float) -> http.client.HTTPConnection:
        address = urlsplit(self._config.server)
        host, port = address.hostname or "", address.port
        if address.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        context = tls_context(self._config, credentials.client_certificate)
        return http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=context)
