"""The environment that the core gives each pod, read by Paddle's own role maker."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from roles.environments import environments
from simkube.build import job, snapshot

PROGRAM = Path(__file__).with_name("tell_role.py")

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


def roles(interpreter: str, of, **settings) -> dict[str, dict]:
    """Ask Paddle, in all pods at once, who each is."""
    running = {
        replica: subprocess.Popen(
            [interpreter, "-W", "ignore", PROGRAM],
            env={**env, "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for replica, env in environments(snapshot(of).with_settings(**settings)).items()
    }
    told = {}
    for replica, process in running.items():
        output, errors = process.communicate(timeout=300)
        lines = [line for line in output.splitlines() if line.startswith("ROLE ")]
        assert lines, f"{replica}: {errors[-2000:]}"
        told[replica] = json.loads(lines[0].removeprefix("ROLE "))
    return told


def test_a_parameter_server_job(interpreter):
    told = roles(interpreter, job().ps(2).worker(2))
    assert [told[replica]["server"] for replica in ("ps-0", "ps-1", "worker-0", "worker-1")] == [
        True,
        True,
        False,
        False,
    ]
    assert [told[replica]["id"] for replica in ("ps-0", "ps-1", "worker-0", "worker-1")] == [0, 1, 0, 1]
    assert {(one["workers"], one["servers"]) for one in told.values()} == {(2, 2)}
    assert told["worker-0"]["server_endpoints"] == ["10.0.1.1:36000", "10.0.1.2:36000"]


def test_a_collective_job(interpreter):
    told = roles(interpreter, job().worker(2))
    assert [(told[replica]["id"], told[replica]["workers"]) for replica in ("worker-0", "worker-1")] == [
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


def test_pods_with_ipv6_addresses_find_themselves_by_name(interpreter):
    told = roles(interpreter, job().ps(1).worker(1).heter(1).spec(withGloo=0), pods_have_ipv6=True)
    assert told["ps-0"]["server"]
    assert told["worker-0"]["server_endpoints"] == ["demo-ps-0.default:36000"]
    assert told["worker-0"]["next"] == ["demo-heter-0.default:36000"]
    assert told["heter-0"]["me"] == "demo-heter-0.default:36000"
