from __future__ import annotations

import pytest

from paddlejob.api.v1 import RestartPolicy
from paddlejob.core.attempts.causes import Cause, cause_of, first_failure
from paddlejob.core.pod_set import pod_set_of
from paddlejob.testing.build import job, snapshot

DEFAULT = RestartPolicy()


def failed(**status):
    return snapshot(job().worker(1)).pod("worker", 0, {"phase": "Failed", **status})


def exited(code: int, reason: str = "Error"):
    return snapshot(job().worker(1)).failed("worker", 0, code=code, reason=reason)


def outlived(code: int):
    """Return a pod that its kubelet ended because of the template's activeDeadlineSeconds."""
    built = exited(code)
    message = "Pod was active on the node longer than the specified deadline"
    next(iter(built._pods.values()))["status"] |= {"reason": "DeadlineExceeded", "message": message}
    return built


DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]

CAUSES = {
    "an error of the program ends the job": (exited(1), DEFAULT, Cause.PERMANENT),
    "so does the last of the small codes": (exited(127), DEFAULT, Cause.PERMANENT),
    "an abort is worth another try": (exited(134), DEFAULT, Cause.RETRYABLE),
    "so is running out of memory": (exited(137, "OOMKilled"), DEFAULT, Cause.RETRYABLE),
    "so is an abort under the launcher": (exited(250), DEFAULT, Cause.RETRYABLE),
    "a command that does not exist will not exist next time": (
        exited(128, "StartError"),
        DEFAULT,
        Cause.PERMANENT,
    ),
    "SIGTERM is nobody's fault": (exited(143), DEFAULT, Cause.PLANNED),
    "nor under the launcher": (exited(15), DEFAULT, Cause.PLANNED),
    "Fleet's planned exit is planned": (exited(101), DEFAULT, Cause.PLANNED),
    "the user calls it permanent": (exited(137), RestartPolicy(permanent_exit_codes=(137,)), Cause.PERMANENT),
    "the user calls it retryable": (exited(1), RestartPolicy(retryable_exit_codes=(1,)), Cause.RETRYABLE),
    "the user forgives it": (exited(42), RestartPolicy(ignored_exit_codes=(42,)), Cause.IGNORED),
    "the user counts even SIGTERM": (
        exited(143),
        RestartPolicy(retryable_exit_codes=(143,)),
        Cause.RETRYABLE,
    ),
    "an eviction": (
        failed(reason="Evicted", message="The node was low on resource: memory."),
        DEFAULT,
        Cause.IGNORED,
    ),
    "an eviction for its own excess counts": (
        failed(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit"),
        DEFAULT,
        Cause.RETRYABLE,
    ),
    "a preemption, whatever the exit code": (failed(conditions=DISRUPTED), DEFAULT, Cause.IGNORED),
    "a pod that outlived its own deadline, whose containers got SIGTERM": (
        outlived(143),
        DEFAULT,
        Cause.RETRYABLE,
    ),
    "the user calls that permanent": (
        outlived(143),
        RestartPolicy(permanent_exit_codes=(143,)),
        Cause.PERMANENT,
    ),
    "a pod that never started": (failed(reason="UnexpectedAdmissionError"), DEFAULT, Cause.RETRYABLE),
}


@pytest.mark.parametrize(("built", "policy", "cause"), CAUSES.values(), ids=CAUSES.keys())
def test_a_failure_counts_as(built, policy, cause):
    member = pod_set_of("demo", built.spec.roles, built.build().pods).active[0]
    assert cause_of(member, policy) is cause


FIRST = {
    "the earlier one": ([(1, 5), (2, 9)], 1),
    "in the same second, the kill before the error it led to": ([(1, 5), (137, 5)], 1),
    "in the same second, the error before the abort it led to": ([(134, 5), (1, 5)], 1),
    "in the same second, a planned end before all": ([(137, 5), (143, 5)], 0),
}


@pytest.mark.parametrize(("endings", "first"), FIRST.values(), ids=FIRST.keys())
def test_the_failure_that_explains_the_others(endings, first):
    built = snapshot(job().worker(2))
    for index, (code, seconds_ago) in enumerate(endings):
        built.failed("worker", index, code=code, seconds_ago=seconds_ago)
    members = list(pod_set_of("demo", built.spec.roles, built.build().pods).active)
    assert first_failure(members, DEFAULT, built.build()).replica.index == first
