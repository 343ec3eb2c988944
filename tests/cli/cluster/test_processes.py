"""Pods with several processes: `kubectl pdj` with the rank of a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simkube.build import job

pytestmark = pytest.mark.slow

LAUNCH = ["python", "-m", "paddle.distributed.launch", "--nproc_per_node", "4", "train.py"]
NO_TIMES = (
    "rank 5 writes to a file, which has no times and the lines of all restarts: "
    "choose the last lines (tail) instead of since or previous"
)
REFUSAL = {
    "kind": "Status",
    "code": 403,
    "reason": "Forbidden",
    "message": 'User "eve" cannot get resource "pods/exec" in API group "" in the namespace "default"',
}


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the launcher in worker-1; commands in containers run on this machine."""
    directory = tmp_path / "launcher"
    directory.mkdir()
    monkeypatch.setenv("PADDLE_LOG_DIR", str(directory))
    (directory / "workerlog.1").write_text("loading\nstep 7/10 loss 0.25\n")
    (directory / "envlog.1").write_text("FLAGS_selected_gpus=1\nPADDLE_TRAINER_ID=5\n")
    (directory / "progress.1").write_text(json.dumps({"rank": 5, "step": 8, "loss": 0.2}) + "\n")
    return directory


@pytest.fixture
def demo(cluster, pdj, file, logs):
    for pod in ("demo-worker-0", "demo-worker-1"):
        cluster.scene.hold(pod)
    pdj("submit", file(job().worker(2, command=LAUNCH).spec(cleanPodPolicy="Never")))
    assert pdj("wait", "demo", "--for=running", "--timeout=60s").exit_code == 0
    return "demo"


def test_the_log_of_a_rank_is_its_file(cluster, pdj, demo):
    assert pdj("logs", demo, "--rank", "5").stdout == "loading\nstep 7/10 loss 0.25\n"
    assert pdj("logs", demo, "--rank", "5", "--tail", "1", "--prefix").stdout == (
        "worker-1 rank 5 | step 7/10 loss 0.25\n"
    )
    cluster.write("demo-worker-1", "printed by the launcher")
    # The launcher prints the output of its first process.
    for rank in ("4", "worker-1"):
        assert pdj("logs", demo, "--rank", rank).stdout == "printed by the launcher\n"


def test_a_very_long_line_and_one_without_an_end_are_printed(pdj, demo, logs):
    (logs / "workerlog.1").write_text(f"short\n{'x' * 2_500_000}\ny")
    first, *pieces, last = pdj("logs", demo, "--rank", "5").stdout.splitlines()
    assert (first, "".join(pieces), last) == ("short", "x" * 2_500_000, "y")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rank", "8"), "demo has no rank 8; choose all, a rank from 0 to 7 or one of worker-0, worker-1"),
        (
            ("--rank", "6"),
            "worker-1 rank 6 has no log file yet: Paddle's launcher has not started this process",
        ),
        (("--rank", "5", "--previous"), NO_TIMES),
        (("--rank", "5", "--since", "5m"), NO_TIMES),
    ],
    ids=["beyond the job", "not started", "before a restart", "since a time"],
)
def test_a_log_that_cannot_be_read_is_an_error(pdj, demo, arguments, sentence):
    result = pdj("logs", demo, *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {sentence}\n")


def test_a_file_is_followed_to_the_end_of_the_job(cluster, demo, logs):
    (logs / "workerlog.1").unlink()
    words = [sys.executable, "-m", "paddlejob.cli.kubectl", "--kubeconfig", str(cluster.kubeconfig)]
    with subprocess.Popen([*words, "logs", demo, "-f", "-r", "5"], stdout=subprocess.PIPE) as following:
        with (logs / "workerlog.1").open("w") as file:
            for number in range(3):
                print("line", number, file=file, flush=True)
                assert following.stdout.readline() == f"line {number}\n".encode()
                break_command()
            print("last\nno end", end="", file=file, flush=True)
            assert following.stdout.readline() == b"last\n"
            break_command()
        for pod in ("demo-worker-0", "demo-worker-1"):
            cluster.let_go(pod)
        assert following.wait(timeout=60) == 0
        assert following.stdout.read() == b"no end\n"


def break_command() -> None:
    """End the command in the container, after which no line may be lost or repeated."""
    (shell,) = subprocess.check_output(["pgrep", "-P", str(os.getpid()), "-f", "read_log"]).split()
    os.killpg(int(shell), signal.SIGKILL)


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["so far", "followed"])
def test_after_the_end_the_log_of_the_pod_is_shown_with_the_reason(cluster, pdj, demo, follow):
    cluster.write("demo-worker-1", "ValueError: bad shape")
    for pod in ("demo-worker-0", "demo-worker-1"):
        cluster.let_go(pod)
    pdj("wait", demo, "--timeout=60s")
    result = pdj("logs", demo, "--rank", "5", *follow)
    assert result.stdout == "ValueError: bad shape\n"
    assert "the container of worker-1 has ended, and the log file of rank 5 with it" in result.stderr


