"""The operator on a real API server, compared with a loop that only creates pods, in one run.

    make bench    or: python bench/bench_operator.py [--jobs 100] [--big 500] [--memory PODS] [--tree OTHER]

Most figures are ratios to the loop of the same run, because machines differ and may be busy.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import socket
import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load import create_job, create_pod, side_by_side, submission
from process import ROOT, SERVERS, Meter, Process, running

from devcluster import ControlPlane
from paddlejob.api import names
from paddlejob.api.pod import Pod
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import Create
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Snapshot
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.informer import Informer
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator.reconciler import status_patch
from simkube.build import JobBuilder, job


def free_port() -> int:
    """Return a free port, so that benchmarks can run in parallel."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


METRICS_PORT, HEALTH_PORT = free_port(), free_port()
START_SECONDS = 120


def operator_command(kubeconfig: Path) -> tuple[str, ...]:
    """Return the command line of the operator, with the ports of this run."""
    addresses = {"--metrics-bind-address": METRICS_PORT, "--health-probe-bind-address": HEALTH_PORT}
    flags = (part for flag, port in addresses.items() for part in (flag, f"127.0.0.1:{port}"))
    return "-m", "paddlejob.cli.main", "operator", "--kubeconfig", str(kubeconfig), *flags


class Watcher:
    """Notes when pods appear and when jobs run, as a client sees it."""

    def __init__(self, client: Client) -> None:
        self.pods_at: list[float] = []
        self.created_at: dict[str, float] = {}
        """By job: when its latest pod appeared."""
        self.pods_of: Counter[str] = Counter()
        """By job: how many of its pods have appeared."""
        self.running_at: dict[str, float] = {}
        self.completed: set[str] = set()
        self._changed = asyncio.Event()
        rng = random.Random(0)
        self._informers = [
            Informer(client, PODS, type=Pod, cache=Cache(), rng=rng, on_change=self._pod),
            Informer(client, PADDLE_JOBS, type=PaddleJob, cache=Cache(), rng=rng, on_change=self._job),
        ]

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(informer.run()) for informer in self._informers]
        for informer in self._informers:
            await informer.synced.wait()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def until(self, holds: Callable[[], bool], seconds: float = 300) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def _pod(self, old: Any, new: Any, *, initial: bool) -> None:
        if old is None:
            self.pods_at.append(time.perf_counter())
            owner = new.metadata.labels.get(names.LABEL_JOB, "")
            self.created_at[owner] = self.pods_at[-1]
            self.pods_of[owner] += 1
        self._changed.set()

    def _job(self, old: Any, new: Any, *, initial: bool) -> None:
        if new is not None and new.status.phase == "Running":
            self.running_at.setdefault(new.name, time.perf_counter())
        if new is not None and new.status.phase == "Completed":
            self.completed.add(new.name)
        self._changed.set()


async def submit(client: Client, *jobs: JobBuilder) -> None:
    await side_by_side(jobs, lambda built: create_job(client, built))


async def bare_loop(client: Client, name: str, count: int, labels: dict[str, str] | None = None) -> float:
    """Return the pods a second that a loop creates which does nothing else."""
    began = time.perf_counter()
    await side_by_side(range(count), lambda number: create_pod(client, f"{name}-{number}", labels))
    return count / (time.perf_counter() - began)


async def loop_with_kubelet(client: Client, count: int) -> float:
    """Return the same for a loop with a simulated kubelet that runs the pods, and delete the pods."""
    rate = await bare_loop(client, "loop", count, {names.LABEL_RESOURCE_TYPE: "loop"})
    await remove_pods(client)
    return rate


