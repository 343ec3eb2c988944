"""Real ranks on a real node that are stopped, cut off, deadlocked or slow, and an operator that says so.

Takes long: `make e2e-thorough`.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from devcluster import Cluster
from e2e.conftest import await_operator
from e2e.images import OPERATOR, RESNET, ROOT
from e2e.jobs import Body, Job, Space, collective, eventually, example, templates, without_gpu
from e2e.network import disconnect
from e2e.report import REPORT
from e2e.test_recorder import recorded
from paddlejob.cli.kubectl import group

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]

HANG_SECONDS, SLOW_SECONDS = 10, 20
"""A step may not take longer; evaluations and checkpoints may. gloo ends a rank that has waited for 30
seconds, of which reports and looks at them, every 5 seconds each, take up to 20."""
WORK, WITHIN_STEPS = 40, 30
"""What makes a throttled step take a second, so that reports and looks at them are a few steps apart."""
PATIENCE_SECONDS = 180.0
TROUBLED = (ROOT / "tests" / "support" / "troubled.py").read_text()
CRASHES = (
    "\n".join(f"print('step {step}/9 loss 0.5', flush=True)" for step in (1, 2, 3))
    + """
import time; time.sleep(8); raise SystemExit(137)
"""
)
"""Is seen at step 3, and never gets further."""


@pytest.fixture(scope="module")
def _impatient(node: Cluster) -> Iterator[None]:
    """Let the operator call jobs hung after seconds, not minutes."""
    deployment = ("--namespace=paddle-system", "deployment/paddle-controller-manager")
    extra = {"op": "add", "path": "/spec/template/spec/containers/0/args/-"}
    change = json.dumps([{**extra, "value": f"--hang-seconds={HANG_SECONDS},{HANG_SECONDS}"}])
    node.kubectl("patch", *deployment, "--type=json", f"--patch={change}")
    await_operator(node)
    yield
    node.kubectl("rollout", "undo", *deployment)
    await_operator(node)


@pytest.fixture
def pdj(space: Space, tmp_path: Path) -> Callable[..., str]:
    # For the command only: the programs that the tests use are cached below the real home directory.
    runner = CliRunner(env={"KUBECONFIG": str(space.cluster.kubeconfig), "HOME": str(tmp_path)})

    def run(*arguments: str) -> str:
        result = runner.invoke(group, ["-n", space.name, *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def pod_of(job: Job, worker: str) -> Body:
    [pod] = (pod for pod in job.pods() if pod["metadata"]["name"] == f"{job.name}-{worker}")
    return pod


def rank_of(job: Job, worker: str, program: str) -> int:
    """Give the process that trains in a pod, as this machine sees it."""
    uid = pod_of(job, worker)["metadata"]["uid"]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            groups, command = (process / "cgroup").read_text(), (process / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if uid in groups and program.encode() in command and b"launch" not in command:
            found.append(int(process.name))
    [pid] = found
    return pid


def events(job: Job, reason: str) -> list[str]:
    listed = job.space.list("events")
    return [each["message"] for each in listed if each["reason"] == reason]


def told(job: Job, reason: str) -> str:
    """Wait for an event, and give what it says."""
    return eventually(lambda: events(job, reason), within_seconds=PATIENCE_SECONDS, says=job.status)[0]


def trains(job: Job, attempt: int) -> None:
    """Wait until the recorder of an attempt has told a step."""

    def told() -> bool:
        progress = job.status().get("progress") or {}
        return bool(progress.get("phase")) and progress.get("attempt", 0) == attempt

    eventually(told, within_seconds=PATIENCE_SECONDS, says=job.status)


def failure_of(job: Job, attempt: int) -> Body:
    """Wait until an attempt has failed, and give how."""

    def ended() -> Body | None:
        failure: Body = job.status().get("lastFailure") or {}
        return failure if failure.get("attempt", 0) == attempt and failure else None

    return eventually(ended, within_seconds=PATIENCE_SECONDS, says=job.status)


def restarted(job: Job, attempt: int) -> str:
    """Wait until a hang ends an attempt, and give what was said of it, by an event too."""
    failure = failure_of(job, attempt)
    message: str = failure["message"]
    assert (failure["reason"], failure["pod"]) == ("Hung", f"{job.name}-worker-1")
    assert message in events(job, "Hung")
    return message


def test_a_rank_that_gloo_ends_says_for_whom_it_waited(space: Space) -> None:
    """By default a job hangs after 10 minutes at the earliest, when gloo has long given up."""
    job = space.submit(recorded(without_gpu(example("resnet")), EPOCHS=500))
    trains(job, 0)
    with REPORT.timed("a stopped rank is named, with gloo and the default of --hang-seconds"):
        os.kill(rank_of(job, "worker-1", "train_fleet.py"), signal.SIGSTOP)
        failure = failure_of(job, 0)
    assert failure["pod"] == "resnet-worker-0"
    assert re.match(r"worker-0 exited with code ", failure["message"])
    awaited = r"; it was waiting: resnet-worker-1 \(rank 1\) on \S+ is not reporting$"
    assert re.search(awaited, failure["message"])
    assert events(job, "Hung") == []


def test_a_job_that_crashes_at_the_same_step_ends_with_the_reason(space: Space) -> None:
    body = collective("crashes", OPERATOR, ["python3", "-c", CRASHES], backoffLimit=50)
    body["spec"]["restartPolicy"] = {"delaySeconds": 1, "noProgressLimit": 2}
    status = space.submit(body).await_phase("Failed", within_seconds=PATIENCE_SECONDS)
    assert status["reason"] == "NoProgress"
    assert status["message"].endswith("; no progress beyond step 3 in 2 restarts (noProgressLimit 2)")


@pytest.mark.usefixtures("_impatient")
def test_ranks_of_the_example_that_are_stopped_or_cut_off_are_named_and_history_knows(
    space: Space, node: Cluster, pdj: Callable[..., str]
) -> None:
    body = recorded(without_gpu(example("resnet")), EPOCHS=500)
    body["spec"] |= {"hangPolicy": "Restart", "restartPolicy": {"delaySeconds": 1}}
    for template in templates(body):
        template["terminationGracePeriodSeconds"] = 1
    job = space.submit(body)
    trains(job, 0)
    with REPORT.timed(f"a stopped rank is named, with --hang-seconds={HANG_SECONDS}"):
        os.kill(rank_of(job, "worker-1", "train_fleet.py"), signal.SIGSTOP)
        message = restarted(job, 0)
    assert re.search(r"resnet-worker-1 \(rank 1\) on \S+ is not reporting$", message)
    trains(job, 1)
    with REPORT.timed(f"a rank that is cut off is named, with --hang-seconds={HANG_SECONDS}"):
        disconnect(node.directory, rank_of(job, "worker-1", "train_fleet.py"))
        message = restarted(job, 1)
    assert re.search(r"resnet-worker-1 \(rank 1\) on \S+ is not reporting$", message)
    trains(job, 2)

    space.kubectl("delete", "pdj", job.name)
    space.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    eventually(lambda: not space.names("pods"))
    assert "resnet" in pdj("history")
    first, second, *_ = json.loads(pdj("postmortem", job.name, "-o", "json"))["attempts"]
    for attempt in (first, second):
        assert attempt["failure"]["pod"] == "resnet-worker-1"
        [waiting] = (rank["text"] for rank in attempt["ranks"] if rank["rank"] == "worker-0")
        assert re.search(r"train_fleet\.py\", line \d+ in ", waiting), "the stack of the rank that waits"


@pytest.mark.usefixtures("_impatient")
def test_a_throttled_rank_and_a_deadlock_are_named_and_slow_evaluations_and_checkpoints_are_not(
    space: Space,
) -> None:
    command = ["python3", "-c", TROUBLED]
    body = recorded(collective("troubled", RESNET, command, replicas=2), SLOW_SECONDS=SLOW_SECONDS, WORK=WORK)
    for template in templates(body):
        template["containers"][0]["resources"] = {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}
    job = space.submit(body)
    eventually(lambda: steps_told(job) > 40, within_seconds=PATIENCE_SECONDS, says=job.status)
    assert (events(job, "Hung"), events(job, "Straggler")) == ([], [])
    assert job.status()["goodput"]["stalledSeconds"] == 0

    first = printed(job)
    limit_cpu(job, "worker-1", "200m")
    message = told(job, "Straggler")
    steps = printed(job) - first
    REPORT.note("steps of a throttled rank until it is named", str(steps))
    assert steps <= WITHIN_STEPS
    assert re.match(r"troubled-worker-1 \(rank 1\) on \S+ computes for ", message)
    limit_cpu(job, "worker-1", "2")

    space.kubectl("exec", "troubled-worker-1", "--", "touch", "/tmp/trouble")
    with REPORT.timed(f"a deadlock is named, with --hang-seconds={HANG_SECONDS}"):
        message = told(job, "Hung")
    assert re.search(
        r"troubled-worker-1 \(rank 1\) on \S+ does not join the call that the others wait in; "
        r"it is in take_a_lock_twice \(<string>:\d+\)$",
        message,
    )
    assert job.await_message("no step for")["message"].endswith(message)
    assert job.status()["goodput"]["stalled"]


def steps_told(job: Job) -> int:
    """Give the step in the status, which is written now and then."""
    step: int = (job.status().get("progress") or {}).get("step", 0)
    return step


def printed(job: Job) -> int:
    """Give the newest step of worker 0."""
    return int(re.findall(r"^step (\d+) ", job.log("worker-0"), re.MULTILINE)[-1])


def limit_cpu(job: Job, worker: str, cpu: str) -> None:
    """Change what processor time a running pod may use."""
    container = {"name": "paddle", "resources": {"limits": {"cpu": cpu}}}
    patch = json.dumps({"spec": {"containers": [container]}})
    job.space.kubectl("patch", "pod", f"{job.name}-{worker}", "--subresource=resize", f"--patch={patch}")
