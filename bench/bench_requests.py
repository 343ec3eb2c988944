"""The API server's processor time for a job: the cost of each kind of request, and their number per job.

    PYTHONPATH=. python bench/bench_requests.py

Every kind of request of a starting job is sent many times on its own, and its processor time is measured.
Then jobs start with the operator and a simulated kubelet, and the API server's metrics count the requests of
each kind. With the default numbers the table is written to docs/proof.md.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import Counter
from datetime import UTC, datetime

import msgspec
from bench_operator import Watcher, kubelet_running, operator_command, ready, submit
from load import IN_FLIGHT, create_job, create_pod, side_by_side
from process import ROOT, SERVERS, Meter, running

from devcluster import ControlPlane
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.core.actions import Create, Kind
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Snapshot
from paddlejob.kube.client import Client, PatchType
from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, PODS, Resource
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from scripts.proof_page import table, write_section
from simkube.build import job
from simkube.kubelet.node_pool import Placement
from simkube.kubelet.pod_state import SimulatedPod

Verb = tuple[str, str, str]
"""Resource, subresource and verb, as the API server's metrics name them."""

COUNTED = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
REQUESTS, JOBS = 500, 100
NAMES: dict[Verb, str] = {
    ("paddlejobs", "", "POST"): "create a job",
    ("paddlejobs", "status", "PATCH"): "write a job's status",
    ("pods", "", "POST"): "create a pod",
    ("pods", "binding", "POST"): "bind a pod (scheduler)",
    ("pods", "status", "PATCH"): "write a pod's status (kubelet)",
    ("pods", "", "PATCH"): "annotate a pod",
    ("configmaps", "", "POST"): "create a ConfigMap",
    ("events", "", "POST"): "create an event",
}


class Requests:
    """Sends each kind of request as the operator and a kubelet do."""

    def __init__(self, client: Client) -> None:
        self._client = client
        planned = plan(Snapshot(job("alone").ps(2).worker(2).build(), datetime.now(UTC)))
        created = (action for stage in planned.stages for action in stage if isinstance(action, Create))
        pod = next(each.manifest for each in created if each.kind is Kind.POD)
        # Without owner and labels: no component runs or deletes it.
        self._pod = {"metadata": {}, "spec": pod["spec"]}
        self._job_status = msgspec.to_builtins(planned.status)
        self._pod_status = _running(self._pod)

    async def send(self, kind: Verb, number: int) -> None:
        client, name = self._client, f"alone-{number}"
        match kind:
            case ("paddlejobs", "", _):
                await create_job(client, job(name).ps(2).worker(2))
            case ("paddlejobs", _, _):
                await self._patch_status(PADDLE_JOBS, name, {**self._job_status, "message": name})
            case ("pods", "", "POST"):
                body = {**self._pod, "metadata": {**self._pod["metadata"], "name": name}}
                await client.create(PODS, "default", body, strict=True)
            case ("pods", "binding", _):
                target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node-1"}}
                await client.create(PODS, "default", target, name=name, subresource="binding", type=dict)
            case ("pods", "status", _):
                await self._patch_status(PODS, name, self._pod_status)
            case ("pods", _, _):
                patch = {"metadata": {"annotations": {"number": name}}}
                await client.patch(PODS, "default", name, patch, patch_type=PatchType.STRATEGIC)
            case ("configmaps", _, _):
                data = {f"VARIABLE_{each}": name for each in range(12)}
                await client.create(CONFIG_MAPS, "default", {"metadata": {"name": name}, "data": data})
            case _:
                await client.create(EVENTS, "default", _event(name))

    async def _patch_status(self, resource: Resource, name: str, status: JsonObject) -> None:
        await self._client.patch(resource, "default", name, {"status": status}, subresource="status")


def _running(pod: JsonObject) -> JsonObject:
    """Return the status that a kubelet writes of a pod that runs."""
    state = SimulatedPod(pod, lambda: datetime.now(UTC))
    state.placement, state.has_address = Placement("node-1", "10.0.0.1", "10.1.0.1"), True
    for container in state.containers:
        container.run(datetime.now(UTC))
    return state.status()


def _event(name: str) -> JsonObject:
    about = {"apiVersion": PADDLE_JOBS.api_version, "kind": "PaddleJob", "name": name, "namespace": "default"}
    return {
        "metadata": {"name": name},
        "involvedObject": about,
        "reason": "Running",
        "message": "2/2 ps and 2/2 workers running",
        "type": "Normal",
        "count": 1,
        "source": {"component": "paddlejob-operator"},
    }


