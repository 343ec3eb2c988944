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
    ("Failed", "PodFailed", "Never", "Running"): "",
    ("Failed", "PodFailed", "Never", "Pending"): "may still start",
    ("Failed", "DeadlineExceeded", "Never", "Running"): "still run",
    ("Failed", "StartupDeadlineExceeded", "Never", "Pending"): "still run",
    ("Failed", "DeadlineExceeded", "Never", "Succeeded"): "",
}


@pytest.mark.parametrize(("case", "complaint"), CASES.items())
def test_rule(case, complaint):
    phase, reason, policy, pod_phase = case
    ended = {"spec": {"cleanPodPolicy": policy}, "status": {"phase": phase, "reason": reason}}
    found = what_is_wrong(ended, [{"metadata": {"name": "demo-worker-0"}, "status": {"phase": pod_phase}}])
    assert complaint in found
    assert bool(complaint) is bool(found)
