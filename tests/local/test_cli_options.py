"""The options of `paddlejob run`."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

from local.jobs import container, job, role, text

pytestmark = pytest.mark.slow

GPU = {"limits": {"amd.com/gpu": 1}}


ON_GPU = job(worker=role(1, containers=[container("true", resources=GPU)]))


BAD_INPUT = {
    "a bad job": (text(job(worker=role(0))), (), "error: spec.worker.replicas: Invalid value: 0"),
    "a file that is no YAML": ("a: [", (), "job.yaml is not valid YAML: line 2"),
    "a bad option": (text(job()), ("--image", "x"), "error: --image x: write IMAGE=DIR"),
    "logs of no pod": (
        text(job()),
        ("--logs", "7"),
        "--logs 7: there is no such pod; give all, none or one of",
    ),
    "logs of nobody": (text(job()), ("--logs", "foo"), "or one of worker-0, worker-1"),
    "another encoding": ("名字".encode("gbk"), (), "job.yaml is not UTF-8 text; save it as UTF-8"),
    "a binary file": (bytes(range(256)), (), "job.yaml is not UTF-8 text"),
    "a directory that cannot be written": (
        text(job()),
        ("--run-dir", "/proc/runs"),
        "cannot write to /proc/runs: No such file or directory; choose another directory with --run-dir",
    ),
    "too many pods": (text(job(worker=role(5000))), (), "has 5000 pods, but one machine runs at most 4094"),
    "an accelerator with --strict": (text(ON_GPU), ("--strict",), "without --strict it would run on the CPU"),
}


@pytest.mark.parametrize(("written", "options", "sentence"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_invalid_input_exits_2_with_one_sentence(command, tmp_path, written, options, sentence):
    (tmp_path / "job.yaml").write_bytes(written if isinstance(written, bytes) else written.encode())
    done = command("run", tmp_path / "job.yaml", *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").glob("*/job.yaml"))


def test_the_job_may_come_from_a_pipe(command):
    done = command("run", "-", input=text(job(worker=role(1, "echo piped"))))
    assert done.stdout == "worker-0 | piped\n"


def test_the_file_may_be_an_option(command, file):
    document = job(worker=role(1, "echo $PADDLE_TRAINERS_NUM"))
    assert command("run", "-f", file(document)).stdout == "worker-0 | 1\n"
    assert command("run", "-f", "-", input=text(document)).stdout == "worker-0 | 1\n"
    assert "give one file" in command("run", "-f", file(document), file(document)).stderr
    assert "give the file of a job, or - for standard input" in command("run").stderr


def test_a_job_is_changed_without_editing_its_file(command, tmp_path):
    script = "import os, sys; print(*(os.environ.get(name) for name in ('A', 'B', 'C')), *sys.argv[1:])"
    main = {"name": "main", "image": "x", "command": ["python3", "-c", script], "args": ["kept"]}
    main["env"] = [{"name": "A", "value": "file"}, {"name": "B", "value": "file"}]
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data"}, "data": {"k": "3"}}
    (tmp_path / "job.yaml").write_text(text(job(worker=role(1, containers=[main])), other))
    command.environ["C"] = "shell"
    words = ("run", tmp_path / "job.yaml", "--python", sys.executable)
    assert command(*words).stdout == "worker-0 | file file None kept\n"
    done = command(*words, "--workers", "2", "-e", "A=option=1", "--env", "C", "--", "--lr", "0.1")
    assert sorted(done.stdout.splitlines()) == [f"worker-{n} | option=1 file shell --lr 0.1" for n in (0, 1)]
    assert json.loads(command("get", "@latest", "-o", "json").stdout)["status"]["worldSize"]["worker"] == 2


WRONG_OPTIONS = {
    "no workers": (("--workers", "0"), "spec.worker.replicas: Invalid value: 0"),
    "a variable without a name": (("-e", "=1"), "--env =1: write NAME=VALUE"),
    "a variable that is not set": (("-e", "NO_SUCH"), "--env NO_SUCH: write NAME=VALUE"),
    "objects of a run": (("-o", "yaml"), "-o yaml needs --dry-run"),
    "a python that does not run": (
        ("--python", "false"),
        "false (--python), which does not run: exit code 1",
    ),
}


@pytest.mark.parametrize(("options", "sentence"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_an_invalid_option_exits_2_with_one_sentence(command, file, tmp_path, options, sentence):
    done = command("run", file(job()), *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not list((tmp_path / "runs").glob("*/job.yaml"))


def test_a_dry_run_checks_everything_and_starts_nothing(command, tmp_path):
    other = container("sleep 9", name="side")
    pod = {"containers": [container("true"), other]}
    document = job(intranet="Service", ps=role(1), worker=role(1, **pod))
    (tmp_path / "job.yaml").write_text(text(document))
    words = ("run", tmp_path / "job.yaml", "--dry-run", "--python", sys.executable)
    done = command(*words)
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [
        *("POD", "ps-0", "worker-0", "worker-0/side"),
        f"python: {sys.executable} (--python), has no Paddle",
    ]
    assert "sh -c 'sleep 9'" in done.stdout
    assert "nothing was started (--dry-run)" in done.stderr
    named = command(*words, "-o", "name").stdout.split()
    assert named[-2:] == ["pod/job-ps-0", "pod/job-worker-0"]
    documents = list(yaml.safe_load_all(command(*words, "-o", "yaml").stdout))
    assert [each["kind"] for each in documents] == ["Service", "Service", "ConfigMap", "Pod", "Pod"]
    assert [json.loads(line) for line in command(*words, "-o", "json").stdout.splitlines()][-1][
        "kind"
    ] == "Pod"
    assert command(*words, "--workers", "0").returncode == 2
    assert not list((tmp_path / "runs").glob("*/job.yaml"))


def test_a_python_without_paddle_is_noted_if_it_is_used(command, file):
    python = {"name": "main", "image": "x", "command": ["python3", "-c", "pass"]}
    done = command("run", file(job(worker=role(1, containers=[python]))), "--python", sys.executable)
    assert f"note: python is {sys.executable} (--python), which has no Paddle; choose another" in done.stderr
    assert "has no Paddle" not in command("run", file(job()), "--python", sys.executable).stderr


def test_logs_of_one_rank_or_none_can_be_shown(command, file):
    path = file(job(worker=role(2, "echo I am $PADDLE_TRAINER_ID")))
    assert command("run", path, "--logs", "1").stdout == "worker-1 | I am 1\n"
    assert command("run", path, "--logs", "none").stdout == ""


def test_a_missing_paddle_is_reported_with_advice(command, file):
    script = "echo \"ModuleNotFoundError: No module named 'paddle'\"; exit 1"
    done = command("run", file(job(worker=role(1, script), backoffLimit=0)), "--python", sys.executable)
    assert f"python is {sys.executable} (--python), which has no Paddle; choose another with" in done.stderr