async def costs(client: Client, meter: Meter, count: int) -> dict[Verb, dict[str, float]]:
    """Return the milliseconds that one request of each kind takes in client, API server and etcd."""
    requests, found = Requests(client), {}
    # The first requests open connections and fill caches.
    await asyncio.gather(*(client.has_resource(PODS) for _ in range(IN_FLIGHT)))
    await side_by_side(range(count), lambda number: create_pod(client, f"first-{number}"))
    for kind in NAMES:
        before = meter.read()

        async def send(number: int) -> None:
            await requests.send(kind, number)  # noqa: B023

        await side_by_side(range(count), send)
        found[kind] = {name: 1000 * (used - before[name]) / count for name, used in meter.read().items()}
    return found


def counted(plane: ControlPlane) -> Counter[Verb]:
    """Return how many requests of each kind the API server has served."""
    found: Counter[Verb] = Counter()
    for line in COUNTED.finditer(plane.kubectl("get", "--raw", "/metrics")):
        labels = dict(LABEL.findall(line["labels"]))
        found[labels["resource"], labels["subresource"], labels["verb"]] += int(float(line["count"]))
    return found


async def jobs_start(client: Client, jobs: int) -> None:
    """Let jobs start, until they run."""
    watcher = Watcher(client)
    async with watcher.watching():
        await submit(client, *(job(f"job-{number}").ps(2).worker(2) for number in range(jobs)))
        await watcher.until(lambda: len(watcher.running_at) == jobs)


async def measure(plane: ControlPlane, count: int, jobs: int) -> None:
    meter = Meter()
    async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
        alone = await costs(client, meter, count)
        for number in range(count):
            await client.delete(PADDLE_JOBS, "default", f"alone-{number}")
        kubelet_log, operator_log = plane.directory / "kubelet.log", plane.directory / "operator.log"
        with (
            running("bench/bench_kubelet.py", str(plane.kubeconfig), log=kubelet_log),
            running(*operator_command(plane.kubeconfig), log=operator_log) as process,
        ):
            await kubelet_running(client)
            await ready(process)
            requests, used, own = counted(plane), meter.read(), process.cpu_seconds()
            await jobs_start(client, jobs)
            used = {name: 1000 * (after - used[name]) / jobs for name, after in meter.read().items()}
            own = 1000 * (process.cpu_seconds() - own) / jobs
            requests = counted(plane) - requests
    text = section(alone, {kind: requests[kind] / jobs for kind in NAMES}, used, own, jobs)
    print(text)
    if (count, jobs) == (REQUESTS, JOBS):
        write_section("make bench", text)


def section(
    alone: dict[Verb, dict[str, float]],
    per_job: dict[Verb, float],
    used: dict[str, float],
    operator: float,
    jobs: int,
) -> str:
    """Return the table and its conclusion."""
    server = SERVERS[0]
    share = {kind: per_job[kind] * alone[kind][server] for kind in NAMES}
    rest = used[server] - sum(share.values())

    def row(name: str, milliseconds: float, *cells: str) -> tuple[str, ...]:
        return (
            name,
            *(cells or ("", "", "")),
            f"{milliseconds:.1f}",
            f"{100 * milliseconds / used[server]:.0f} %",
        )

    rows = [
        row(name, share[kind], f"{per_job[kind]:.1f}", *(f"{alone[kind][each]:.2f}" for each in SERVERS))
        for kind, name in NAMES.items()
    ]
    rows += [row("all else", rest), row("all", used[server])]
    heading = (
        "request",
        "per job",
        *(f"{each}, ms each" for each in SERVERS),
        f"{server}, ms per job",
        "share",
    )
    return (
        f"{jobs} jobs of 2 parameter servers and 2 workers from submission to Running, with a simulated "
        f"kubelet; processor time. The operator itself took {operator:.1f} ms per job and etcd "
        f"{used['etcd']:.1f}.\n\n{table(heading, rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=REQUESTS, help="requests of each kind")
    parser.add_argument("--jobs", type=int, default=JOBS)
    options = parser.parse_args()
    with ControlPlane.start() as plane:
        plane.apply(ROOT / "deploy/v1/crd.yaml")
        asyncio.run(measure(plane, options.count, options.jobs))


if __name__ == "__main__":
    main()