async def requests_alone(client: Client, count: int) -> float:
    """Return the pods per second of a script that sends the operator's requests until the last pod exists.

    For all jobs concurrently, it creates the job, its first status and its pods, from the plan. It does not
    watch or wait: the result is an upper bound for an operator with these requests.
    """

    async def send(number: int) -> None:
        built = job(f"script-{number}").ps(2).worker(2)
        created = await client.create(PADDLE_JOBS, "default", submission(built), type=PaddleJob)
        decided = plan(Snapshot(created, datetime.now(UTC)))
        status = {"status": status_patch(created.status, decided.status)}
        await client.patch(PADDLE_JOBS, "default", created.name, status, subresource="status")
        for stage in decided.stages:
            creations = [action for action in stage if isinstance(action, Create)]
            await asyncio.gather(
                *(client.create(PODS, "default", action.manifest, strict=True) for action in creations)
            )

    began = time.perf_counter()
    await side_by_side(range(count), send, in_flight=count)
    rate = 4 * count / (time.perf_counter() - began)
    for number in range(count):
        await client.delete(PADDLE_JOBS, "default", f"script-{number}")
    await remove_pods(client)
    return rate


async def remove_pods(client: Client) -> None:
    """Remove all pods that a kubelet runs, and wait until they are gone."""
    selector = names.LABEL_RESOURCE_TYPE
    while pods := (await client.list(PODS, "default", label_selector=selector, type=Pod)).items:
        for pod in pods:
            with suppress(NotFoundError):
                await client.delete(PODS, "default", pod.metadata.name, grace_seconds=0)


