"""What a request costs the client over our own transport, beside aiohttp, in one run.

    PYTHONPATH=. python bench/bench_transport.py

Both create the same pods on a real API server, taking turns; only this process's CPU time counts.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec
from load import IN_FLIGHT, side_by_side

from devcluster import ControlPlane
from paddlejob.kube.auth import authenticator_for
from paddlejob.kube.config import load_config
from paddlejob.kube.http_transport import HttpTransport
from paddlejob.kube.tls import tls_context

PATH = "/api/v1/namespaces/default/pods"
ROUNDS = 5

Post = Callable[[bytes], Awaitable[int]]
number = itertools.count()


def pod() -> bytes:
    spec = {"containers": [{"name": "paddle", "image": "paddle:test"}]}
    return msgspec.json.encode({"metadata": {"name": f"pod-{next(number)}"}, "spec": spec})


async def milliseconds(post: Post, count: int, in_flight: int) -> float:
    """Return the CPU time of one creation."""

    async def create(_: int) -> None:
        assert await post(pod()) == 201

    began = time.process_time()
    await side_by_side(range(count), create, in_flight)
    return 1000 * (time.process_time() - began) / count


async def measure(plane: ControlPlane, count: int) -> None:
    config = load_config(plane.kubeconfig)
    identity = await authenticator_for(config.user).identity()
    context = tls_context(config, identity.client_certificate)
    own = HttpTransport(config)
    headers = {"Content-Type": "application/json", "Authorization": identity.authorization}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:

        async def over_aiohttp(body: bytes) -> int:
            async with session.post(config.server + PATH, data=body, headers=headers) as response:
                await response.read()
                return response.status

        async def over_own(body: bytes) -> int:
            return (await own.request("POST", PATH, body=body)).status

        for in_flight in (1, IN_FLIGHT):
            posts = {"aiohttp": over_aiohttp, "our own": over_own}
            costs: dict[str, list[float]] = {name: [] for name in posts}
            # The first round opens connections and fills caches.
            for turn, (name, post) in itertools.product(range(ROUNDS + 1), posts.items()):
                cost = await milliseconds(post, count, in_flight)
                if turn:
                    costs[name].append(cost)
            medians = {name: statistics.median(each) for name, each in costs.items()}
            shown = ", ".join(f"{name} {median:.2f} ms" for name, median in medians.items())
            print(
                f"  {in_flight:3} in flight: {shown}, {medians['our own'] / medians['aiohttp']:.0%}",
                flush=True,
            )
    await own.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    with ControlPlane.start() as plane:
        asyncio.run(measure(plane, options.count))


if __name__ == "__main__":
    main()
