"""An operator process with flooded ports keeps its lease, its memory and its honest clients."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from aiohttp import web

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import CONFIG_MAPS, LEASES, PODS, SECRETS
from paddlejob.operator.manager import LEASE_NAME
from paddlejob.operator.reports.tokens import PodIdentity
from paddlejob.recorder.operator_sink import OperatorSink
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.server import ApiServer
from simkube.build import job
from tests.operator.test_reports import token_of
from tests.support.definitions import PADDLE_JOB_CRD
from tests.support.reporting import free_port
from tests.support.served_api import Front
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JOBS = 400
PROBE_SECONDS = 3.0
"""The timeout of the probes in the shipped manifests."""
MAX_GROWTH_MEGABYTES = 40.0
FLOOD_SECONDS = 4.0
MAX_LOG_LINES = 3
REPORTED = {"rank": 0, "step": 1, "phase": "training"}


class ReviewingFront(Front):
    """An API server that vouches for every token that has been signed."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/tokenreviews"):
            return await super()._answer(request)
        token = (await request.json())["spec"]["token"]
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        bound = claims["kubernetes.io"]
        key = "authentication.kubernetes.io/pod"
        extra = {f"{key}-name": [bound["pod"]["name"]], f"{key}-uid": [bound["pod"]["uid"]]}
        user = {"username": f"system:serviceaccount:{bound['namespace']}:default", "extra": extra}
        status = {"authenticated": True, "audiences": claims["aud"], "user": user}
        return web.json_response({"status": status}, status=201)


@contextmanager
def served(server: ApiServer) -> Iterator[int]:
    """Serve an API server in memory from a thread, and yield the port."""
    loop, front = asyncio.new_event_loop(), ReviewingFront(server)
    thread = threading.Thread(target=loop.run_forever, name="API server")
    thread.start()

    def run(work) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(60)

    run(fill(server))
    run(front.start())
    try:
        yield front.port
    finally:
        run(front.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def memory_megabytes(process: subprocess.Popen[bytes], kind: str = "VmRSS") -> float:
    """Return the resident memory of a process, now or at its peak (VmHWM)."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{kind}:"))


class Flooded(NamedTuple):
    """An operator process."""

    server: ApiServer
    process: subprocess.Popen[bytes]
    log: Path
    health: int
    metrics: int
    reports: int
    sink: OperatorSink

    def port(self, name: str) -> int:
        ports: dict[str, int] = self._asdict()
        return ports[name]

    def get(self, port: int, path: str) -> bytes:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PROBE_SECONDS) as response:
            return bytes(response.read())

    def log_lines(self) -> int:
        return len(self.log.read_text().splitlines())

    def report(self) -> bool:
        """Report as a pod does; return whether the report was accepted at the first attempt."""
        self.sink.send(REPORTED)
        return self.sink._failures == 0


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flooded]:
    place = tmp_path_factory.mktemp("flooded")
    server = ApiServer(now=lambda: datetime.now(UTC))
    server.install(PADDLE_JOB_CRD)
    server.register(ResourceType(resource=SECRETS))
    health, metrics, reports = free_port(), free_port(), free_port()
    with served(server) as port, (place / "operator.log").open("wb") as log:
        kubeconfig = place / "kubeconfig"
        kubeconfig.write_text(
            f"""
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: test, context: {{cluster: test}}}}]
current-context: test
"""
        )
        flags = [
            f"--kubeconfig={kubeconfig}",
            "--leader-elect",
            "--progress-from-logs=false",
            "--history=false",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--reports-bind-address=127.0.0.1:{reports}",
            f"--reports-url=https://127.0.0.1:{reports}",
        ]
        command = [sys.executable, "-m", "paddlejob", "operator", *flags]
        process = subprocess.Popen(command, cwd=ROOT, stderr=log)
        try:
            mounted(server, place)
            sink = OperatorSink(f"https://127.0.0.1:{reports}", str(place))
            ports = health, metrics, reports
            yield Flooded(server, process, place / "operator.log", *ports, sink)
            sink.close()
        finally:
            process.terminate()
            process.wait(30)


async def fill(server: ApiServer) -> None:
    """Create a job with the recorder, and many that are shown in the metrics."""
    for number in range(JOBS):
        server.create(PADDLE_JOBS, job(f"job-{number}").worker(1).spec(suspend=True).manifest)
        progress = {"progress": {"step": number + 1, "loss": "0.5"}}
        server.patch(PADDLE_JOBS, "default", f"job-{number}", {"status": progress}, subresource="status")
    server.create(PADDLE_JOBS, job().worker(1).spec(recorder=True).manifest)


def mounted(server: ApiServer, place: Path) -> None:
    """Write the files that the kubelet would mount into the pod of the job with the recorder."""
    pod = eventually(lambda: server.get(PODS, "default", "demo-worker-0"))
    identity = PodIdentity("default", "demo-worker-0", pod["metadata"]["uid"])
    place.joinpath("token").write_text(token_of(identity, lasts_seconds=1e9))
    code = eventually(
        lambda: next((each for each in server.objects(CONFIG_MAPS) if "ca.crt" in each["data"]), None)
    )
    place.joinpath("ca.crt").write_text(code["data"]["ca.crt"])


class Flood(NamedTuple):
    """A number of clients of a kind, at a port, from some addresses."""

    kind: str
    port: str
    clients: int
    addresses: int = 4


FLOODS = {
    "silent TCP to reports": Flood("silent", "reports", 4000),
    "idle TLS to reports": Flood("tls", "reports", 2000),
    "forged tokens": Flood("reports", "reports", 400),
    "pipelined requests for metrics": Flood("metrics", "metrics", 400),
    "silent TCP to health": Flood("silent", "health", 4000),
    "idle TLS to reports from many addresses": Flood("tls", "reports", 1000, addresses=16),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_an_operator_survives_a_flood(operator: Flooded, flood: Flood):
    eventually(operator.report)
    settled = f'paddlejob_jobs{{phase="Suspended"}} {JOBS}.0'.encode()
    eventually(lambda: settled in operator.get(operator.metrics, "/metrics"))
    lease = operator.server.get(LEASES, "default", LEASE_NAME)["spec"]
    # The peak is measured from here.
    Path(f"/proc/{operator.process.pid}/clear_refs").write_text("5")
    idle = memory_megabytes(operator.process)
    lines, accepted = operator.log_lines(), []
    sources = [f"127.0.0.{2 + number}" for number in range(flood.addresses)]
    command = [sys.executable, "-m", "tests.support.flood", flood.kind, str(operator.port(flood.port))]
    command += [str(flood.clients), str(FLOOD_SECONDS), *sources]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as attack:
        assert attack.stdout.readline() == b"begun\n"
        while attack.poll() is None:
            assert operator.get(operator.health, "/healthz") == b"ok\n"
            operator.sink.close()
            accepted.append(operator.report())
        attempts = int(attack.stdout.readline())
    assert attempts >= flood.clients
    assert all(accepted) if flood.addresses <= 4 else any(accepted)
    after = operator.server.get(LEASES, "default", LEASE_NAME)["spec"]
    assert after["holderIdentity"] == lease["holderIdentity"]
    assert after["renewTime"] > lease["renewTime"]
    assert memory_megabytes(operator.process, "VmHWM") < idle + MAX_GROWTH_MEGABYTES
    assert operator.log_lines() - lines <= MAX_LOG_LINES
