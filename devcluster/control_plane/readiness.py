"""Waits until components are ready."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path

from devcluster.control_plane.client import ApiError, Client
from devcluster.control_plane.cluster import Access
from devcluster.errors import DevclusterError
from devcluster.node.components import (
    CONTAINERD_SOCKET,
    COREDNS_READY_PORT,
    KUBE_PROXY_HEALTH_PORT,
)
from devcluster.node.machine import READY
from devcluster.processes import Child
from devcluster.settings import ClusterSettings, Layout

Probe = Callable[[], None]
"""Returns if a component is ready, otherwise raises the reason."""

POLL_SECONDS = 0.05
PORT_TAKEN = "address already in use"


class StartError(DevclusterError):
    """A component did not become ready."""


class NotReadyError(Exception):
    """Something is not ready yet, and why."""


class PortTakenError(StartError):
    """Another program took a port between our choosing it and the component's opening it."""


def await_ready(
    child: Child, settings: ClusterSettings, layout: Layout, access: Access, *, deadline: float
) -> None:
    """Wait until a component serves.

    Raises: StartError, with the tail of its log, when it ends or when the (monotonic) deadline passes.
    """
    probes = _probes(child, settings, layout, access)
    while probes:
        problem = _problem(probes[0])
        if problem is None:
            probes.pop(0)
            continue
        if not child.running():
            raise _start_error(child, f"ended with code {child.exit_code()} while starting")
        if time.monotonic() > deadline:
            raise _start_error(child, f"is not ready ({problem})")
        time.sleep(POLL_SECONDS)


def _probes(child: Child, settings: ClusterSettings, layout: Layout, access: Access) -> list[Probe]:
    apiserver = Client(access.url, ca_file=access.ca_file, token=access.token)
    match child.name:
        case "machine":
            return [lambda: _exists(seen_from_here(child.record.pid, str(READY)))]
        case "etcd":
            certificate = (Path(layout.pki("etcd.crt")), Path(layout.pki("etcd.key")))
            url = f"https://127.0.0.1:{layout.ports['etcd']}"
            return [_answers(Client(url, ca_file=access.ca_file, certificate=certificate), "/health")]
        case "kube-apiserver":
            # The default namespace appears a moment after /readyz turns ok.
            return [_answers(apiserver, "/readyz"), _answers(apiserver, "/api/v1/namespaces/default")]
        case "containerd":
            return [lambda: _listens(seen_from_here(child.record.pid, CONTAINERD_SOCKET))]
        case "coredns":
            return [lambda: _serves(layout.node.node_address, COREDNS_READY_PORT, "/ready")]
        case "kube-proxy":
            return [lambda: _serves(layout.node.node_address, KUBE_PROXY_HEALTH_PORT, "/healthz")]
        case "kubelet":
            return [lambda: _node_is_ready(apiserver, layout.node_name)]
        case name:
            own = Client(f"https://127.0.0.1:{layout.ports[name]}", ca_file=access.ca_file)
            probes = [_answers(own, "/healthz")]
            if name == "kube-controller-manager" and "serviceaccount-controller" in settings.controllers:
                probes.append(_answers(apiserver, "/api/v1/namespaces/default/serviceaccounts/default"))
            return probes


def seen_from_here(pid: int, path: str) -> str:
    """Give the path on this machine of a file that a process on the node's machine sees at `path`."""
    return f"/proc/{pid}/root{path}"


def _answers(client: Client, path: str) -> Probe:
    def probe() -> None:
        try:
            client.text(path, timeout_seconds=5.0)
        except (ApiError, OSError) as error:
            raise NotReadyError(f"{path}: {error}") from error

    return probe


def _exists(path: str) -> None:
    if not Path(path).exists():
        raise NotReadyError(f"{path} is not there")


def _listens(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def _serves(host: str, port: int, path: str) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=5.0)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        raise NotReadyError(f"{path}: {error!r}") from error
    finally:
        connection.close()
    if status != 200:
        raise NotReadyError(f"{path} gave {status}")


def _node_is_ready(apiserver: Client, name: str) -> None:
    node = apiserver.request("GET", f"/api/v1/nodes/{name}", timeout_seconds=5.0)
    conditions = {each["type"]: each for each in node["status"].get("conditions", ())}
    if "Ready" not in conditions:
        raise NotReadyError("the node has not reported yet")
    if conditions["Ready"]["status"] != "True":
        raise NotReadyError(conditions["Ready"]["message"])


def _problem(probe: Probe) -> str | None:
    try:
        probe()
    except (ApiError, NotReadyError, OSError) as error:
        return str(error)
    return None


def _start_error(child: Child, what: str) -> StartError:
    tail = child.log_tail()
    kind = PortTakenError if PORT_TAKEN in tail else StartError
    return kind(f"{child.name} {what}; its log {child.log} ends with:\n{tail}")
