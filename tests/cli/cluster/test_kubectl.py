"""`kubectl pdj`, found and completed by the real kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import ensure
from simkube.build import job
from tests.support.waiting import eventually


@pytest.fixture
def run(kubectl, cluster, tmp_path):
    """Run kubectl with the package's programs on the PATH."""
    del kubectl
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.symlink_to(ensure(["kubectl"])["kubectl"])
    path = os.pathsep.join((str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)

    return run


def test_kubectl_finds_the_plugin_and_passes_flags_and_exit_codes(run, file):
    assert "/kubectl-pdj\n" in run("plugin", "list").stdout
    submitted = run("pdj", "submit", str(file(job("resnet").worker(2))), "-o", "name")
    assert submitted.stdout == "paddlejob.batch.paddlepaddle.org/resnet\n", submitted.stderr
    assert run("pdj", "get", "-n", "default", "--no-headers").stdout.startswith("resnet ")
    missing = run("pdj", "logs", "resent")
    expected = "error: there is no PaddleJob resent in namespace default; did you mean resnet?\n"
    assert (missing.returncode, missing.stderr) == (2, expected)


def test_kubectl_completes_the_plugin(run, file):
    assert run("pdj", "submit", str(file(job("resnet").worker(2)))).returncode == 0
    assert run("__complete", "pdj", "sus").stdout.startswith("suspend\t")
    for words, offered in (
        (("logs", "res"), "resnet\n:4\n"),
        (("logs", "resnet", "--rank", "w"), "worker-0\nworker-1\n:4\n"),
    ):
        # A shell does not wait long, so that a busy machine may offer nothing at first.
        eventually(lambda words=words, offered=offered: run("__complete", "pdj", *words).stdout == offered)
