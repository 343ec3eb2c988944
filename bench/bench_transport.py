"""The CPU time of a request in the client, and the memory of its connections, by the connection limit.

    PYTHONPATH=. python bench/bench_transport.py [--count 1000] [--connections 8 16 32 64 100]

Creates pods on a real API server, 100 at a time as the operator does, in a new process for each number of
connections and in several rounds; only the CPU time and peak memory of that process count.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time

import msgspec
from load import side_by_side

from devcluster import ControlPlane
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport

PATH = "/api/v1/namespaces/default/pods"
IN_FLIGHT = 100
ROUNDS = 3


def pod(name: str) -> bytes:
    spec = {"containers": [{"name": "paddle", "image": "paddle:test"}]}
    return msgspec.json.encode({"metadata": {"name": name}, "spec": spec})


async def load(kubeconfig: str, name: str, count: int, connections: int) -> dict[str, float]:
    """Create pods; return the time of one, and the peak memory of this process."""
    transport = HttpTransport(load_config(kubeconfig), connection_limit=connections)

    async def create(number: int) -> None:
        assert (await transport.request("POST", PATH, body=pod(f"{name}-{number}"))).status == 201

    cpu, began = time.process_time(), time.perf_counter()
    await side_by_side(range(count), create, IN_FLIGHT)
    seconds = time.perf_counter() - began
    await transport.close()
    return {
        "requests/s": count / seconds,
        "ms of CPU": 1000 * (time.process_time() - cpu) / count,
        "MB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure(plane: ControlPlane, count: int, limits: list[int]) -> None:
    figures: dict[int, list[dict[str, float]]] = {limit: [] for limit in limits}
    # Taking turns, so that a busy minute of the machine hits all of them.
    for turn, limit in itertools.product(range(ROUNDS), limits):
        load_of = ["--load", str(plane.kubeconfig), f"pod-{turn}-{limit}", str(count), str(limit)]
        child = subprocess.run([sys.executable, __file__, *load_of], check=True, stdout=subprocess.PIPE)
        figures[limit].append(json.loads(child.stdout))
    for limit, rounds in figures.items():
        shown = (f"{statistics.median(each[name] for each in rounds):8.2f} {name}" for name in rounds[0])
        print(f"  {limit:4} connections:" + "".join(shown), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--load"]:
        kubeconfig, name, count, connections = sys.argv[2:]
        print(json.dumps(asyncio.run(load(kubeconfig, name, int(count), int(connections)))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--connections", type=int, nargs="+", default=[8, 16, 32, 64, 100])
    options = parser.parse_args()
    with ControlPlane.start() as plane:
        measure(plane, options.count, options.connections)


if __name__ == "__main__":
    main()
