"""Server address, impersonation and proxy headers, and error messages for failed requests."""

from __future__ import annotations

import os
import re
import socket
import ssl
from urllib.parse import SplitResult, quote, unquote

import aiohttp
from aiohttp.http import HttpProcessingError

from paddlejob.kube.errors import ConfigError
from paddlejob.kube.transport.auth import basic
from paddlejob.kube.transport.cluster import (
    ClusterConfig,
    Impersonation,
    is_host_name,
    parse_url,
    without_password,
)

Headers = list[tuple[str, str]]
"""Pairs, because impersonation repeats header names."""

_OPENSSL_TEXT = re.compile(r"\[SSL[^]]*\] (.*?)( \(_ssl\.c:\d+\))?$")


class Endpoint:
    """The addresses of a server and its proxy, without passwords."""

    def __init__(self, config: ClusterConfig) -> None:
        """Check the addresses. Raises ConfigError for an invalid one."""
        server = parse_url(config.server, "the server", "https://HOST:PORT")
        if config.tls_server_name and not is_host_name(config.tls_server_name):
            where = f"{config.source}: " if config.source else ""
            raise ConfigError(f"{where}tls-server-name: invalid host name {config.tls_server_name!r}")
        self.server = without_password(server).rstrip("/")
        self.authorization = _authorization_in(server) if server.scheme == "https" else ""
        """From the URL, for requests without other credentials, as in Go clients."""
        self.headers = _impersonation(config.user.impersonate)
        self.proxy = ""
        self.proxy_headers: dict[str, str] = {}
        if config.proxy_url:
            proxy = parse_url(config.proxy_url, "the proxy", "http://HOST:PORT")
            self.proxy = without_password(proxy)
            authorization = _authorization_in(proxy)
            if authorization and server.scheme == "https":
                self.proxy_headers["Proxy-Authorization"] = authorization
            elif authorization:
                self.headers.append(("Proxy-Authorization", authorization))

    def timeout_message(self, error: TimeoutError) -> str:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"unable to connect to {self.server}: timed out"
        return f"request to {self.server} timed out"

    def error_message(self, error: Exception) -> str:
        match error:
            case aiohttp.ClientHttpProxyError():
                refusal = f"{error.status} {error.message}"
                return f"proxy {self.proxy} is unable to connect to {self.server}: {refusal}"
            case aiohttp.ClientConnectorError():
                peer = f"proxy {self.proxy}" if self._is_about_proxy(error) else self.server
                return f"unable to connect to {peer}: {_reason(error)}"
            case aiohttp.InvalidURL() | UnicodeError():
                return f"invalid URL {self.server!r}"
            case aiohttp.ServerDisconnectedError():
                return f"{self.server} closed the connection without a response"
            case aiohttp.ClientPayloadError():
                return f"the connection to {self.server} broke in the middle of a response"
            case _:
                return f"the connection to {self.server} failed: {_detail(error)}"

    def _is_about_proxy(self, error: aiohttp.ClientConnectorError) -> bool:
        """Return whether the proxy failed; with a proxy, only the proxy's name is resolved."""
        return isinstance(error, aiohttp.ClientProxyConnectionError) or (
            bool(self.proxy) and isinstance(error, aiohttp.ClientConnectorDNSError)
        )


def _reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        detail = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return f"its certificate is not trusted: {detail}; check certificate-authority"
    cause = error.os_error
    if isinstance(cause, ssl.SSLError):
        return f"TLS handshake failed: {_detail(cause)}"
    return _detail(cause)


def _detail(error: Exception) -> str:
    """Return the text of an error on one line, without the address or URL added by libraries."""
    if isinstance(error, HttpProcessingError | aiohttp.ClientResponseError):
        return " ".join(error.message.split())
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if found := _OPENSSL_TEXT.search(text):
        return found[1]
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno).lower()
    return text


def _authorization_in(url: SplitResult) -> str:
    return basic(unquote(url.username), unquote(url.password or "")) if url.username else ""


def _impersonation(whom: Impersonation | None) -> Headers:
    if whom is None:
        return []
    headers = [("Impersonate-User", whom.user)]
    if whom.uid:
        headers.append(("Impersonate-Uid", whom.uid))
    headers += [("Impersonate-Group", group) for group in whom.groups]
    headers += [
        (f"Impersonate-Extra-{quote(key, safe='')}", value)
        for key, values in whom.extra.items()
        for value in values
    ]
    return headers
