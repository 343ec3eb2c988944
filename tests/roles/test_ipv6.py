"""Pods with IPv6 addresses: what real Paddle makes of the environment that they get.

The pods have a network of their own, with addresses of both families, IPv6 first, or of IPv6 alone. They are
called by names that lead to all their addresses, as the services of a job do.
"""

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
SECONDS_TO_MEET = 90
NAMESPACES = ("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
BOTH, IPV6_ALONE = ("fd00::{}", "10.9.0.{}"), ("fd00::{}",)

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]
Meet = Callable[..., tuple[int, str]]


@pytest.fixture
def meet(tmp_path) -> Meet:
    """Return what runs a job until its workers end or one pod fails, and gives the exit code and the logs."""
    isolated = NAMESPACES if os.geteuid() == 0 else (*NAMESPACES, "--user", "--map-root-user")
    if subprocess.run([*isolated, "ip", "link"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the ip of iproute2, and leave to make network namespaces")

    def run(interpreter: str, of: JobBuilder, addresses: tuple[str, ...], *arguments: str) -> tuple[int, str]:
        pods = environments(snapshot(of).with_settings(pods_have_ipv6=True))
        plain = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        told = {
            "pods": {pod: {**env, **plain} for pod, env in pods.items()},
            "hosts": {
                env["POD_IP"]: [address.format(number) for address in addresses]
                for number, env in enumerate(pods.values(), start=1)
            },
            "command": [interpreter, "-W", "ignore", *arguments, str(PROGRAM)],
            "seconds": SECONDS_TO_MEET,
            "cwd": str(tmp_path),
        }
        (tmp_path / "pods.json").write_text(json.dumps(told))
        ended = subprocess.run([*isolated, sys.executable, RUNNER, tmp_path], check=False)
        return ended.returncode, "\n".join(log.read_text() for log in sorted(tmp_path.glob("*.log")))

    return run


@pytest.mark.parametrize("launcher", [(), ("-m", "paddle.distributed.launch")], ids=["plain", "launch"])
def test_workers_meet_where_pods_have_both_families(meet, interpreter, launcher):
    code, logs = meet(interpreter, job().worker(2), BOTH, *launcher)
    assert code == 0, logs
    assert logs.count("MET 2 workers, sum 3") >= 2, logs


@pytest.mark.parametrize("gloo", [0, 1])
def test_so_do_parameter_servers(meet, interpreter_with_servers, gloo):
    code, logs = meet(interpreter_with_servers, job().ps(2).worker(2).spec(withGloo=gloo), BOTH)
    assert code == 0, logs
    assert logs.count("MET 2 servers, 2 workers") == 2, logs


def test_workers_do_not_meet_over_ipv6_alone(meet, interpreter):
    """If this fails, Paddle has learned IPv6: core/network.py and docs/ipv6.md say that it has not."""
    code, logs = meet(interpreter, job().worker(2), IPV6_ALONE)
    assert code != 0
    assert "IPv4 network demo-worker-0.default:36001 cannot be obtained" in logs
