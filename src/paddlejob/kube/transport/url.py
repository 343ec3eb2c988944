"""URLs of servers and proxies, checked once and alike wherever they come from.

The proxy for a server follows the rules of Go programs: HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from paddlejob.kube.errors import ConfigError


def parse_url(url: str, field: str, example: str) -> SplitResult:
    """Return the parts of a URL with a host; `field` says what it is, and where it was found.

    Raises ConfigError for one that cannot be used, without the password that may be in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        # The URL itself is not shown: without its parts, a password in it cannot be found.
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
    """Tell whether a name can be looked up, or is an address: its labels are not empty and not too long."""
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False


def port_of(url: SplitResult) -> int:
    """Return the port of a URL.

    Raises ValueError when it is not a port number.
    """
    return url.port or (443 if url.scheme == "https" else 80)


def without_password(url: SplitResult | str) -> str:
    """Return a URL as it may be shown, without user and password."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else url
    except ValueError:
        return "(invalid URL)"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def proxy_from_env(server: str, env: Mapping[str, str]) -> str:
    """Return the proxy that HTTPS_PROXY or HTTP_PROXY names for a server, empty when none applies.

    Guarantees that loopback addresses and what NO_PROXY lists are reached directly.
    Raises ConfigError when the proxy is of a kind that cannot be used.
    """
    url = urlsplit(server)
    name = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    value = env.get(name) or env.get(name.lower()) or ""
    if not value or _is_reached_directly(url, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return ""
    return usable_proxy(value if "://" in value else f"http://{value}", f"environment variable {name}")


def usable_proxy(proxy_url: str, field: str) -> str:
    """Return a proxy's URL after checking that it can be used: HTTPS and SOCKS proxies are not supported.

    Raises ConfigError when it cannot.
    """
    scheme, separator, _ = proxy_url.partition("://")
    if separator and scheme.lower() != "http":
        raise ConfigError(
            f"{field}: {scheme}:// proxies are not supported; write http://HOST:PORT "
            "(TLS to the API server is end to end through the proxy)"
        )
    parse_url(proxy_url, field, "http://HOST:PORT")
    return proxy_url


def _is_reached_directly(url: SplitResult, no_proxy: str) -> bool:
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
    """Tell whether an entry of NO_PROXY covers a host: a name or address, perhaps with a port, or a range."""
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
