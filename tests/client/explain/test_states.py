"""Jobs that one sentence explains, and jobs that failed."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta

import msgspec
import pytest

from paddlejob.client.explain import FollowUp, explain
from paddlejob.client.explain.causes.failure import last_lines, meaning_of
from simkube.build import NOW, job, snapshot
from tests.client.explain.scene import seen

CREATED = {"creationTimestamp": "2030-01-01T00:00:00Z"}
OOM = {"attempt": 1, "pod": "demo-worker-1", "reason": "OOMKilled", "exitCode": 137, "counted": True}
CRASH = {"attempt": 0, "pod": "demo-worker-0", "reason": "Error", "exitCode": 1, "counted": True}


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def ended(message, failure=None, *, reason="PodFailed", built=None, **around):
    status = {"phase": "Failed", "reason": reason, "message": message}
    status |= {"lastFailure": {**failure, "message": message}} if failure else {}
    return seen((built or job().worker(2)).status(**status), **around)


STATES = {
    "new": (seen(job().worker(1).metadata(creationTimestamp=at(-5))), "New", "created 5s ago"),
    "no operator": (
        seen(job().worker(1).metadata(creationTimestamp=at(-600))),
        "NoOperator",
        "no operator has looked at the job in 10m",
    ),
    "another controller": (
        seen(job().worker(1).spec(managedBy="kueue.x-k8s.io/multikueue")),
        "ManagedElsewhere",
        "leaves the job to kueue.x-k8s.io/multikueue",
    ),
    "invalid": (
        seen(job().worker(1).status(phase="Pending", reason="InvalidSpec", message="spec.worker: Required")),
        "InvalidSpec",
        "spec.worker: Required",
    ),
    "invalid while it runs": (
        seen(
            job().worker(1).status(phase="Running", reason="InvalidSpec", message="1 worker running; no ...")
        ),
        "InvalidSpec",
        "1 worker running; no",
    ),
    "suspended": (
        seen(job().worker(1).status(phase="Suspended", reason="Suspended", message="suspended; set ...")),
        "Suspended",
        "suspended; set",
    ),
    "running": (
        seen(
            job()
            .worker(2)
            .status(phase="Running", reason="PodsRunning", message="2 workers running", activeSince=at(-7500))
        ),
        "Running",
        "2 workers running for 125m$",
    ),
    "hanging": (
        seen(
            job()
            .worker(2)
            .status(
                phase="Running",
                reason="PodsRunning",
                message="2 workers running; no step for 12m (step 180): all 2 ranks are waiting",
            )
        ),
        "Hung",
        "no step for 12m .* ranks are waiting$",
    ),
    "completed": (
        seen(
            job()
            .worker(2)
            .status(
                phase="Completed", message="all 2 workers succeeded", startTime=at(-90), completionTime=at(0)
            )
        ),
        "Completed",
        "all 2 workers succeeded in 90s$",
    ),
    "being deleted": (
        seen(job().worker(1).status(phase="Terminating", reason="Deleting", message="being deleted")),
        "Deleting",
        "being deleted",
    ),
    "waiting to restart": (
        seen(
            job()
            .worker(2)
            .status(
                phase="Restarting",
                reason="WaitingToRestart",
                message="restarting at 00:00:30Z (attempt 2): worker-1 exited with code 137 (OOMKilled)",
                retryTime=at(30),
                attempt=2,
                lastFailure={**OOM, "message": "worker-1 exited with code 137 (OOMKilled)"},
            )
        ),
        "OOMKilled",
        r"restarting at 00:00:30Z \(attempt 2\): worker-1 exited .* \(in 30s\)$",
    ),
    "a deleted pod that is created again later": (
        seen(
            job()
            .worker(1)
            .status(phase="Pending", reason="WaitingToRestart", message="creating worker-0", retryTime=at(9))
        ),
        "WaitingToRestart",
        r"creating worker-0 \(in 9s\)",
    ),
    "out of time": (
        ended("ran longer than activeDeadlineSeconds 5", reason="DeadlineExceeded"),
        "DeadlineExceeded",
        "ran longer",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_one_sentence(name):
    evidence, cause, summary = STATES[name]
    found = explain(evidence)
    assert found.cause == cause
    assert re.search(summary, found.summary), found
    assert len(found.findings) == 1


def test_a_suspended_job_can_be_resumed():
    (advice,) = explain(seen(job().worker(1).status(phase="Suspended", message="suspended"))).advice
    (command,) = advice.commands("team-a", "demo")
    assert command.startswith("kubectl -n team-a patch pdj demo --type=json -p ")
    assert json.loads(shlex.split(command)[-1]) == [{"op": "add", "path": "/spec/suspend", "value": False}]


def test_pods_that_do_not_go_are_named():
    built = snapshot(
        job().worker(1).status(phase="Pending", message="waiting for 1 pod", observedGeneration=1)
    )
    given = seen(built.pod("worker", 0, node="a").leaving("worker", 0).later(300))
    (pod,) = given.pods
    held = msgspec.structs.replace(pod.metadata, finalizers=("example.com/slow",))
    found = explain(msgspec.structs.replace(given, pods=(msgspec.structs.replace(pod, metadata=held),)))
    assert found.findings[0].details == (
        "pod demo-worker-0 on node a has been terminating for 5m, held by the finalizer example.com/slow",
    )


def test_out_of_memory():
    resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    message = "worker-1 exited with code 137 (OOMKilled); gave up after 3 restarts (backoffLimit 3)"
    found = explain(
        ended(
            message,
            OOM,
            reason="BackoffLimitExceeded",
            built=job().worker(2, resources=resources).status(restarts=3),
        )
    )
    assert (found.cause, found.rank, found.exit_code) == ("OOMKilled", "worker-1", 137)
    assert found.summary == message
    assert "worker-1 failed first, in attempt 1" in found.findings[0].details
    assert "exit code 137 (OOMKilled): it used more memory than its limit" in found.findings[0].details
    assert any("restarted 3 of at most 3 times" in line for line in found.findings[0].details)
    first = found.advice[0]
    assert first.text.endswith("resources.limits.memory from 1Gi to 2Gi")
    assert first.then is FollowUp.RETRY


CODES = {
    1: "the program failed, usually with a Python exception",
    137: "killed by SIGKILL, often because memory ran out",
    140: "killed by SIGUSR2",
    241: "a process of the launcher was killed by SIGTERM",
    247: "a process of Paddle's launcher was killed by SIGKILL, often because memory ran out",
    250: "a process of Paddle's launcher aborted (SIGABRT), often because a peer exited",
    -9: "killed by SIGKILL",
    77: "",
}


@pytest.mark.parametrize("code", CODES)
def test_the_meaning_of_an_exit_code(code):
    assert meaning_of(code) == CODES[code]


NOT_RETRIED = "exit codes 1 to 127 are not retried; restartPolicy.retryableExitCodes: [{}] changes that"
TIMES = "restarted 2 of at most 3 times"
RESTARTS = {
    "a permanent code": ({}, {"exitCode": 3}, NOT_RETRIED.format(3)),
    "a planned code": ({}, {"exitCode": 101}, f"{TIMES}; this failure does not count against backoffLimit"),
    "a counted kill": ({}, {"exitCode": 137, "counted": True}, TIMES),
    "a known error": (
        {},
        {"exitCode": 1, "reason": "DownloadFailed"},
        f"{TIMES}; this failure does not count against backoffLimit",
    ),
    "a permanent code of the job": (
        {"permanentExitCodes": [137]},
        {"exitCode": 137},
        "exit code 137 is not retried: restartPolicy.permanentExitCodes has it",
    ),
    "a retryable code of the job": ({"retryableExitCodes": [3]}, {"exitCode": 3, "counted": True}, TIMES),
}


@pytest.mark.parametrize("name", RESTARTS)
def test_why_a_job_was_not_restarted(name):
    policy, failure, expected = RESTARTS[name]
    built = job().worker(1).spec(restartPolicy=policy).status(restarts=2)
    given = {**CRASH, "counted": False, **failure}
    assert expected in explain(ended("worker-0 failed", given, built=built)).findings[0].details


def test_an_error_with_a_name_and_where_the_time_went():
    failure = {**CRASH, "reason": "LossNaN"}
    spent = {"trainingSeconds": 90, "queuedSeconds": 10, "updated": "2026-01-01T00:00:00Z"}
    built = job().worker(1).status(goodput=spent)
    details = (
        explain(ended("worker-0 exited with code 1", failure, reason="LossNaN", built=built))
        .findings[0]
        .details
    )
    assert (
        "exit code 1 (LossNaN): the loss was not a number, and would be again with the same data" in details
    )
    assert "time: training 90s, queued 10s (90% training)" in details


TRACEBACK = (
    "epoch 1",
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    import pandas",
    "ModuleNotFoundError: No module named 'pandas'",
)


def test_a_traceback():
    log = (*(f"step {number}" for number in range(100)), *TRACEBACK)
    found = explain(ended("worker-0 exited with code 1: ModuleNotFoundError", CRASH, log=log))
    assert found.log == TRACEBACK[1:]
    assert "exit code 1: the program failed, usually with a Python exception" in "\n".join(
        found.findings[0].details
    )
    assert found.advice[0].text == "install the Python module pandas in the image"
    assert "Last lines of worker-0:" in str(found)


HINTS = {
    "python: can't open file '/app/train.py': [Errno 2]": "put /app/train.py into the image",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'": "put /data/x into the image or a",
    "ResourceExhaustedError: Out of memory error on GPU 0": "use a smaller batch",
    "ERROR: Unexpected BUS error encountered in DataLoader worker": "/dev/shm",
    "ValueError: ... environment variable FLAGS_selected_gpus is needed, but not set.": "distributed.launch",
    "bind: Address already in use": "the ports that the job gives it",
    "FileNotFoundError: [Errno 2] No such file or directory: 'log/workerlog.0'": "--log_dir",
    "PermissionError: [Errno 13] Permission denied: '/resnet/log/workerlog.0'": "--log_dir",
}


@pytest.mark.parametrize("line", HINTS)
def test_what_the_log_hints_at(line):
    found = explain(ended("worker-0 exited with code 1", CRASH, log=(line,)))
    assert HINTS[line] in found.advice[0].text


@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_cards_that_no_process_uses(phase):
    limits = {"limits": {"nvidia.com/gpu": 8}}
    of = job().worker(2, command=["python", "train.py"], resources=limits).status(phase=phase, message="fine")
    [detail] = explain(seen(of)).findings[0].details
    assert detail.startswith("each worker requests 8 x nvidia.com/gpu, but its command starts one process")


def test_gpus_that_the_log_says_are_left_idle():
    holding = job().worker(1, resources={"limits": {"nvidia.com/gpu": 1}})
    log = ("ValueError: The device should not be 'gpu', since PaddlePaddle is not compiled with CUDA", "bye")
    advice = "worker-0 holds 1 x nvidia.com/gpu, but its Paddle was built for the CPU only; use an image with"
    found = explain(ended("worker-0 exited with code 1: bye", CRASH, built=holding, log=log))
    assert found.advice[0].text == f"{advice} paddlepaddle-gpu"
    told = f"worker-0 exited with code 1: bye; it {advice.removeprefix('worker-0 ')} paddlepaddle-gpu"
    assert "GPU" not in explain(ended(told, CRASH, built=holding, log=log)).advice[0].text


def test_the_source_of_the_last_lines_is_a_detail():
    note = "pod demo-worker-0 was deleted; its last lines are from the operator's record"
    found = explain(ended("worker-0 exited with code 1", CRASH, log=("boom",), log_note=note))
    assert (found.log, found.findings[0].details[-1]) == (("boom",), note)


LOGS = {
    "empty": ((), ()),
    "short": (("a", "", "b"), ("a", "b")),
    "long": (tuple(str(number) for number in range(50)), tuple(str(number) for number in range(38, 50))),
    "colours and cursors": (("\x1b[31mred\x1b[0m\x07", "10%\r100%"), ("red", "100%")),
    "a long line": (("x" * 1000,), ("x" * 197 + "...",)),
    "the last of several tracebacks": (
        ("Traceback (most recent call last):", "A: first", "Traceback (most recent call last):", "B: second"),
        ("Traceback (most recent call last):", "B: second"),
    ),
    "a long traceback": (
        ("Traceback (most recent call last):", *(f"  frame {n}" for n in range(30)), "E: the end"),
        ("Traceback (most recent call last):", "...", *(f"  frame {n}" for n in range(21, 30)), "E: the end"),
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_end_of_a_log(name):
    log, shown = LOGS[name]
    assert last_lines(log) == shown
