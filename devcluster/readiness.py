"""Tells when a component is ready, by asking it."""

from __future__ import annotations

import time
from pathlib import Path

from devcluster.client import ApiError, Client
from devcluster.cluster import Access
from devcluster.components import Settings, Site
from devcluster.processes import Child
from devcluster.programs import DevclusterError

POLL_SECONDS = 0.05
PORT_TAKEN = "address already in use"


class StartError(DevclusterError):
    """A component did not become ready."""


class PortTakenError(StartError):
    """Another program took a port between our choosing it and the component's opening it."""


def await_ready(child: Child, settings: Settings, site: Site, access: Access, *, deadline: float) -> None:
    """Wait until a component serves.

    Raises: StartError, with the tail of its log, when it ends or when the (monotonic) deadline passes.
    """
    probes = _probes(child.name, settings, site, access)
    while probes:
        problem = _problem(*probes[0])
        if problem is None:
            probes.pop(0)
            continue
        if not child.running():
            raise _start_error(child, f"ended with code {child.exit_code()} while starting")
        if time.monotonic() > deadline:
            raise _start_error(child, f"is not ready ({problem})")
        time.sleep(POLL_SECONDS)


def _probes(name: str, settings: Settings, site: Site, access: Access) -> list[tuple[Client, str]]:
    if name == "etcd":
        certificate = (Path(site.pki("etcd.crt")), Path(site.pki("etcd.key")))
        url = f"https://127.0.0.1:{site.ports['etcd']}"
        return [(Client(url, ca_file=access.ca_file, certificate=certificate), "/health")]
    apiserver = Client(access.url, ca_file=access.ca_file, token=access.token)
    if name == "kube-apiserver":
        # The default namespace appears a moment after /readyz turns ok.
        return [(apiserver, "/readyz"), (apiserver, "/api/v1/namespaces/default")]
    own = Client(f"https://127.0.0.1:{site.ports[name]}", ca_file=access.ca_file)
    probes = [(own, "/healthz")]
    if name == "kube-controller-manager" and "serviceaccount-controller" in settings.controllers:
        probes.append((apiserver, "/api/v1/namespaces/default/serviceaccounts/default"))
    return probes


def _problem(client: Client, path: str) -> str | None:
    try:
        client.text(path, timeout_seconds=5.0)
    except (ApiError, OSError) as error:
        return f"{path}: {error}"
    return None


def _start_error(child: Child, what: str) -> StartError:
    tail = child.log_tail()
    kind = PortTakenError if PORT_TAKEN in tail else StartError
    return kind(f"{child.name} {what}; its log {child.log} ends with:\n{tail}")
