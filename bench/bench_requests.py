"""What one request costs on this machine: processor time of the client, of the API server and of etcd.

    PYTHONPATH=. python bench/bench_requests.py

Explains what bench_operator.py can reach: a job is a sum of such requests, and they share the processors.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from load import IN_FLIGHT, create_job, create_pod, side_by_side
from process import ROOT, SERVERS, Meter

from devcluster import ControlPlane
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.testing.build import job


async def cost(
    name: str,
    count: int,
    meter: Meter,
    request: Callable[[int], Awaitable[None]],
    in_flight: int = IN_FLIGHT,
) -> None:
    """Send so many requests of one kind and print what one of them took."""
    before, began = meter.read(), time.perf_counter()
    await side_by_side(range(count), request, in_flight)
    seconds, after = time.perf_counter() - began, meter.read()
    used = "".join(f"{1000 * (after[each] - before[each]) / count:14.2f} ms" for each in after)
    print(f"  {name:24}{count / seconds:8.0f}/s{used}", flush=True)


async def measure(plane: ControlPlane, count: int) -> None:
    meter = Meter()
    print(f"  {'':24}{'rate':>10}" + "".join(f"{name:>17}" for name in ("client", *SERVERS)))
    async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:

        async def submit(number: int) -> None:
            await create_job(client, job(f"job-{number}").ps(2).worker(2))

        async def write_job_status(number: int) -> None:
            patch = {"status": {"phase": "Pending", "message": f"number {number}"}}
            await client.patch(PADDLE_JOBS, "default", f"job-{number}", patch, subresource="status")

        async def write_pod_status(number: int) -> None:
            patch = {"status": {"phase": "Running", "podIP": "10.0.0.1"}}
            await client.patch(PODS, "default", f"pod-{number}", patch, subresource="status")

        async def annotate_pod(number: int) -> None:
            patch = {"metadata": {"annotations": {"number": str(number)}}}
            await client.patch(PODS, "default", f"pod-{number}", patch)

        async def read_job(number: int) -> None:
            await client.get(PADDLE_JOBS, "default", f"job-{number}")

        # The first requests open connections and fill caches.
        await asyncio.gather(*(client.has_resource(PODS) for _ in range(IN_FLIGHT)))
        await cost("create a bare pod", count, meter, lambda number: create_pod(client, f"pod-{number}"))
        await cost(
            "the same, one by one", count, meter, lambda number: create_pod(client, f"one-{number}"), 1
        )
        await cost("create a job", count, meter, submit)
        await cost("write a job's status", count, meter, write_job_status)
        await cost("write a pod's status", count, meter, write_pod_status)
        await cost("annotate a pod", count, meter, annotate_pod)
        await cost("read a job", count, meter, read_job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args()
    with ControlPlane.start() as plane:
        plane.apply(ROOT / "deploy/v1/crd.yaml")
        asyncio.run(measure(plane, options.count))


if __name__ == "__main__":
    main()
