"""Where an API server is, how it is verified, and who we are to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paddlejob.kube.transport.url import without_password


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints credentials (client.authentication.k8s.io)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """Set in addition to our own environment."""
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    """Whether it may read from the terminal: Never, IfAvailable or Always."""
    cluster_info: Mapping[str, Any] | None = None
    """What the program is told of the cluster, where its user asked for that (provideClusterInfo)."""


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else to act as."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are; several ways may be combined, as kubectl does."""

    token: str = ""
    token_file: Path | None = None
    """Read again while running, since such tokens rotate; comes before `token`."""
    client_certificate: bytes | Path | None = None
    """In PEM form; a file is read again while running."""
    client_key: bytes | Path | None = None
    username: str = ""
    password: str = ""
    exec_plugin: ExecPlugin | None = None
    impersonate: Impersonation | None = None

    def __repr__(self) -> str:
        """Show which ways are used, and no secret."""
        given = [field for field in self.__struct_fields__ if getattr(self, field)]
        return f"User({', '.join(given)})"


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a transport needs to reach an API server."""

    server: str
    """http:// or https://, perhaps with a port and a path before /api."""
    source: str = ""
    """Where this was found, for messages."""
    namespace: str = "default"
    certificate_authority: bytes | None = None
    """Trusted certificates in PEM form; None trusts those of the system."""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    """The name that the server's certificate must carry, when it is not the host of `server`."""
    proxy_url: str = ""
    user: User = User()

    def __repr__(self) -> str:
        """Show where this leads, and no secret: the URLs of the server and of a proxy may hold passwords."""
        server = without_password(self.server)
        return f"ClusterConfig(server={server!r}, source={self.source!r}, user={self.user!r})"
