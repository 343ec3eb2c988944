"""`kubectl pdj` at a terminal and the SDK on a real node, by a user with the role `edit` in one namespace."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import ensure
from e2e.images import RESNET, WIDE_AND_DEEP
from e2e.jobs import Space, collective
from paddlejob import Job, JobFailed, train
from sdk.notebooks import NOTEBOOKS, executed, snapshot_of
from tests.support.editor import editor_kubeconfig
from tests.support.terminal import PATIENCE_SECONDS, Terminal, ended, on_terminal

TRAINING = """
import functools, http.server, os, threading, time
files = functools.partial(http.server.SimpleHTTPRequestHandler, directory="/tmp")
threading.Thread(target=http.server.HTTPServer(("", 8040), files).serve_forever, daemon=True).start()
print("training as rank", os.environ["PADDLE_TRAINER_ID"], flush=True)
while not os.path.exists("/tmp/end"):
    time.sleep(0.1)
code = int(open("/tmp/end").read())
if code == 1:
    raise ValueError("bad shape")
print("ending", flush=True)
os._exit(code)
"""
"""Serves /tmp, and trains until it is told how to end: 1 is for good, 137 is worth another attempt."""
SCRIPT = """
import os, sys
for step in range(1, 4):
    print(f"step {step}/3 loss {0.5 ** step}")
if len(sys.argv) > 1 and os.environ["PADDLE_TRAINER_ID"] == "1":
    raise ValueError(sys.argv[1])
