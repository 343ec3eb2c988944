"""Binds pods to nodes as a simulated gang scheduler does: in turn, no two with one host port on a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from paddlejob.api.meta import JsonObject
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from simkube.kubelet.node_pool import host_ports


class Binder:
    """Knows which node's turn it is, and which ports are taken."""

    def __init__(self, client: Client, nodes: Sequence[str]) -> None:
        self._client = client
        self._nodes = tuple(nodes)
        self._bound = 0
        self._taken: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def look(self, pods: Iterable[JsonObject]) -> None:
        """Take note of all pods that there are."""
        self._taken.clear()
        for pod in pods:
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                self._taken[pod["spec"].get("nodeName", "")] |= host_ports(pod)

    async def bind(self, pod: JsonObject) -> bool:
        """Bind a pod if there is a node for it and it is not bound yet."""
        ports, metadata = host_ports(pod), pod["metadata"]
        turns = [self._nodes[(self._bound + step) % len(self._nodes)] for step in range(len(self._nodes))]
        node = next((node for node in turns if not ports & self._taken[node]), None)
        if node is None:
            return False
        self._bound += 1
        # Also if the answer is lost: the pod may be there.
        self._taken[node] |= ports
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(
                PODS, metadata["namespace"], body, name=metadata["name"], subresource="binding", type=dict
            )
        except (errors.NotFoundError, errors.ConflictError):
            return False
        return True
