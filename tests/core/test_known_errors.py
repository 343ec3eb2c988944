"""Errors that have a name decide by it: the table of docs/fault-tolerance.md."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import Phase, TrainingProgress
from paddlejob.core.attempts import known_errors
from paddlejob.core.snapshot import MAX_CAUSE_DELAY_SECONDS
from simkube.build import job, snapshot


def recall(number: int) -> str:
    return f"Traceback (most recent call last):\nValueError: PaddleRecall error({number}): Something\n"


def live(of=None):
    return snapshot(of or job().worker(2)).pods_running().formed().phase(Phase.RUNNING)


STOP, AGAIN = Phase.FAILED, Phase.RESTARTING
TABLE = [
    (recall(101), 1, AGAIN, "AADiff"),
    (recall(102), 1, STOP, "LossNaN"),
    (recall(102), 134, STOP, "LossNaN"),
    (recall(103), 1, AGAIN, "ShardingPadNonZero"),
    (recall(104), 250, STOP, "LossInf"),
    (recall(105), 1, AGAIN, "DownloadFailed"),
    (recall(106), 1, STOP, "Error"),
    (recall(106), 134, AGAIN, "Error"),
    (recall(107), 1, AGAIN, "CheckpointFailed"),
    (recall(108), 1, STOP, "Error"),
    (recall(102) + recall(105), 1, AGAIN, "DownloadFailed"),
    ("There are NAN or INF (num_nan=3, num_inf=0, num_zero=1) in [op=x]", 1, STOP, "LossNaN"),
    ("There are NAN or INF (num_nan=0, num_inf=2, num_zero=1) in [op=x]", 1, STOP, "LossInf"),
    ("There are NAN or INF in tensor", 134, STOP, "LossNaN"),
    (recall(102) + "paddlejob: attempt 2 starts in place\nstep 1\n", 137, AGAIN, "Error"),
    ("ValueError: no data", 1, STOP, "Error"),
]


@pytest.mark.parametrize(("words", "code", "phase", "reason"), TABLE)
def test_what_follows_from_a_named_error(words, code, phase, reason):
    plan = live().failed("worker", 1, code=code, message=words).plan()
    assert (plan.status.phase, plan.status.last_failure.reason) == (phase, reason)
    if phase is STOP and reason != "Error":
        assert plan.status.reason == reason
    if phase is AGAIN:
        assert plan.status.restarts == 1
        assert plan.status.consecutive_restarts == 1


RESET = "[/gloo/gloo/transport/tcp/pair.cc:576] Read error [10.0.0.2]:15077: Connection reset by peer"
LOST_PEER = (
    RESET,
    "[/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:6177",
    "(InvalidArgument) TCP receive error. Details: Connection reset by peer.",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
)


@pytest.mark.parametrize("words", LOST_PEER)
def test_a_lost_peer_is_judged_with_the_peer_or_after_a_moment(words):
    def failed(seconds_ago: float = 0.0):
        return live().failed("worker", 0, code=1, message=words, seconds_ago=seconds_ago)

    waiting = failed().plan()
    assert (waiting.status.phase, waiting.requeue_after_seconds) == (Phase.RUNNING, MAX_CAUSE_DELAY_SECONDS)
    alone = failed(MAX_CAUSE_DELAY_SECONDS).plan().status
    assert (alone.phase, alone.last_failure.reason, alone.restarts) == (AGAIN, "PeerLost", 1)
    killed = failed().failed("worker", 1, code=137).plan().status
    assert (killed.phase, killed.last_failure.pod) == (AGAIN, "demo-worker-1")
    wrong = failed().failed("worker", 1, code=1, message="KeyError: 'x'").plan().status
    assert (wrong.phase, wrong.last_failure.pod) == (STOP, "demo-worker-1")


def test_an_error_of_another_rank_in_the_pod_or_of_another_pod_comes_first():
    wrong = f"RuntimeError: {RESET}\nValueError: rank 5 cannot continue\n"
    assert known_errors.from_termination_message(wrong) is None
    assert known_errors.from_termination_message(f"RuntimeError: {RESET}\n") is known_errors.PEER_LOST
    early = live().failed("worker", 0, code=1, message=RESET, seconds_ago=4)
    status = early.failed("worker", 1, code=1, message=wrong).plan().status
    assert (status.phase, status.last_failure.pod) == (STOP, "demo-worker-1")


def test_a_loss_that_is_not_finite_explains_lost_peers():
    assert known_errors.from_termination_message(recall(102) + RESET) is known_errors.LOSS_NAN
    plan = with_loss("nan").failed("worker", 0, code=1, message=RESET).failed("worker", 1, code=1).plan()
    assert (plan.status.phase, plan.status.reason) == (STOP, "LossNaN")


def test_the_rules_of_the_job_come_first():
    rules = job().worker(2).spec(restartPolicy={"retryableExitCodes": [1], "permanentExitCodes": [2]})
    assert live(rules).failed("worker", 0, code=1, message=recall(102)).plan().status.phase is AGAIN
    plan = live(rules).failed("worker", 0, code=2, message=recall(105)).plan()
    assert (plan.status.phase, plan.status.reason) == (STOP, "PodFailed")


def test_an_eviction_is_one_whatever_the_program_said():
    built = live().failed("worker", 1, code=137, message=recall(102))
    evicted = {"reason": "Evicted", "message": "The node was low on resource: memory. "}
    next(pod for name, pod in built._pods.items() if str(name).endswith("1"))["status"] |= evicted
    plan = built.plan()
    assert (plan.status.phase, plan.status.restarts) == (AGAIN, 0)


def with_loss(loss: str, *, attempt: int = 0):
    """A job whose log told a loss in an attempt; in the first one all pods were created."""
    built = live()
    progress = TrainingProgress(step=7, loss=loss, attempt=attempt, updated=built.now)
    return built.status(msgspec.structs.replace(built.job.status, progress=progress))


@pytest.mark.parametrize(
    ("loss", "code", "phase", "reason"),
    [
        ("nan", 134, STOP, "LossNaN"),
        ("-inf", 134, STOP, "LossInf"),
        ("inf", 1, STOP, "LossInf"),
        ("0.5", 134, AGAIN, "Error"),
        ("", 134, AGAIN, "Error"),
        ("nan", 137, AGAIN, "Error"),
        ("nan", 143, AGAIN, "Error"),
    ],
)
def test_a_program_that_fails_after_a_loss_that_is_not_finite_is_not_tried_again(loss, code, phase, reason):
    plan = with_loss(loss).failed("worker", 0, code=code).plan()
    assert (plan.status.phase, plan.status.last_failure.reason) == (phase, reason)


def test_a_loss_of_an_earlier_attempt_explains_nothing():
    status = with_loss("nan").job.status
    assert known_errors.from_loss(status) is known_errors.LOSS_NAN
    assert known_errors.from_loss(msgspec.structs.replace(status, base_attempt=1)) is None
    assert known_errors.from_loss(live().job.status) is None


def on_node(node: str, built):
    """Let worker 1 have run on a node."""
    next(pod for name, pod in built._pods.items() if str(name).endswith("1"))["spec"]["nodeName"] = node
    return built


def test_the_next_attempt_prefers_other_nodes():
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    mine = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    pod = {"affinity": {"nodeAffinity": {preferred: [mine]}, "podAffinity": {}}}
    built = live(job().worker(2, pod=pod))
    plan = on_node("node-b", built.failed("worker", 1, code=1, message=recall(101))).plan()
    assert plan.status.suspect_nodes == ("node-b",)
    again = snapshot(job().worker(2, pod=pod)).status(plan.status).later(60).plan()
    bodies = [action.manifest for stage in again.stages for action in stage if hasattr(action, "manifest")]
    pods = [body for body in bodies if body["kind"] == "Pod"]
    assert pods
    other = {"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}
    for body in pods:
        affinity = body["spec"]["affinity"]
        assert affinity["podAffinity"] == {}
        assert affinity["nodeAffinity"][preferred] == [
            mine,
            {"weight": 100, "preference": {"matchFields": [other]}},
        ]


def test_the_newest_few_suspects_are_kept():
    built = live()
    status = msgspec.structs.replace(built.job.status, suspect_nodes=tuple("abcdefgh"))
    built.status(status)
    failed = built.failed("worker", 1, code=1, message=recall(103))
    plan = on_node("z", failed).plan()
    assert plan.status.suspect_nodes == tuple("bcdefghz")