"""


@pytest.fixture
def editor(space: Space, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kubeconfig of the user, which is that of this process too."""
    path = editor_kubeconfig(space.cluster, space.name)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def terminal(editor: Path, space: Space, tmp_path: Path) -> Iterator[Terminal]:
    """Run `kubectl pdj`, a plugin of the real kubectl, on a terminal of its own."""
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.symlink_to(ensure(["kubectl"], kubernetes=space.cluster.access.kubernetes)["kubectl"])
    path = os.pathsep.join((str(kubectl.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path, "KUBECONFIG": str(editor), "HOME": str(tmp_path)}
    with on_terminal("kubectl", "pdj", env=environ, cwd=str(tmp_path)) as start:
        yield start


def done(child: Any) -> str:
    code, printed = ended(child)
    assert code == 0, printed
    return printed


def test_a_job_is_followed_from_its_submission_to_its_end(terminal: Terminal, tmp_path: Path) -> None:
    body = collective("demo", WIDE_AND_DEEP, ["python3", "-c", TRAINING], replicas=2)
    body["spec"]["restartPolicy"] = {"delaySeconds": 1}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(body))
    following = terminal("submit", "job.yaml", "--logs")
    following.expect("demo created")
    for _ in range(2):
        following.expect(r"worker-[01] \| \S*training as rank [01]")

    assert "worker-1" in done(terminal("describe", "demo"))
    assert "PADDLE_TRAINER_ID=1" in done(terminal("env", "demo", "--rank", "1"))
    end(terminal, "demo", rank=1, code=137)
    following.expect(r"attempt 1: restarted after worker-1 exited with code 137")
    for _ in range(2):
        following.expect(r"worker-[01] \| \S*training as rank [01]")

    enter(terminal, tmp_path)
    assert "scaling to 1 worker" in done(terminal("scale", "demo", "1"))
    following.expect("attempt 2: ")
    following.expect(r"worker-0 \| \S*training as rank 0")
    end(terminal, "demo", rank=0, code=1)
    code, rest = ended(following)
    assert code == 1
    assert "ValueError: bad shape" in rest
    assert "demo Failed: " in rest
    assert "Traceback (most recent call last):" in done(terminal("logs", "demo", "--first-error"))
    explained = done(terminal("explain", "demo"))
    assert explained.startswith("demo: Failed: ")
    assert "ValueError: bad shape" in explained
    begin_again(terminal)


def enter(terminal: Terminal, tmp_path: Path) -> None:
    """Run a command in a rank, copy a file into it, read that through a forwarded port, and copy it back."""
    shell = terminal("exec", "demo", "-it", "--rank", "1", "--", "sh")
    shell.expect("[#$] ")
    shell.sendline("echo rank $PADDLE_TRAINER_ID; exit 7")
    shell.expect("rank 1")
    assert ended(shell)[0] == 7
    (tmp_path / "given").write_text("weights")
    done(terminal("cp", "demo", "given", "worker-0:/tmp/given"))
    forwarding = terminal("port-forward", "demo", ":8040")
    forwarding.expect(r"Forwarding from 127.0.0.1:(\d+) -> 8040")
    with urllib.request.urlopen(f"http://127.0.0.1:{forwarding.match[1]}/given", timeout=60) as answer:
        assert answer.read() == b"weights"
    forwarding.sendintr()
    assert ended(forwarding)[0] == 130
    done(terminal("cp", "demo", "worker-0:/tmp/given", "taken"))
    assert (tmp_path / "taken").read_text() == "weights"


def begin_again(terminal: Terminal) -> None:
    """Retry the failed job, suspend and resume the new one, let it complete, and delete both."""
    created = re.search(r"/(demo-\w+) created", done(terminal("retry", "demo")))
    assert created
    name = created[1]
    following = terminal("logs", "-f", name)
    following.expect("training as rank 0")
    done(terminal("suspend", name))
    done(terminal("wait", name, "--for=suspended", "--timeout=60s"))
    done(terminal("resume", name))
    following.expect("training as rank 0")
    end(terminal, name, rank=0, code=0)
    code, rest = ended(following)
    assert (code, "ending" in rest) == (0, True), rest
    assert f"{name} Completed in" in rest
    deleting = terminal("delete", "demo", name)
    deleting.expect(r"\[y/N\]: ")
    deleting.sendline("y")
    done(deleting)
    assert "No PaddleJobs found" in done(terminal("get"))


def end(terminal: Terminal, job: str, *, rank: int, code: int) -> None:
    """Let a rank end, which may be before the command that tells it to has ended."""
    words = f"echo {code} > /tmp/code && mv /tmp/code /tmp/end"
    ended(terminal("exec", job, "--rank", rank, "--", "sh", "-c", words))


@pytest.mark.usefixtures("editor")
def test_the_sdk_trains_fails_and_changes_jobs(space: Space, tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(SCRIPT)
    keep = {"cleanPodPolicy": "Never", "backoffLimit": 0}
    job = train(script, workers=2, image=WIDE_AND_DEEP, where="cluster", name="fits", spec=keep)
    assert job.wait(PATIENCE_SECONDS) is job
    assert [str(line) for line in job.logs(rank=0)] == [f"step {n}/3 loss {0.5**n}" for n in (1, 2, 3)]
    assert [row["loss"] for row in job.history()] == [0.5, 0.25, 0.125]

    broken = train(
        script, args=["bad shape"], workers=2, image=WIDE_AND_DEEP, where="cluster", name="breaks", spec=keep
    )

    async def fail() -> None:
        await broken

    with pytest.raises(JobFailed) as caught:
        asyncio.run(fail())
    assert (caught.value.rank, caught.value.exit_code) == ("worker-1", 1)
    assert "ValueError: bad shape" in caught.value.last_lines  # stdout and stderr reach the log in any order
    assert str(broken.explain()).startswith("breaks: Failed: ")

    (tmp_path / "again.yaml").write_text(job.to_yaml().replace("name: fits\n", "name: again\n"))
    assert job.delete() == "deleted"
    again = Job.from_yaml(tmp_path / "again.yaml", where="cluster")
    assert again.suspend() == "suspending"
    assert again.scale(1) == "scaling to 1 worker"
    assert again.resume() == "resuming"
    Job.get("again", where="cluster").wait(PATIENCE_SECONDS)
    assert [each.name for each in Job.list(where="cluster")] == ["again", "breaks"]
    for each in (again, broken):
        each.delete()
    assert space.table() == []


def test_the_cluster_notebook_trains_and_explains(space: Space, editor: Path, tmp_path: Path) -> None:
    cells = executed(
        NOTEBOOKS / "cluster.ipynb", tmp_path, {"KUBECONFIG": str(editor), "PADDLE_IMAGE": RESNET}
    )
    (html,) = next(cell for cell in cells if "job.watch()" in cell.source).shown("text/html")
    assert "Completed" in html
    assert "epoch 3/3 step 120/120" in html
    points = snapshot_of(html)["points"]
    assert {each["epoch"] for each in points} == {1, 2, 3}
    assert points[-1]["loss"] < points[0]["loss"]
    logs = next(cell for cell in cells if "job.logs(" in cell.source).text
    assert "worker-0 done: rank 0 of 2" in logs
    explained = next(cell for cell in cells if "explain()" in cell.source).text
    assert "1 of 1 nodes have too little cpu left" in explained
    assert cells[-1].text == "deleted\ndeleted\n"
    assert space.table() == []
