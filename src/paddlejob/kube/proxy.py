"""Which HTTP proxy stands between us and a server, by the rules that Go programs follow."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from paddlejob.kube.address import port_of, read_address
from paddlejob.kube.errors import ConfigError


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
    return usable_proxy(value if "://" in value else f"http://{value}", f"the environment's {name}")


def usable_proxy(proxy_url: str, source: str) -> str:
    """Return a proxy's URL after checking that it can be used.

    Raises ConfigError when it cannot.
    """
    url = urlsplit(proxy_url)
    if url.scheme != "http":
        raise ConfigError(
            f"{source} is a proxy of kind {url.scheme or 'unknown'!r}, and only http:// proxies can be used: "
            "TLS to the API server is end to end through them; run an HTTP CONNECT proxy in front of it"
        )
    if not url.hostname:
        raise ConfigError(f"{source} names no host; write it as http://HOST:PORT")
    read_address(proxy_url, source, "http://HOST:PORT")
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
