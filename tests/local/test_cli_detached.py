"""Runs in the background: started, watched and waited for."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from local.commands import FOREVER, PADDLEJOB, in_terminal, says_up
from local.jobs import container, job, role, text
from local.processes import marked
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def detached(command, tmp_path):
    """Start runs in the background, of which none is left when the test is over."""

    def start(path, *options):
        return command("run", path, "-d", *options)

    yield start
    for run in command("runs", "-o", "name").stdout.split():
        command("stop", run)
        command("wait", run)
    assert not marked(command.mark)


UNTIL_TOLD = "echo up; until test -e /tmp/go-$TZ; do sleep 0.05; done; rm -f /tmp/go-$TZ; echo done acc 0.9"


def go(command):
    Path(f"/tmp/go-{command.mark}").touch()


def test_a_detached_run_is_attached_to_and_waited_for(detached, command, file, tmp_path):
    done = detached(file(job(worker=role(1, UNTIL_TOLD))))
    [run] = done.stdout.split()
    assert f"watch it with `paddlejob attach {run}`" in done.stderr
    assert command("wait", run, "--timeout", "1s").returncode == 124
    with (tmp_path / "attached").open("wb") as shown:
        watcher = subprocess.Popen(
            [*PADDLEJOB, "attach"], env=command.environ, stdout=shown, stderr=subprocess.STDOUT
        )
    eventually(lambda: "worker-0 | up" in (tmp_path / "attached").read_text())
    go(command)
    waited = command("wait", run)
    assert (waited.returncode, "Completed" in waited.stdout) == (0, True)
    assert watcher.wait() == 0
    lines = (tmp_path / "attached").read_text().splitlines()
    assert [line for line in lines if "|" in line] == ["worker-0 | up", "worker-0 | done acc 0.9"]
    assert re.fullmatch(r"job Completed in \d+\.\d s: done acc 0\.9", lines[-1])
    late = command("attach", run)
    assert (late.returncode, "is not running" in late.stderr) == (2, True)


def test_detaching_does_not_end_the_run(detached, command, file, tmp_path):
    detached(file(job(worker=role(1, FOREVER))))
    with (tmp_path / "attached").open("wb") as shown:
        watcher = subprocess.Popen(
            [*PADDLEJOB, "attach", "-o", "json", "--logs", "all"], env=command.environ, stdout=shown
        )
    eventually(lambda: '"line":"up"' in (tmp_path / "attached").read_text())
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait() == 130
    kinds = [json.loads(line)["type"] for line in (tmp_path / "attached").read_text().splitlines()]
    assert (kinds[0], kinds[-1]) == ("run", "detached")
    assert {"job", "pod", "event", "log"} <= set(kinds)
    assert "Running" in command("runs").stdout


def test_attach_shows_the_live_view(detached, command, file):
    detached(file(job(worker=role(1, f"echo step 3/9 loss 0.5; {UNTIL_TOLD}; exit 3"), backoffLimit=0)))
    shown = in_terminal(command, "attach", code=1, react=("33%", lambda _: go(command)))
    for words in ("worker-0  Running", "Ctrl-C detaches", "job Failed in"):
        assert words in shown


def test_the_exit_code_of_wait_is_the_worst_result(detached, command, file):
    good = detached(file(job("good", worker=role(1)))).stdout.strip()
    bad = detached(file(job("bad", worker=role(1, "exit 3"), backoffLimit=0))).stdout.strip()
    assert command("wait", good).returncode == 0
    assert command("wait", good, bad).returncode == 1


def test_attach_reports_a_killed_runner(background, command, file, output, tmp_path):
    process = background(file(job(worker=role(1, FOREVER))))
    says_up(output)
    shown = tmp_path / "attached"
    with shown.open("wb") as stream:
        watcher = subprocess.Popen(
            [*PADDLEJOB, "attach"], env=command.environ, stdout=stream, stderr=subprocess.STDOUT
        )
    eventually(lambda: "| up" in shown.read_text())
    process.kill()
    process.wait()
    assert watcher.wait() == 1
    assert "was lost: its runner was killed" in shown.read_text()
    assert command("wait", "job").returncode == 1


def test_ctrl_c_detaches(detached, command, file):
    run = detached(file(job(worker=role(1, f"echo step 3/9 loss 0.5; {FOREVER}")))).stdout.strip()
    shown = in_terminal(command, "attach", run, code=130, react=("33%", lambda at: at.sendintr()))
    assert f"detached; watch it again: paddlejob attach {run}" in shown
    assert "Running" in command("runs", run).stdout


def test_a_detached_run_that_cannot_start_says_why(detached, file):
    done = detached(file(job(worker=role(0))))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: spec.worker.replicas: Invalid value: 0: must be between 1 and 5000\n"


def test_a_detached_run_uses_the_options(detached, command, tmp_path):
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    # The job ends with its training container, whatever runs beside it: that one waits for the other.
    program = "cat here.txt; cat /data/x; echo $A; until test -e /data/side; do sleep 0.05; done"
    main = {"name": "main", "image": "known:v1", "args": [program], **mount}
    side = {**container("cat there.txt; touch /data/side", name="side"), "image": "unknown", **mount}
    document = job("old", worker=role(1, containers=[main, side], volumes=[claim]))
    for name in ("jobs", "image", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text(text(document))
    (tmp_path / "jobs" / "there.txt").write_text("job's directory\n")
    (tmp_path / "image" / "here.txt").write_text("image\n")
    (tmp_path / "image" / "Dockerfile").write_text('FROM x\nCOPY . /i\nWORKDIR /i\nENTRYPOINT ["sh", "-c"]\n')
    (tmp_path / "data" / "x").write_text("claim\n")
    options = (
        "--name",
        "new",
        "--image",
        f"known:v1={tmp_path / 'image'}",
        "--volume",
        f"data={tmp_path / 'data'}",
    )
    run = detached(tmp_path / "jobs" / "job.yaml", *options, "-e", "A=variable", "-o", "name").stdout.strip()
    assert run.startswith("new-")
    assert command("wait", run).returncode == 0
    assert sorted(
        line.replace(" ", "") for line in command("logs", run, "--all-containers").stdout.split("\n")
    ) == [
        "",
        "worker-0/side|job'sdirectory",
        "worker-0|claim",
        "worker-0|image",
        "worker-0|variable",
    ]
