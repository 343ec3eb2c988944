"""Prepares a cluster's directory: ports, certificates, tokens and kubeconfigs."""

from __future__ import annotations

import secrets
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

from devcluster.cache import write_atomically
from devcluster.cluster import Access
from devcluster.components import API_SERVER_NAMES, PORTS, Settings, Site
from devcluster.kubeconfig import write_kubeconfig
from devcluster.programs import DevclusterError, module

ADMINISTRATOR = "admin"
COMPONENT_USERS = {
    "kube-controller-manager": "system:kube-controller-manager",
    "kube-scheduler": "system:kube-scheduler",
}


def free_ports() -> dict[str, int]:
    """Choose a free loopback port for everything that listens.

    Assumes: the components open them soon; until then another program may take one.
    """
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.socket()) for name in PORTS}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in sockets.items()}


def provision(settings: Settings, site: Site, pki: Path) -> Access:
    """Write everything the components read, and give the administrator's access."""
    for name in ("pki", "logs"):
        (site.directory / name).mkdir(parents=True, exist_ok=True)
    site.directory.chmod(0o700)
    names = ",".join(dict.fromkeys(("127.0.0.1", settings.address, *API_SERVER_NAMES)))
    _issue(pki, site, "apiserver", "-hosts", names)
    _issue(pki, site, "service-account")
    _issue(pki, site, "etcd", "-hosts", "127.0.0.1")
    tokens = {user: secrets.token_urlsafe(32) for user in (ADMINISTRATOR, *COMPONENT_USERS.values())}
    lines = (f'{token},{user},{user},"system:masters"\n' for user, token in tokens.items())
    write_atomically(site.tokens, "".join(lines), mode=0o600)
    access = Access(
        directory=site.directory,
        url=f"https://{settings.address}:{site.ports['kube-apiserver']}",
        token=tokens[ADMINISTRATOR],
        ca_file=Path(site.pki("ca.crt")),
        kubeconfig=site.kubeconfig,
        version=module(settings.kubernetes).version,
        kubernetes=settings.kubernetes,
    )
    kubeconfigs = {ADMINISTRATOR: site.kubeconfig}
    kubeconfigs |= {user: site.component_kubeconfig(name) for name, user in COMPONENT_USERS.items()}
    for user, path in kubeconfigs.items():
        write_kubeconfig(path, url=access.url, ca_file=access.ca_file, token=tokens[user], user=user)
    return access


def _issue(pki: Path, site: Site, name: str, *options: str) -> None:
    command = [str(pki), "-dir", str(site.directory / "pki"), "-name", name, *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevclusterError(f"The certificate {name!r} could not be made: {result.stderr.strip()}")
