"""Configuration of the connection to an API server: address, proxy, TLS and authentication.

Proxies follow the rules of Go programs for HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from paddlejob.kube.errors import ConfigError


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A credential plugin (client.authentication.k8s.io)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """Added to this process's environment."""
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    """Whether it may read from the terminal: Never, IfAvailable or Always."""
    cluster_info: Mapping[str, Any] | None = None
    """Information about the cluster for the plugin, if provideClusterInfo is set."""


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication methods, which may be combined as with kubectl."""

    token: str = ""
    token_file: Path | None = None
    """Read again periodically, because such tokens rotate; takes precedence over `token`."""
    client_certificate: bytes | Path | None = None
    """In PEM form; a file is read again periodically."""
    client_key: bytes | Path | None = None
    username: str = ""
    password: str = ""
    exec_plugin: ExecPlugin | None = None
    impersonate: Impersonation | None = None

    def __repr__(self) -> str:
        """Show no secrets."""
        given = [field for field in self.__struct_fields__ if getattr(self, field)]
        return f"User({', '.join(given)})"


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    """An http:// or https:// URL, optionally with a port and a path before /api."""
    source: str = ""
    """The origin of this configuration, for messages."""
    namespace: str = "default"
    certificate_authority: bytes | None = None
    """Trusted certificates in PEM form; None for the system's certificates."""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    """The expected name in the server's certificate, if it differs from the host of `server`."""
    proxy_url: str = ""
    user: User = User()

    def __repr__(self) -> str:
        """Show no secrets; the URLs of the server and the proxy may contain passwords."""
        server = without_password(self.server)
        return f"ClusterConfig(server={server!r}, source={self.source!r}, user={self.user!r})"


def parse_url(url: str, field: str, example: str) -> SplitResult:
    """Parse a URL with a host; `field` names its origin in error messages.

    Raises ConfigError, without the password in the URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        # Do not show the URL, because a password in it cannot be located.
        raise ConfigError(f"{field}: invalid URL: {error}; write {example}") from None
    shown = without_password(parts)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{field}: invalid URL {shown!r}; write {example}")
    if not is_host_name(parts.hostname):
        raise ConfigError(f"{field}: invalid URL {shown!r}: invalid host name; write {example}")
    try:
        port_of(parts)
    except ValueError:
        raise ConfigError(f"{field}: invalid URL {shown!r}: invalid port; write {example}") from None
    return parts


def is_host_name(name: str) -> bool:
    """Return whether a name is a valid host name or address: no label is empty or too long."""
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False


def port_of(url: SplitResult) -> int:
    """Return the port of a URL. Raises ValueError if it is not a port number."""
    return url.port or (443 if url.scheme == "https" else 80)


def without_password(url: SplitResult | str) -> str:
    """Return a URL without user and password."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else url
    except ValueError:
        return "(invalid URL)"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def proxy_from_env(server: str, env: Mapping[str, str]) -> str:
    """Return the proxy in HTTPS_PROXY or HTTP_PROXY for a server, or an empty string.

    Loopback addresses and the hosts in NO_PROXY need no proxy.
    Raises ConfigError for an unsupported proxy.
    """
    url = urlsplit(server)
    name = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    value = env.get(name) or env.get(name.lower()) or ""
    if not value or _bypasses_proxy(url, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return ""
    return check_proxy(value if "://" in value else f"http://{value}", f"environment variable {name}")


def check_proxy(proxy_url: str, field: str) -> str:
    """Return the URL of a proxy. Raises ConfigError for HTTPS and SOCKS proxies, which are not supported."""
    scheme, separator, _ = proxy_url.partition("://")
    if separator and scheme.lower() != "http":
        raise ConfigError(
            f"{field}: {scheme}:// proxies are not supported; write http://HOST:PORT "
            "(TLS to the API server is end to end through the proxy)"
        )
    parse_url(proxy_url, field, "http://HOST:PORT")
    return proxy_url


def _bypasses_proxy(url: SplitResult, no_proxy: str) -> bool:
    host = (url.hostname or "").lower()
    port = port_of(url)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, port, address) for entry in no_proxy.split(","))


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _matches(entry: str, host: str, port: int, address: _Address | None) -> bool:
    """Return whether a NO_PROXY entry matches a host: a name or address with an optional port, or a range."""
    if entry in {"", "*"}:
        return entry == "*"
    if "/" in entry:
        return address is not None and _is_in_range(address, entry)
    listed_address = _address(entry)
    if listed_address is None:
        entry, colon, listed_port = entry.rpartition(":") if ":" in entry else (entry, "", "")
        if colon and listed_port != str(port):
            return False
        listed_address = _address(entry)
    if address is not None or listed_address is not None:
        return address == listed_address
    name = entry.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _is_in_range(address: _Address, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
