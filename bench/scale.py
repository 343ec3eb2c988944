"""The operator with 1,000 jobs and 10,000 pods on a real API server, with a simulated kubelet.

    make bench-scale    or: PYTHONPATH=. python bench/scale.py size|fairness|churn [--jobs N]

A figure above its limit ends the run with code 1; otherwise, with the default number of jobs, the figures are
written to docs/proof.md. Time limits allow for a busy machine with two cores, which the API server, etcd, the
kubelet and the operator share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from bench_operator import METRICS_PORT, Watcher, kubelet_running, operator_command, ready, submit
from load import side_by_side
from process import ROOT, Process, running

from devcluster import ControlPlane
from paddlejob.api.pod import Pod
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import Client
from paddlejob.kube.resource import NAMESPACES, PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from scripts.proof_page import table, write_section
from simkube.build import JobBuilder, job

WORKERS = 10
STEPS = (1, 10, 100, 1000)
"""Number of jobs after which growth is measured."""
SHOWN = (100, 1000, 2500, 5000)
"""Number of completed jobs after which memory is printed."""
TENANTS = 5
AUDIT_LOG = "audit.log"
LATEST_SECONDS = 900.0


class Report:
    """Prints figures as they come, and remembers those above their limit."""

    def __init__(self) -> None:
        self.missed = 0
        self._rows: list[tuple[str, str, str]] = []
        self._steps: list[tuple[str, ...]] = []

    def add(self, name: str, figure: float, unit: str, at_most: float | None = None) -> None:
        within = at_most is None or figure <= at_most
        self.missed += not within
        limit = "" if at_most is None else f"at most {at_most:g}{'' if within else ', MISSED'}"
        print(f"  {name:60} {figure:8.2f} {unit:5} {limit}", flush=True)
        label = f"- {name.strip()}" if name.startswith(" ") else name
        self._rows.append((label, f"{figure:.2f} {unit}".strip(), limit))

    def add_step(self, jobs: int, **figures: str) -> None:
        """Print the measurements for a number of jobs."""
        self._steps.append((f"{jobs:,}", *figures.values()))
        print(f"  {jobs} jobs: {', '.join(f'{name} {text}' for name, text in figures.items())}", flush=True)

    def page(self) -> str:
        """Return all of it as docs/proof.md shows it."""
        steps = (
            "jobs of 10 pods",
            "until all new ones run",
            "pods created, p50",
            "p99",
            "CPU per job",
            "memory",
        )
        parts = [table(steps, self._steps)] if self._steps else []
        return "\n\n".join((*parts, table(("", "measured", "limit"), self._rows)))


class Bench:
    """One API server with a kubelet, and operators that come and go."""

    def __init__(self, client: Client, plane: ControlPlane) -> None:
        self.client = client
        self.plane = plane
        self.watcher = Watcher(client)
        self.report = Report()

    def operator(self) -> AbstractContextManager[Process]:
        return running(*operator_command(self.plane.kubeconfig), log=self.plane.directory / "operator.log")

    async def submit(self, *jobs: JobBuilder) -> list[float]:
        """Submit jobs; wait for their pods, and return the time of each job."""
        watcher = self.watcher
        wanted = {built.manifest["metadata"]["name"]: _replicas(built) for built in jobs}
        await submit(self.client, *jobs)
        await watcher.until(
            lambda: all(watcher.pods_of[name] >= count for name, count in wanted.items()), LATEST_SECONDS
        )
        return self._delays(wanted)

    def _delays(self, jobs: Iterable[str]) -> list[float]:
        """Return how long after each job the last of its pods was created, by the API server's own log.

        On a busy server watches are too late for that.
        """
        created, last_pod = dict[str, datetime](), dict[str, datetime]()
        with (self.plane.directory / AUDIT_LOG).open("rb") as lines:
            for event in map(json.loads, lines):
                name, at = event["objectRef"]["name"], datetime.fromisoformat(event["stageTimestamp"])
                if event["objectRef"]["resource"] == PADDLE_JOBS.plural:
                    created[name] = at
                else:
                    owner = name.rsplit("-", 2)[0]  # job-role-index
                    last_pod[owner] = max(at, last_pod.get(owner, at))
        return sorted((last_pod[name] - created[name]).total_seconds() for name in jobs)

    async def run(self, *jobs: JobBuilder) -> list[float]:
        """Do the same, and wait until the jobs run."""
        took, names = await self.submit(*jobs), {built.manifest["metadata"]["name"] for built in jobs}
        await self.watcher.until(lambda: names <= self.watcher.running_at.keys(), LATEST_SECONDS)
        return took


def _replicas(built: JobBuilder) -> int:
    spec = built.manifest["spec"]
    return sum(spec[role]["replicas"] for role in ("ps", "worker") if role in spec)


async def size(bench: Bench, jobs: int) -> None:
    """Let jobs come in growing numbers, restart the operator among them, delete a namespace of others."""
    report = bench.report
    with bench.operator() as operator:
        await ready(operator)
        await growth(bench, operator, jobs)
        report.add(
            "operator memory, peak", operator.memory_megabytes("VmHWM"), "MB", 95 * max(1.0, jobs / 1000)
        )
    began = time.perf_counter()
    with bench.operator() as operator:
        await ready(operator)
        report.add("operator restarted: everything is listed after", time.perf_counter() - began, "s", 30)
        await reconciled(jobs)
        report.add("  every job is reconciled after", time.perf_counter() - began, "s", 60)
        report.add("  operator CPU for it", operator.cpu_seconds(), "s")
        report.add("  operator memory, peak", operator.memory_megabytes("VmHWM"), "MB", 150)
        await restart_server(bench, operator)
        await delete_namespace(bench, operator, jobs // 10)


class Step(NamedTuple):
    """Measurements after some more jobs."""

    jobs: int
    """How many there are now."""
    seconds: float
    """Until all that are new ran."""
    cpu_seconds: float
    """Of the operator, for those that are new."""
    megabytes: float
    """Of the operator now."""


async def growth(bench: Bench, operator: Process, jobs: int) -> None:
    """Measure the cost of a job and the time to its pods among 1, 10, 100 and 1,000 jobs."""
    steps = [Step(0, 0.0, 0.0, operator.memory_megabytes())]
    for total in (*(step for step in STEPS if step < jobs), jobs):
        cpu, began = operator.cpu_seconds(), time.perf_counter()
        new = range(steps[-1].jobs, total)
        delays = await bench.run(*(job(f"job-{number}").worker(WORKERS) for number in new))
        seconds, cpu = time.perf_counter() - began, operator.cpu_seconds() - cpu
        steps.append(Step(total, seconds, cpu, operator.memory_megabytes()))
        bench.report.add_step(
            total,
            run=f"{seconds:.1f} s",
            p50=f"{statistics.median(delays):.2f} s",
            p99=f"{delays[int(0.99 * (len(delays) - 1))]:.2f} s",
            cpu=f"{1000 * cpu / len(new):.0f} ms",
            memory=f"{steps[-1].megabytes:.0f} MB",
        )
    if len(steps) > 3:
        slopes(bench.report, *steps[-3:])


def slopes(report: Report, before: Step, tenth: Step, whole: Step) -> None:
    """Print the cost of a job of the last nine tenths, compared with the earlier ones."""
    early, late = tenth.jobs - before.jobs, whole.jobs - tenth.jobs
    cpu = whole.cpu_seconds / late, tenth.cpu_seconds / early
    wall = whole.seconds / late, tenth.seconds / early
    kilobytes = 1024 * (whole.megabytes - tenth.megabytes) / (late * WORKERS)
    report.add("slope: operator CPU per job", 1000 * cpu[0], "ms")
    report.add("  relative to a tenth of the jobs", cpu[0] / cpu[1], "", 1.5)
    report.add("slope: time per job", 1000 * wall[0], "ms")
    report.add("  relative to a tenth of the jobs", wall[0] / wall[1], "", 1.5)
    report.add("slope: operator memory per pod, jobs included", kilobytes, "kB", 5)


async def restart_server(bench: Bench, operator: Process) -> None:
    """Kill the API server, and see how soon a new job has its pods and everything was listed again."""
    cpu, lists = operator.cpu_seconds(), await metric("paddlejob_watch_lists_total")
    began = time.perf_counter()
    await asyncio.to_thread(bench.plane.restart, "kube-apiserver")
    back = time.perf_counter()
    await bench.submit(job("after-restart").worker(WORKERS))
    submitted = time.perf_counter()
    # A watch that is open again sends something at least once a minute.
    async with asyncio.timeout(LATEST_SECONDS):
        while await metric("paddlejob_watch_age_seconds", biggest=True) > time.perf_counter() - back:
            await asyncio.sleep(0.1)
    report = bench.report
    report.add("API server killed: it is back after", back - began, "s")
    report.add("  a job submitted then has its pods after", submitted - back, "s", 30)
    report.add("  complete lists for it", await metric("paddlejob_watch_lists_total") - lists, "")
    report.add("  operator CPU for it", operator.cpu_seconds() - cpu, "s")


async def delete_namespace(bench: Bench, operator: Process, jobs: int) -> None:
    """Delete a namespace with many pods, and see how long a job of another one waits for its own."""
    await create_namespaces(bench.client, "doomed")
    await bench.run(*(job(f"doomed-{number}", "doomed").worker(WORKERS) for number in range(jobs)))
    cpu, began = operator.cpu_seconds(), time.perf_counter()
    await bench.client.delete(NAMESPACES, None, "doomed")
    (delay,) = await bench.submit(job("beside").worker(WORKERS))
    async with asyncio.timeout(LATEST_SECONDS):
        while (await bench.client.list(PODS, "doomed", limit=1, type=Pod)).items:
            await asyncio.sleep(0.2)
    report, pods = bench.report, jobs * WORKERS
    report.add(f"namespace with {pods:,} pods deleted: empty after", time.perf_counter() - began, "s")
    report.add("  operator CPU per pod", 1000 * (operator.cpu_seconds() - cpu) / pods, "ms", 10)
    report.add("  meanwhile, a new job elsewhere has its pods after", delay, "s", 10)


async def fairness(bench: Bench, jobs: int) -> None:
    """Let one of five tenants submit many jobs; the others submit one now and then."""
    await create_namespaces(bench.client, *(f"tenant-{number}" for number in range(TENANTS)))
    with bench.operator() as operator:
        await ready(operator)
        alone = await others(bench, "alone")
        crowd = [job(f"crowd-{number}", "tenant-0").ps(2).worker(2) for number in range(jobs)]
        flood = asyncio.create_task(submit(bench.client, *crowd))
        beside = await others(bench, "beside")
        ran = sum("crowd" in name for name in bench.watcher.running_at)
        await flood
        usual = statistics.median(alone)
    bench.report.add("a job has its pods after, median", usual, "s")
    bench.report.add(f"the same beside {jobs} jobs of another tenant", statistics.median(beside), "s")
    bench.report.add("  the slowest is delayed by", max(beside) - usual, "s", 2)
    if ran >= jobs:
        raise SystemExit("the many jobs all ran before the others had been measured: submit more")


async def others(bench: Bench, name: str, rounds: int = 5) -> list[float]:
    """Let every other tenant submit a job, round after round; return how soon their pods were created."""
    found: list[float] = []
    for number in range(rounds):
        tenants = range(1, TENANTS)
        jobs = (job(f"{name}-{number}-{tenant}", f"tenant-{tenant}").ps(2).worker(2) for tenant in tenants)
        found += await bench.submit(*jobs)
    return found


async def churn(bench: Bench, jobs: int) -> None:
    """Let jobs be created, completed and deleted, a hundred at a time: the operator forgets them."""
    watcher, memory = bench.watcher, dict[int, float]()
    with bench.operator() as operator:
        await ready(operator)
        began = time.perf_counter()
        for done in range(100, jobs + 1, 100):
            some = [job(f"churn-{number}").worker(1) for number in range(done - 100, done)]
            names = {built.manifest["metadata"]["name"] for built in some}
            await submit(bench.client, *some)
            await watcher.until(lambda names=names: names <= watcher.completed, LATEST_SECONDS)
            await side_by_side(names, lambda name: bench.client.delete(PADDLE_JOBS, "default", name))
            if done == 100 or done % 500 == 0:
                memory[done] = operator.memory_megabytes()
            if done in (*SHOWN, jobs):
                bench.report.add(f"memory after {done:,} jobs", memory[done], "MB")
        bench.report.add("jobs a second", jobs / (time.perf_counter() - began), "")
    later = {done: used for done, used in memory.items() if done >= 1000}
    if len(later) > 1:
        bench.report.add("growth since the first 1000", memory[max(later)] - memory[1000], "MB", 5)
        slope = statistics.linear_regression(list(later), list(later.values())).slope
        bench.report.add("  in 1,000 jobs, on average", 1000 * slope, "MB")


async def create_namespaces(client: Client, *names: str) -> None:
    for name in names:
        await client.create(NAMESPACES, None, {"metadata": {"name": name}})


async def reconciled(jobs: int) -> None:
    """Wait until the operator has reconciled `jobs` times, and its queue is empty."""
    async with asyncio.timeout(LATEST_SECONDS):
        while await metric("paddlejob_reconcile_total") < jobs:
            await asyncio.sleep(0.1)
        while await metric("paddlejob_queue_depth", r'\{state="(?:ready|running)"\}'):
            await asyncio.sleep(0.1)


async def metric(name: str, labels: str = r"\{.*\}", *, biggest: bool = False) -> float:
    """Return the sum of a metric of the operator over all labels, or the biggest."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=30) as answer:
            return str(answer.read(), "utf-8")

    pattern = re.compile(rf"^{name}{labels} (\S+)", re.MULTILINE)
    values = map(float, pattern.findall(await asyncio.to_thread(read)))
    return max(values) if biggest else sum(values)


