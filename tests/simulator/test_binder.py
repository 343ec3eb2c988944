"""Simulated gang schedulers keep pods with one host port apart, as real ones do."""

from __future__ import annotations

import random

from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.binder import Binder


def test_no_two_pods_with_one_host_port_are_on_a_node():
    async def main() -> None:
        server = ApiServer(rng=random.Random(0))
        ports = [{"containerPort": 6000, "hostPort": 6000}]
        container = {"name": "paddle", "image": "paddle", "ports": ports}
        for name in ("a", "b", "c"):
            pod = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}
            server.create(PODS, pod, identity="user")
        # Each is the first pod that a new scheduler binds, on the next node.
        placed = []
        for name in ("a", "b", "c"):
            binder = Binder(Client(server.transport("scheduler")), ("node-0", "node-1"))
            binder.look(server.objects(PODS))
            placed.append(await binder.bind(server.get(PODS, "default", name)))
        nodes = [pod["spec"].get("nodeName") for pod in server.objects(PODS)]
        assert (placed, nodes) == ([True, True, False], ["node-0", "node-1", None])

    virtual_loop.run(main(), seed=0)