def test_a_process_has_a_row(cluster, pdj, demo):
    for verb in (("get", demo, "--ranks"), ("describe", demo), ("top", demo, "--once")):
        lines = [" ".join(line.split()) for line in pdj(*verb).stdout.splitlines()]
        assert "RANK POD CARD STEP LOSS LAST LINE" in lines
        # Both pods have the same directory here.
        assert lines.count("5 worker-1 gpu 1 8/10 0.2 step 7/10 loss 0.25") == 1
        assert any(line.startswith("worker-1 4-7 Running") for line in lines) is (verb[0] != "get")
    [*_, last] = json.loads(pdj("get", demo, "--ranks", "-o", "json").stdout)
    assert last | {"rank": 5, "device": "gpu 1", "step": 8, "lastLine": "step 7/10 loss 0.25"} == last
    cluster.front.refusal = REFUSAL
    assert "<cannot get pods/exec in namespace default: needs get and create on pods/exec>" in (
        pdj("describe", demo).stdout
    )


def test_a_pod_with_one_process_is_a_rank(pdj, file):
    pdj("submit", file(job().worker(1)))
    assert pdj("wait", "demo", "--for=running", "--timeout=60s").exit_code == 0
    assert pdj("get", "demo", "--ranks").stdout.startswith("RANK       STATUS")


@pytest.mark.parametrize("words", [(), ("demo", "other"), ("demo", "-w"), ("demo", "-o", "wide")])
def test_ranks_are_those_of_one_job(pdj, words):
    result = pdj("get", *words, "--ranks")
    assert result.exit_code == 2
    assert "--ranks needs one JOB" in result.stderr


def test_a_pod_that_prints_without_end_is_left(pdj, demo, tmp_path, monkeypatch):
    shell = tmp_path / "bin" / "sh"
    shell.parent.mkdir()
    shell.write_text("#!/bin/sh\nexec yes\n")
    shell.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shell.parent}:{os.environ['PATH']}")
    assert "<cannot be read: the command in the container printed more than 8 MiB>" in (
        pdj("describe", demo).stdout
    )


def test_the_environment_of_a_process_is_read_while_its_pod_runs(cluster, pdj, demo):
    assert pdj("env", demo, "--rank", "5").stdout == "FLAGS_selected_gpus=1\nPADDLE_TRAINER_ID=5\n"
    assert "PADDLE_TRAINER_ID=1\n" in pdj("env", demo, "--rank", "worker-1").stdout
    for pod in ("demo-worker-0", "demo-worker-1"):
        cluster.let_go(pod)
    pdj("wait", demo, "--timeout=60s")
    assert pdj("env", demo, "--rank", "5").stderr == (
        "error: the environment of a process can be read while worker-1 runs, and it is Completed; "
        "--rank worker-1 shows the environment of its container\n"
    )
