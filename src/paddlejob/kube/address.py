"""URLs of servers and proxies, checked once and alike wherever they were found."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from paddlejob.kube.errors import ConfigError


def read_address(url: str, called: str, example: str) -> SplitResult:
    """Return the parts of a URL that leads to a host; `called` is what it is, and where it stands.

    Raises ConfigError for one that leads nowhere, without the password that may be in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{called} is no address: {error}; write {example}") from error
    shown = without_password(parts)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{called} {shown!r} is no address; write {example}")
    try:
        port_of(parts)
    except ValueError as error:
        raise ConfigError(f"{called} {shown!r} has no port that exists; write {example}") from error
    return parts


def port_of(url: SplitResult) -> int:
    """Return the port of a URL.

    Raises ValueError when it is none.
    """
    return url.port or (443 if url.scheme == "https" else 80)


def without_password(url: SplitResult) -> str:
    """Return a URL as it may be shown."""
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