PARTS: dict[str, tuple[Callable[[Bench, int], Awaitable[None]], int]] = {
    "size": (size, 1000),
    "fairness": (fairness, 500),
    "churn": (churn, 10_000),
}
"""The measurements, and their numbers of jobs."""


async def measure(options: argparse.Namespace, plane: ControlPlane) -> int:
    part, usual = PARTS[options.part]
    async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
        bench = Bench(client, plane)
        with running("bench/bench_kubelet.py", str(plane.kubeconfig), log=plane.directory / "kubelet.log"):
            await kubelet_running(client)
            async with bench.watcher.watching():
                await part(bench, options.jobs or usual)
    if not bench.report.missed and not options.jobs:
        write_section(f"bench/scale.py {options.part}", bench.report.page())
    return bench.report.missed


def logging_creations(directory: Path) -> tuple[str, ...]:
    """Return the flags of an API server that logs when jobs and pods were created."""
    groups = [{"group": PADDLE_JOBS.group, "resources": [PADDLE_JOBS.plural]}, {"resources": [PODS.plural]}]
    rules = [{"level": "Metadata", "verbs": ["create"], "resources": groups}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
    path = directory / "audit-policy.json"
    path.write_text(json.dumps({**policy, "rules": rules}))
    return f"--audit-policy-file={path}", f"--audit-log-path={directory / AUDIT_LOG}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        flags = {"kube-apiserver": logging_creations(directory)}
        with ControlPlane.start(directory=directory, extra_args=flags) as plane:
            plane.apply(ROOT / "deploy/v1/crd.yaml")
            missed = asyncio.run(measure(options, plane))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
