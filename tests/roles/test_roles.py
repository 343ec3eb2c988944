"""The environment that the core gives each pod, read by Paddle's own role maker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddlejob.testing.build import job, world
from paddlejob.testing.container_environment import CONFIG_MAP, Source, environment

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("tell_role.py")

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["2.6.2", "3.3.1"])
def interpreter(request) -> str:
    script = ROOT / "scripts" / "paddle_env.py"
    found = subprocess.run(
        [sys.executable, script, request.param], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def environments(of) -> dict[str, dict[str, str]]:
    """Return every pod's environment by its seat, as a kubelet would resolve it."""
    built = world(of)
    created = built.plan().stages
    built.pods_with_addresses()
    config = built.plan().stages[0][0].manifest["data"]
    pods = [action.manifest for stage in created for action in stage if action.kind == "Pod"]
    addresses = {pod.metadata.name: pod.status.pod_ip for pod in built.snapshot().pods}
    return {
        pod["metadata"]["name"].removeprefix("demo-"): environment(
            pod["spec"]["containers"][0],
            {**pod, "status": {"podIP": addresses[pod["metadata"]["name"]]}},
            {Source(CONFIG_MAP, "demo"): config},
        )
        for pod in pods
    }


def roles(interpreter: str, of) -> dict[str, dict]:
    """Ask Paddle, in all pods at once, who each is."""
    running = {
        seat: subprocess.Popen(
            [interpreter, "-W", "ignore", PROGRAM],
            env={**env, "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seat, env in environments(of).items()
    }
    told = {}
    for seat, process in running.items():
        output, errors = process.communicate(timeout=300)
        lines = [line for line in output.splitlines() if line.startswith("ROLE ")]
        assert lines, f"{seat}: {errors[-2000:]}"
        told[seat] = json.loads(lines[0].removeprefix("ROLE "))
    return told


def test_a_parameter_server_job(interpreter):
    told = roles(interpreter, job().ps(2).worker(2))
    assert [told[seat]["server"] for seat in ("ps-0", "ps-1", "worker-0", "worker-1")] == [
        True,
        True,
        False,
        False,
    ]
    assert [told[seat]["id"] for seat in ("ps-0", "ps-1", "worker-0", "worker-1")] == [0, 1, 0, 1]
    assert {(one["workers"], one["servers"]) for one in told.values()} == {(2, 2)}
    assert told["worker-0"]["server_endpoints"] == ["10.0.1.1:36000", "10.0.1.2:36000"]


def test_a_collective_job(interpreter):
    told = roles(interpreter, job().worker(2))
    assert [(told[seat]["id"], told[seat]["workers"]) for seat in ("worker-0", "worker-1")] == [
        (0, 2),
        (1, 2),
    ]


def test_a_heter_job(interpreter):
    told = roles(interpreter, job().ps(1).worker(1).heter(1).spec(withGloo=0))
    assert told["ps-0"]["server"]
    assert told["heter-0"]["heter"]
    assert not told["worker-0"]["heter"]
    worker, heter = told["worker-0"], told["heter-0"]
    assert ((worker["stage"], worker["stages"]), (heter["stage"], heter["stages"])) == ((1, 2), (2, 2))
    assert worker["next"] == ["10.0.3.1:36000"]
    assert heter["previous"] == ["10.0.2.1:36000"]
    assert heter["me"] == "10.0.3.1:36000"
