"""Paddle's launcher in the environment of pods: its ports, its logs and the ranks of its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roles.environments import environments
from simkube.build import JobBuilder, job, snapshot

PROGRAM = Path(__file__).with_name("meet.py")
RUNNER = Path(__file__).with_name("run_pods.py")
BASE_PORT = 40020
NAMESPACES = ("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]
Launch = Callable[..., tuple[int, str]]


@pytest.fixture
def launch(tmp_path) -> Launch:
    """Return a function that runs a job with the launcher, and returns the exit code and the logs."""
    isolated = NAMESPACES if os.geteuid() == 0 else (*NAMESPACES, "--user", "--map-root-user")
    if subprocess.run([*isolated, "ip", "link"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs iproute2, and permission to create network namespaces")

    def run(interpreter: str, of: JobBuilder, cwd: str = "", **env: str | None) -> tuple[int, str]:
        plain = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        changed = {name: value for name, value in env.items() if value is not None}
        pods = {
            pod: {name: value for name, value in (given | plain | changed).items() if env.get(name, value)}
            for pod, given in environments(snapshot(of)).items()
        }
        described = {
            "pods": pods,
            "hosts": {pod: [given["POD_IP"]] for pod, given in pods.items()},
            "command": [interpreter, "-W", "ignore", "-m", "paddle.distributed.launch", str(PROGRAM)],
            "seconds": 120,
            "cwd": cwd or str(tmp_path),
        }
        (tmp_path / "pods.json").write_text(json.dumps(described))
        ended = subprocess.run([*isolated, sys.executable, RUNNER, tmp_path], check=False)
        return ended.returncode, "\n".join(log.read_text() for log in sorted(tmp_path.glob("*.log")))

    return run


def test_processes_on_the_host_network_use_the_ports_of_the_job(launch, interpreter):
    of = job().worker(2).spec(intranet="Host").status(hostPort=BASE_PORT)
    code, logs = launch(interpreter, of)
    assert code == 0, logs
    met = [line.split() for line in logs.splitlines() if line.startswith("AT ")]
    endpoints = {endpoint for _, *listed in met for each in listed for endpoint in each.split(",")}
    assert {endpoint.partition(":")[0] for endpoint in endpoints} == {"10.0.2.1", "10.0.2.2"}
    ports = {int(endpoint.partition(":")[2]) for endpoint in endpoints}
    assert ports <= set(range(BASE_PORT + 2, BASE_PORT + 20)), logs


READ_ONLY = job().worker(2, securityContext={"readOnlyRootFilesystem": True})


def test_the_working_directory_may_be_read_only(launch, interpreter):
    code, logs = launch(interpreter, READ_ONLY, cwd="/sys")
    assert code == 0, logs
    assert logs.count("MET 2 workers, sum 3") >= 2, logs


def test_the_launcher_needs_a_directory_for_its_logs(launch, interpreter):
    """If this fails, the launcher no longer needs the volume of core/render.py."""
    code, logs = launch(interpreter, READ_ONLY, cwd="/sys", PADDLE_LOG_DIR=None)
    assert code != 0
    assert "workerlog.0" in logs