def writes_so_far() -> int:
    """Return the operator's writes, events included, from its own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    pattern = re.compile(
        r'^paddlejob_api_requests_total\{.*verb="(create|update|patch|delete)"\} (\S+)', re.MULTILINE
    )
    return round(sum(float(count) for _, count in pattern.findall(text)))


async def kubelet_running(client: Client) -> None:
    """Wait until the simulated kubelet runs a pod."""
    await create_pod(client, "first", {names.LABEL_RESOURCE_TYPE: "loop"})
    async with asyncio.timeout(START_SECONDS):
        while (await client.get(PODS, "default", "first", type=Pod)).status.phase != "Running":
            await asyncio.sleep(0.05)
    await remove_pods(client)


async def ready(operator: Process) -> None:
    """Wait until the operator has listed all objects, which takes long on a busy machine."""
    async with asyncio.timeout(START_SECONDS):
        while not await asyncio.to_thread(is_ready):
            if operator.child.poll() is not None:
                raise SystemExit(f"the operator exited with code {operator.child.returncode}")
            await asyncio.sleep(0.05)


def is_ready() -> bool:
    with (
        suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{HEALTH_PORT}/readyz", timeout=10) as answer,
    ):
        return answer.status == 200
    return False


async def many_jobs(
    client: Client, operator: Process, count: int, rates: dict[str, float]
) -> list[tuple[str, str]]:
    watcher, meter = Watcher(client), Meter()
    async with watcher.watching():
        servers = meter.read()
        cpu, writes, pods = operator.cpu_seconds(), writes_so_far(), len(watcher.pods_at)
        began = time.perf_counter()
        await submit(client, *(job(f"job-{number}").ps(2).worker(2) for number in range(count)))
        await watcher.until(lambda: len(watcher.running_at) == count)
        ended = time.perf_counter()
        await asyncio.sleep(2)
        used = {name: seconds - servers[name] for name, seconds in meter.read().items()}
    rate = 4 * count / (watcher.pods_at[-1] - began) if len(watcher.pods_at) - pods >= 4 * count else 0
    return [
        ("pods a second", f"{rate:.0f}"),
        *(
            (f"  of {name}'s {loop_rate:.0f}", f"{100 * rate / loop_rate:.0f} %")
            for name, loop_rate in rates.items()
        ),
        ("all Running after", f"{ended - began:.1f} s"),
        ("writes a job, events included", f"{(writes_so_far() - writes) / count:.1f}"),
        ("operator CPU a job", f"{1000 * (operator.cpu_seconds() - cpu) / count:.1f} ms"),
        *((f"{name} CPU a job", f"{1000 * used[name] / count:.1f} ms") for name in SERVERS),
        ("operator memory, peak", f"{operator.memory_megabytes('VmHWM'):.0f} MB"),
    ]


async def big_job(client: Client, operator: Process, workers: int) -> list[tuple[str, str]]:
    """Measure a big job, and how much it delays a small one that is submitted right after it."""
    alone = []
    watcher = Watcher(client)
    async with watcher.watching():
        for number in range(3):
            began = time.perf_counter()
            await submit(client, job(f"alone-{number}").ps(2).worker(2))
            await watcher.until(lambda name=f"alone-{number}": name in watcher.running_at)
            alone.append(watcher.created_at[f"alone-{number}"] - began)
        cpu, began = operator.cpu_seconds(), time.perf_counter()
        await submit(client, job("big").worker(workers))
        after = time.perf_counter()
        await submit(client, job("small").ps(2).worker(2))
        await watcher.until(lambda: {"big", "small"} <= watcher.running_at.keys())
    # Until its pods are created: how soon they run is up to the simulated kubelet, which takes turns.
    small, usual = watcher.created_at["small"] - after, statistics.median(alone)
    return [
        (f"a job of {workers} workers Running after", f"{watcher.running_at['big'] - began:.1f} s"),
        ("operator CPU for it", f"{1000 * (operator.cpu_seconds() - cpu):.0f} ms"),
        ("a small job alone: pods there after", f"{usual:.2f} s"),
        ("the same right after the big one", f"{small:.2f} s, {small - usual:+.2f} s"),
    ]


async def restart(client: Client, workers: int) -> list[tuple[str, str]]:
    """Measure how long it takes from the loss of one worker until all have been recreated."""
    watcher = Watcher(client)
    async with watcher.watching():
        await submit(client, job("lossy").worker(workers))
        await watcher.until(lambda: "lossy" in watcher.running_at)
        before, began = len(watcher.pods_at), time.perf_counter()
        await client.delete(PODS, "default", "lossy-worker-0", grace_seconds=0)
        await watcher.until(lambda: len(watcher.pods_at) >= before + workers)
    return [(f"{workers} workers, one lost: all recreated after", f"{watcher.pods_at[-1] - began:.1f} s")]


async def memory(client: Client, operator: Process, pods: int) -> list[tuple[str, str]]:
    """Measure the operator's memory with many pods in its cache; nothing runs them."""
    before, watcher = operator.memory_megabytes(), Watcher(client)
    async with watcher.watching():
        await submit(client, *(job(f"wide-{number}").worker(500) for number in range(pods // 500)))
        await watcher.until(lambda: len(watcher.pods_at) >= pods, seconds=600)
        await asyncio.sleep(3)
    grown = operator.memory_megabytes() - before
    return [
        (
            f"memory with {pods} pods",
            f"{operator.memory_megabytes():.0f} MB, {1024 * grown / pods:.1f} kB a pod",
        )
    ]


async def measure(options: argparse.Namespace, plane: Any, logs: Path) -> None:
    async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
        rates = {"a bare loop": await bare_loop(client, "bare", 1000)}
        operator = running(
            *operator_command(plane.kubeconfig), *options.flags, log=logs / "operator.log", tree=options.tree
        )
        if options.memory:
            with operator as process:
                await ready(process)
                report(await memory(client, process, options.memory))
            return
        with running("bench/bench_kubelet.py", str(plane.kubeconfig), log=logs / "kubelet.log"):
            await kubelet_running(client)
            rates["a bare loop with kubelet"] = await loop_with_kubelet(client, 4 * options.jobs)
            rates["its requests alone with kubelet"] = await requests_alone(client, options.jobs)
            with operator as process:
                await ready(process)
                report(await many_jobs(client, process, options.jobs, rates))
                report(await big_job(client, process, options.big))
                report(await restart(client, 100))


def report(rows: list[tuple[str, str]]) -> None:
    for name, figure in rows:
        print(f"  {name:38} {figure}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--big", type=int, default=500)
    parser.add_argument("--memory", type=int, default=0, metavar="PODS")
    parser.add_argument("--tree", type=Path, help="measure the operator of another checkout, with its .venv")
    parser.add_argument("flags", nargs="*", help="flags for the operator, after --")
    options = parser.parse_args()
    with ControlPlane.start() as plane:
        plane.apply((options.tree or ROOT) / "deploy/v1/crd.yaml")
        asyncio.run(measure(options, plane, plane.directory))


if __name__ == "__main__":
    main()
