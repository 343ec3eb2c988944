"""What the kernel allows is found out, and a job runs either way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from local.jobs import container, job, role, text
from paddlejob.local.pod.capabilities import Capabilities, probe

pytestmark = pytest.mark.slow

PADDLEJOB = str(Path(sys.executable).with_name("paddlejob"))
PROBE = """
import asyncio, pathlib, sys
from paddlejob.local.pod.capabilities import probe
print(asyncio.run(probe(pathlib.Path(sys.argv[1]))).isolation)
"""
FORBIDDING = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin "$@"'


def forbidden(*command):
    """Run a command in a place where nobody may make namespaces."""
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", FORBIDDING, "sh", *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


async def test_this_kernel_allows_everything_that_the_tests_need(tmp_path):
    assert await probe(tmp_path) == Capabilities("full", can_overlay=True)
    assert not list(tmp_path.iterdir())


def test_a_kernel_without_namespaces_is_detected(tmp_path):
    assert forbidden(sys.executable, "-c", PROBE, tmp_path).stdout == "none\n"


def test_a_job_runs_without_namespaces(tmp_path):
    (tmp_path / "job.yaml").write_text(
        text(job(worker=role(2, "mkdir -p $PADDLE_LOG_DIR; echo $PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM")))
    )
    done = forbidden(PADDLEJOB, "run", tmp_path / "job.yaml", "--run-dir", tmp_path / "runs")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["worker-0 | 0 of 2", "worker-1 | 1 of 2"]
    assert len(list(tmp_path.glob("runs/*/launcher/job-worker-*"))) == 2


def test_unavailable_features_are_refused_with_advice(tmp_path):
    one = container("true", volumeMounts=[{"name": "v", "mountPath": "/nas"}])
    worker = role(1, containers=[one], volumes=[{"name": "v", "emptyDir": {}}])
    (tmp_path / "job.yaml").write_text(text(job(worker=worker)))
    done = forbidden(PADDLEJOB, "run", tmp_path / "job.yaml", "--run-dir", tmp_path / "runs")
    assert done.returncode == 2
    assert "volumeMounts[0] cannot be mounted at /nas" in done.stderr
    assert "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" in done.stderr
