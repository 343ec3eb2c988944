"""Where an API server is, how it is verified, and how we authenticate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paddlejob.kube.transport.url import without_password


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A credential plugin (client.authentication.k8s.io)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """Set in addition to our own environment."""
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    """Whether it may read from the terminal: Never, IfAvailable or Always."""
    cluster_info: Mapping[str, Any] | None = None
    """What the plugin is told about the cluster, if the kubeconfig says provideClusterInfo."""


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    """A user to act as."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class User(msgspec.Struct, frozen=True, kw_only=True):
    """How to authenticate; methods may be combined, as with kubectl."""

    token: str = ""
    token_file: Path | None = None
    """Re-read while running, since such tokens rotate; takes precedence over `token`."""
    client_certificate: bytes | Path | None = None
    """In PEM form; a file is re-read while running."""
    client_key: bytes | Path | None = None
    username: str = ""
    password: str = ""
    exec_plugin: ExecPlugin | None = None
    impersonate: Impersonation | None = None

    def __repr__(self) -> str:
        """Show the methods in use, and no secret."""
        given = [field for field in self.__struct_fields__ if getattr(self, field)]
        return f"User({', '.join(given)})"


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a transport needs to reach an API server."""

    server: str
    """http:// or https://, perhaps with a port and a path before /api."""
    source: str = ""
    """Where this was read from, for messages."""
    namespace: str = "default"
    certificate_authority: bytes | None = None
    """Trusted certificates in PEM form; None: those of the system."""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    """The name that the server's certificate must carry, when it is not the host of `server`."""
    proxy_url: str = ""
    user: User = User()

    def __repr__(self) -> str:
        """Show no secret: the URLs of the server and of a proxy may contain passwords."""
        server = without_password(self.server)
        return f"ClusterConfig(server={server!r}, source={self.source!r}, user={self.user!r})"
