"""The rule about the pods of ended jobs, kept and broken on purpose."""

from __future__ import annotations

import pytest

from sim.pods_after_end import what_is_wrong

CASES = {
    ("Completed", "", "Always", "Failed"): "keeps 1 pods",
    ("Completed", "", "OnCompletion", "Running"): "keeps 1 pods",
    ("Completed", "", "OnFailure", "Running"): "",
    ("Completed", "", "Never", "Pending"): "may still start",
    ("Failed", "PodFailed", "OnFailure", "Failed"): "keeps 1 pods",
    ("Failed", "PodFailed", "OnCompletion", "Running"): "still run",
    ("Failed", "PodFailed", "OnCompletion", "Failed"): "",
    ("Failed", "PodFailed", "Never", "Running"): "still run",
    ("Failed", "PodFailed", "Never", "Pending"): "still run",
    ("Failed", "PodFailed", "Never", "Failed"): "",
    ("Failed", "DeadlineExceeded", "Never", "Running"): "still run",
    ("Failed", "StartupDeadlineExceeded", "Never", "Pending"): "still run",
    ("Failed", "DeadlineExceeded", "Never", "Succeeded"): "",
}


@pytest.mark.parametrize(("case", "complaint"), CASES.items())
def test_rule(case, complaint):
    phase, reason, policy, pod_phase = case
    found = what_is_wrong(ended(phase, reason, policy), [pod(0, pod_phase)])
    assert complaint in found
    assert bool(complaint) is bool(found)


def ended(phase, reason, policy):
    spec = {"cleanPodPolicy": policy, "worker": {"replicas": 1}}
    return {"spec": spec, "status": {"phase": phase, "reason": reason}}


def pod(index, phase):
    labels = {"batch.paddlepaddle.org/role": "worker", "batch.paddlepaddle.org/index": str(index)}
    return {"metadata": {"name": f"demo-worker-{index}", "labels": labels}, "status": {"phase": phase}}


@pytest.mark.parametrize(("phase", "complaint"), [("Running", "beyond its size"), ("Succeeded", "")])
def test_rule_for_a_job_that_was_scaled_down(phase, complaint):
    found = what_is_wrong(ended("Completed", "", "Never"), [pod(0, "Running"), pod(1, phase)])
    assert complaint in found
    assert bool(complaint) is bool(found)
