"""Prepares a cluster's directory: ports, certificates, tokens and kubeconfigs."""

from __future__ import annotations

import secrets
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

from devcluster.build.programs import module
from devcluster.cache import write_atomically
from devcluster.control_plane.cluster import Access
from devcluster.control_plane.kubeconfig import write_kubeconfig
from devcluster.errors import DevclusterError
from devcluster.node.components import PLUGIN_DIRECTORIES, configuration_files
from devcluster.requirements import plugin_directory
from devcluster.settings import API_SERVER_NAMES, LOOPBACK, NODE_NAME, PORTS, ClusterSettings, Layout

ADMINISTRATOR = "admin"
MASTERS = "system:masters"
COMPONENT_USERS = {
    "kube-controller-manager": ("system:kube-controller-manager", MASTERS),
    "kube-scheduler": ("system:kube-scheduler", MASTERS),
    "coredns": ("system:coredns", MASTERS),
    "kube-proxy": ("system:kube-proxy", MASTERS),
    # A kubelet may touch its own node and pods only, as on every cluster.
    "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
}
"""Name and group."""


def free_ports() -> dict[str, int]:
    """Choose a free loopback port for everything that listens.

    Assumes: the components open them soon; until then another program may take one.
    """
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.socket()) for name in PORTS}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in sockets.items()}


def provision(settings: ClusterSettings, layout: Layout, pki: Path) -> Access:
    """Write everything the components read, and give the administrator's access."""
    for name in ("pki", "logs"):
        (layout.directory / name).mkdir(parents=True, exist_ok=True)
    layout.directory.chmod(0o700)
    _issue_certificates(settings, layout, pki)
    users = {ADMINISTRATOR: MASTERS, **dict(COMPONENT_USERS.values())}
    tokens = {user: secrets.token_urlsafe(32) for user in users}
    lines = (f'{token},{user},{user},"{users[user]}"\n' for user, token in tokens.items())
    write_atomically(layout.tokens, "".join(lines), mode=0o600)
    access = Access(
        directory=layout.directory,
        url=f"https://{layout.address}:{layout.ports['kube-apiserver']}",
        token=tokens[ADMINISTRATOR],
        ca_file=Path(layout.pki("ca.crt")),
        kubeconfig=layout.kubeconfig,
        version=module(settings.kubernetes).version,
        kubernetes=settings.kubernetes,
    )
    kubeconfigs = {ADMINISTRATOR: layout.kubeconfig}
    kubeconfigs |= {user: layout.component_kubeconfig(name) for name, (user, _) in COMPONENT_USERS.items()}
    for user, path in kubeconfigs.items():
        write_kubeconfig(path, url=access.url, ca_file=access.ca_file, token=tokens[user], user=user)
    if settings.has_node:
        write_node_files(settings, layout)
    return access


def _issue_certificates(settings: ClusterSettings, layout: Layout, pki: Path) -> None:
    names = ",".join(dict.fromkeys((LOOPBACK, layout.address, *API_SERVER_NAMES)))
    _issue(pki, layout, "apiserver", "-hosts", names)
    _issue(pki, layout, "service-account")
    _issue(pki, layout, "etcd", "-hosts", LOOPBACK)
    if settings.has_node:
        issue_for_kubelet(layout, pki)
        _issue(pki, layout, "apiserver-to-kubelet", "-organization", MASTERS)


def issue_for_kubelet(layout: Layout, pki: Path) -> None:
    """Make the certificate with which the node's kubelet serves the API server."""
    _issue(pki, layout, "kubelet", "-hosts", f"{layout.node_name},{layout.node.node_address}")


def write_node_files(settings: ClusterSettings, layout: Layout) -> None:
    """Write the configuration of the node's components."""
    plugins = plugin_directory()
    if plugins is None:
        raise DevclusterError(f"There are no network plugins in {' or '.join(PLUGIN_DIRECTORIES)}.")
    for path, text in configuration_files(settings, layout, plugins).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _issue(pki: Path, layout: Layout, name: str, *options: str) -> None:
    command = [str(pki), "-dir", str(layout.directory / "pki"), "-name", name, *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevclusterError(f"The certificate {name!r} could not be made: {result.stderr.strip()}")
