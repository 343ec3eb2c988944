from __future__ import annotations

import pytest

from paddlejob.core.explain import ending, obstacle, refusal, termination_message
from paddlejob.core.pod_set import pod_set_of
from paddlejob.core.snapshot import WriteFailure
from paddlejob.text import MESSAGE_LENGTH
from simkube.build import job, snapshot


def obstacle_of(built) -> str:
    return obstacle(pod_set_of("demo", built.spec.roles, built.build().pods).active[0])


def one(**status):
    return snapshot(job().worker(1)).pod("worker", 0, {"phase": "Pending", **status})


def unschedulable(message: str):
    return one(
        conditions=[
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        ]
    )


def crashed(exit_code: int, message: str, **ending):
    container = {
        "name": "paddle",
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": exit_code, "message": message, **ending}},
    }
    return one(phase="Running", podIP="10.0.0.1", containerStatuses=[container])


OBSTACLES = {
    "no node fits": (
        unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        "unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    ),
    "an image that cannot be pulled": (
        snapshot(job().worker(1)).waiting("worker", 0, "ErrImagePull", "pull access denied"),
        "ErrImagePull: pull access denied",
    ),
    "a missing config map of the user": (
        snapshot(job().worker(1)).waiting(
            "worker", 0, "CreateContainerConfigError", 'configmap "mine" not found'
        ),
        'CreateContainerConfigError: configmap "mine" not found',
    ),
    "the job's own config map is expected to come": (snapshot(job().worker(1)).waiting("worker", 0), ""),
    "a container being created is nothing to report": (
        snapshot(job().worker(1)).waiting("worker", 0, "ContainerCreating", "x"),
        "",
    ),
    "a crash loop tells the crash": (
        crashed(1, "ImportError: paddle"),
        "crashed 4 times, last with code 1: ImportError: paddle",
    ),
    "a program that was killed": (
        crashed(137, "", signal=9),
        "crashed 4 times, last with signal 9",
    ),
    "nothing, once it has a place": (
        one(conditions=[{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]),
        "",
    ),
    "a silent node": (one(phase="Unknown"), "node (unknown) is not responding"),
}


@pytest.mark.parametrize(("built", "expected"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_what_holds_a_pod_up(built, expected):
    assert obstacle_of(built) == expected


DUPLICATE = 'Pod "demo-ps-0" is invalid: spec.containers[0].ports[1].name: Duplicate value: "a"'
WEBHOOK = 'failed calling webhook "validatepod.volcano.sh": no endpoints available'
CORRECT = "; correct spec.{}.template, which the pod is made from; retrying"

REFUSALS = {
    "a quota": (WriteFailure("create", "Pod", "demo-worker-0", "exceeded quota"), "; retrying"),
    "a pod that is wrong": (
        WriteFailure("create", "Pod", "demo-ps-0", DUPLICATE, rejected=True),
        CORRECT.format("ps"),
    ),
    "a pod of the last role": (
        WriteFailure("create", "Pod", "demo-heter-12", "strict decoding error", rejected=True),
        CORRECT.format("heter"),
    ),
    "an answer that is longer than a message": (
        WriteFailure("create", "Pod", "demo-worker-0", "no " * 1000, rejected=True),
        CORRECT.format("worker"),
    ),
    "a config map that is wrong": (
        WriteFailure("create", "ConfigMap", "demo", "is invalid", rejected=True),
        "; retrying",
    ),
    "a webhook that Volcano left behind": (
        WriteFailure("create", "Pod", "demo-worker-0", WEBHOOK),
        "volcano-admission-service-queues-mutate",
    ),
}


@pytest.mark.parametrize(("failure", "ending"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_is_told_with_the_way_out(failure, ending):
    told = refusal(failure, "demo")
    assert told.startswith(f"cannot create {failure.kind} {failure.name}: {failure.message[:20]}")
    assert told.endswith(ending)
    assert len(told) <= MESSAGE_LENGTH


DUMP = """
--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::distributed::ProcessGroupGloo::AllReduce()
----------------------
Error Message Summary:
----------------------
FatalError: `Process abort signal` is detected by the operating system.
  [TimeInfo: *** Aborted at 1669884209 (unix time) try "date -d @1669884209" if you are using GNU date ***]
  [SignalInfo: *** SIGABRT (@0x3ee) received by PID 2 (TID 0x7f) from PID 2 ***]"""
THROWN = "terminate called after throwing an instance of 'gloo::TimeoutException'"
MATMUL = "ValueError: (InvalidArgument) In operator matmul, the shapes differ."
WORDS = {
    "the last line that says something": ("a\nb\n\n  \n", "b"),
    "nothing": ("", ""),
    "the end of a long line": ("x" * 400, "..." + "x" * 300),
    "the exception before a hint": (
        f"Traceback (most recent call last):\n{MATMUL}\n  [Hint: Expected K_lhs == K_rhs.] (at /b.cc:3087)\n",
        MATMUL,
    ),
    "the beginning of a long exception": (
        f"ValueError: {'x' * 400}\n  [operator < matmul_v2 > error]",
        f"ValueError: {'x' * 288}...",
    ),
    "an exception whose text is on the next line": (
        "SystemError: \n\nOut of memory error on GPU 0.\n\n2. If no, decrease the batch.\n (at /a.cc:95)\n",
        "SystemError: Out of memory error on GPU 0.",
    ),
    "a C++ exception before the dump of a signal": (
        f"step 5\n{THROWN}\n  what():  Timed out waiting 30000ms for recv operation\n{DUMP}\nAborted",
        "gloo::TimeoutException: Timed out waiting 30000ms for recv operation",
    ),
    "a C++ exception without a text": (
        f"terminate called after throwing an instance of 'std::bad_alloc'\n{DUMP}",
        "std::bad_alloc",
    ),
    "a signal without an exception": (
        f"step 5 loss 0.1\n{DUMP}",
        "FatalError: `Process abort signal` is detected by the operating system.",
    ),
    "a hint alone": ("  [Hint: cut off] (at /a.cc:1)", "[Hint: cut off] (at /a.cc:1)"),
    "a hint after a cut exception": ("of the exception\n  [Hint: b] (at /a.cc:1)", "of the exception"),
    "the last line after an exception": ("ValueError: handled\nstep 6 loss 0.2", "step 6 loss 0.2"),
}


@pytest.mark.parametrize(("text", "expected"), WORDS.values(), ids=WORDS.keys())
def test_last_words(text, expected):
    assert termination_message(text) == expected


ENDINGS = {
    "by itself": ({}, "exited with code 143"),
    "by its kubelet, which says more than the code": (
        {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the deadline"},
        "failed (DeadlineExceeded): Pod was active on the node longer than the deadline",
    ),
}


def stopped(name, code):
    return {
        "name": name,
        "state": {"terminated": {"exitCode": code, "reason": "Error", "message": "no data"}},
    }


OTHERS = {
    "an init container": (
        {"initContainerStatuses": [stopped("fetch", 4)]},
        "exited with code 4 in init container fetch: no data",
    ),
    "a sidecar": (
        {"containerStatuses": [stopped("paddle", 0), stopped("proxy", 3)]},
        "exited with code 3 in container proxy: no data",
    ),
    "the training container": (
        {"containerStatuses": [stopped("paddle", 5), stopped("proxy", 3)]},
        "exited with code 5: no data",
    ),
}


@pytest.mark.parametrize(("status", "expected"), OTHERS.values(), ids=OTHERS.keys())
def test_which_container_of_a_pod_ended_is_named_unless_it_trains(status, expected):
    built = one(**{**status, "phase": "Failed"})
    assert ending(pod_set_of("demo", built.spec.roles, built.build().pods).active[0]) == expected


@pytest.mark.parametrize(("status", "expected"), ENDINGS.values(), ids=ENDINGS.keys())
def test_how_a_pod_ended(status, expected):
    built = snapshot(job().worker(1)).failed("worker", 0, code=143)
    next(iter(built._pods.values()))["status"] |= status
    assert ending(pod_set_of("demo", built.spec.roles, built.build().pods).active[0]) == expected
