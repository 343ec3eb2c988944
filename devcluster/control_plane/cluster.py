"""A running cluster as its users see it: an address, credentials, and a few conveniences for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from devcluster.build.compile import ensure
from devcluster.control_plane.client import Client
from devcluster.control_plane.kubeconfig import write_kubeconfig
from devcluster.control_plane.manifests import apply, await_found, read_manifests

KUBECTL_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Access:
    """How to reach a cluster as its administrator, and with which kubectl module."""

    directory: Path
    url: str
    token: str
    ca_file: Path
    kubeconfig: Path
    version: str
    kubernetes: str = "kubernetes"


class Cluster:
    """Reaches a running cluster; does not own its processes."""

    def __init__(self, access: Access) -> None:
        self.access = access

    @property
    def directory(self) -> Path:
        """Directory of the cluster; logs are in `logs/`."""
        return self.access.directory

    @property
    def url(self) -> str:
        """The API server's address."""
        return self.access.url

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self.access.token

    @property
    def ca_file(self) -> Path:
        """The certificate authority that vouches for the API server."""
        return self.access.ca_file

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.access.kubeconfig

    @property
    def version(self) -> str:
        """The Kubernetes version, like v1.35.4."""
        return self.access.version

    @cached_property
    def _client(self) -> Client:
        return Client(self.url, ca_file=self.ca_file, token=self.token)

    def request(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Send a request as administrator; see Client.request."""
        return self._client.request(method, path, body, **options)

    def apply(self, *manifests: Path | Mapping[str, Any]) -> None:
        """Apply objects, or all objects of files; see manifests.apply."""
        for each in manifests:
            apply(self.request, read_manifests(each) if isinstance(each, Path) else [each])

    def await_found(self, path: str) -> None:
        """Wait until a path can be read; see manifests.await_found."""
        await_found(self.request, path)

    def service_account_token(self, namespace: str, name: str, *, lifetime_seconds: int = 3600) -> str:
        """Mint a token of an existing service account, for tests of RBAC as it really is."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_seconds},
        }
        token = self.request("POST", path, body)["status"]["token"]
        assert isinstance(token, str)
        return token

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig that acts as an existing service account."""
        return write_kubeconfig(
            self.directory / f"{namespace}.{name}.kubeconfig",
            url=self.url,
            ca_file=self.ca_file,
            token=self.service_account_token(namespace, name),
            user=name,
            namespace=namespace,
        )

    def kubectl(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """Run the kubectl of the cluster's version and return its output.

        Raises: subprocess.CalledProcessError with stderr when it fails.
        """
        program = ensure(["kubectl"], kubernetes=self.access.kubernetes)["kubectl"]
        result = subprocess.run(
            [program, f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments],
            input=stdin,
            env={"HOME": str(self.directory)},
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT_SECONDS,
            check=False,
        )
        try:
            result.check_returncode()
        except subprocess.CalledProcessError as error:
            # The exception itself has only the exit code.
            error.add_note(result.stderr)
            raise
        return result.stdout
