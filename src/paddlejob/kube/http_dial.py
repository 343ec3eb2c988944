"""Opening connections to an API server: over TLS, and through a proxy where there is one."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from urllib.parse import SplitResult, unquote, urlsplit

from paddlejob.kube.address import port_of, read_address, without_password
from paddlejob.kube.cluster import ClusterConfig
from paddlejob.kube.errors import TransportError, TransportTimeoutError
from paddlejob.kube.http_connection import Connection, NoAnswerError
from paddlejob.kube.http_message import HttpError, header_lines, request_bytes
from paddlejob.kube.http_socket import connect, shake_hands


class Dialer:
    """Knows the way to one server."""

    def __init__(self, config: ClusterConfig, *, timeout_seconds: float) -> None:
        """Read the addresses.

        Raises ConfigError for one that leads nowhere.
        """
        self._config = config
        self._server = read_address(config.server, "the server", "https://HOST:PORT")
        self._proxy = (
            read_address(config.proxy_url, "the proxy", "http://HOST:PORT") if config.proxy_url else None
        )
        self._timeout_seconds = timeout_seconds
        self.host = self._server.netloc.rpartition("@")[2]
        """The server's name and port as requests carry it."""
        path = self._server.path.rstrip("/")
        self.target_prefix = f"http://{self.host}{path}" if self._asks_proxy else path
        """What comes before a path: a proxy that is not tunnelled through needs the whole URL."""

    @property
    def proxy_headers(self) -> list[tuple[str, str]]:
        """What such a proxy needs to see in every request."""
        return self._credentials(self._proxy) if self._proxy is not None and self._asks_proxy else []

    async def dial(self, context: ssl.SSLContext, on_lost: Callable[[Connection], None]) -> Connection:
        """Open a connection.

        Raises TransportError, with a sentence that says how far it came.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return Connection(await self._connected(context), on_lost)
        except TimeoutError as error:
            raise TransportTimeoutError(f"{self._config.server} gave no answer in time") from error
        except ssl.SSLCertVerificationError as error:
            raise TransportError(
                f"the certificate of {self._config.server} is not trusted: {error.verify_message}; "
                "check certificate-authority"
            ) from error
        except OSError as error:
            raise TransportError(f"cannot reach {self._config.server}: {error.strerror or error}") from error

    @property
    def _asks_proxy(self) -> bool:
        return self._proxy is not None and self._server.scheme == "http"

    async def _connected(self, context: ssl.SSLContext) -> socket.socket:
        sock = await (self._connected_to_proxy(self._proxy) if self._proxy else connect(self._server))
        if self._server.scheme != "https":
            return sock
        return await shake_hands(sock, context, self._expected_name)

    async def _connected_to_proxy(self, proxy: SplitResult) -> socket.socket:
        try:
            sock = await connect(proxy)
        except OSError as error:
            raise TransportError(
                f"cannot reach the proxy {self._shown_proxy}: {error.strerror or error}"
            ) from error
        if self._asks_proxy:
            return sock
        connection = Connection(sock, on_lost=lambda _: None)
        try:
            await self._ask_for_tunnel(connection, proxy)
        except BaseException:
            connection.close()
            raise
        return connection.release()

    async def _ask_for_tunnel(self, connection: Connection, proxy: SplitResult) -> None:
        """Have the proxy connect to the server; what follows is between the server and us."""
        host = self._server.hostname or ""
        target = f"{f'[{host}]' if ':' in host else host}:{port_of(self._server)}"
        headers = header_lines([("Host", target), *self._credentials(proxy)])
        refused = f"the proxy {self._shown_proxy} does not connect to {self._config.server}"
        try:
            answer = await connection.open(request_bytes("CONNECT", target, headers), tunnel=True)
        except (HttpError, NoAnswerError) as error:
            raise TransportError(f"{refused}: {str(error) or 'it closed the connection'}") from error
        if answer.status != 200:
            raise TransportError(f"{refused}: {answer.status} {answer.reason}")

    @property
    def _expected_name(self) -> str:
        return self._config.tls_server_name or self._server.hostname or ""

    @property
    def _shown_proxy(self) -> str:
        return without_password(urlsplit(self._config.proxy_url))

    @staticmethod
    def _credentials(proxy: SplitResult) -> list[tuple[str, str]]:
        if proxy.username is None:
            return []
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        return [("Proxy-Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")]
