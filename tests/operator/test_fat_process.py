"""The operator as a process, within the memory of the manifests, among fat objects of one tenant.

The same on a real API server, which takes minutes to store as many: `apiserver/test_fat_objects.py`.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from simkube.apiserver.server import ApiServer
from simkube.build import job
from tests.support.definitions import PADDLE_JOB_CRD
from tests.support.hostile import fat_config_map, fat_job, fat_record
from tests.support.served_api import Front

pytestmark = pytest.mark.slow

LIMIT_BYTES = 512 << 20
TENANT = "mallory"
FAT_JOBS = 16
"""Each takes 33 MB when it is decoded."""
JOBS_BELOW = 8
"""Jobs just below the size limit."""


def fat_cluster(*, streaming_list: bool) -> ApiServer:
    """Return a server with more fat objects than fit into memory when they are decoded."""
    server = ApiServer(streaming_list=streaming_list)
    server.install(PADDLE_JOB_CRD)
    for number in range(FAT_JOBS):
        server.create(PADDLE_JOBS, fat_job(f"fat-{number}", namespace=TENANT))
    for number in range(JOBS_BELOW):
        server.create(PADDLE_JOBS, fat_job(f"below-{number}", size=250_000, namespace=TENANT))
    for number in range(10):
        server.create(CONFIG_MAPS, fat_config_map(f"fat-{number}", namespace=TENANT))
        recorder = fat_config_map(f"{names.RECORDER}-{number}", namespace=TENANT)
        server.create(CONFIG_MAPS, recorder | {"immutable": True})
    for number in range(20):
        record = fat_record(f"record-{number}", TENANT)
        record["metadata"]["namespace"] = TENANT
        server.create(CONFIG_MAPS, record)
    return server


@asynccontextmanager
async def operator(kubeconfig: Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    program = Path(sys.executable).parent / "paddlejob"
    ports = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
    with log.open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            program, "operator", f"--kubeconfig={kubeconfig}", *ports, stderr=sink
        )
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def peak_bytes(process: asyncio.subprocess.Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed-list", "paged-list"])
async def test_the_jobs_of_others_get_their_pods_and_memory_stays_below_the_limit(tmp_path, streaming_list):
    server = fat_cluster(streaming_list=streaming_list)
    front = Front(server)
    await front.start()
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "operator.log"
    kubeconfig.write_text(
        f'clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{front.port}"}}}}]\n'
        "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
    )

    def phase(name: str) -> str:
        found = server.get(PADDLE_JOBS, TENANT, name) or {}
        return str((found.get("status") or {}).get("reason"))

    try:
        # The second one finds everything there, as after an eviction.
        for number in range(2):
            async with operator(kubeconfig, log) as process:
                innocent = {**job(f"innocent-{number}").worker(1).manifest}
                innocent["metadata"] = {"name": f"innocent-{number}", "namespace": "default"}
                server.create(PADDLE_JOBS, innocent)
                while server.get(PODS, "default", f"innocent-{number}-worker-0") is None or {
                    *(phase(f"fat-{each}") for each in range(FAT_JOBS)),
                    *(phase(f"below-{each}") for each in range(JOBS_BELOW)),
                } != {"InvalidSpec", "Suspended"}:
                    assert process.returncode is None, log.read_text()[-3000:]
                    await asyncio.sleep(0.2)
                print(f"peak: {peak_bytes(process) >> 20} MiB")
                assert peak_bytes(process) < LIMIT_BYTES
    finally:
        await front.stop()
