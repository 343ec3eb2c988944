"""A pod's phase, by the kubelet's rules."""

from __future__ import annotations

import pytest

from paddlejob.kubelet import ContainerOutcome, phase_of

RUNNING = ContainerOutcome(has_started=True, exit_code=None)
WAITING = ContainerOutcome(has_started=False, exit_code=None)
DONE = ContainerOutcome(has_started=True, exit_code=0)
FAILED = ContainerOutcome(has_started=True, exit_code=1)
CRASHING = ContainerOutcome(has_started=True, exit_code=None)

PHASES = {
    "a container that is yet to start": ("Never", (), (WAITING,), "Pending"),
    "one that waits beside one that runs": ("Never", (), (RUNNING, WAITING), "Pending"),
    "all run": ("Never", (), (RUNNING, RUNNING), "Running"),
    "one is done, one runs": ("Never", (), (DONE, RUNNING), "Running"),
    "one failed, one runs": ("Never", (), (FAILED, RUNNING), "Running"),
    "all are done": ("Never", (), (DONE, DONE), "Succeeded"),
    "all are done but will start again": ("Always", (), (DONE,), "Running"),
    "one of all failed": ("Never", (), (DONE, FAILED), "Failed"),
    "one failed and will start again": ("OnFailure", (), (FAILED,), "Running"),
    "one waits to start again": ("OnFailure", (), (CRASHING,), "Running"),
    "an init container failed": ("Never", (FAILED,), (WAITING,), "Failed"),
    "an init container will start again": ("OnFailure", (FAILED,), (WAITING,), "Pending"),
}


@pytest.mark.parametrize(("policy", "init", "containers", "phase"), PHASES.values(), ids=PHASES)
def test_phases(policy, init, containers, phase):
    assert phase_of(policy, init, containers) == phase


ENDINGS = {
    "all are done, whatever the policy": ("Always", (DONE,), "Succeeded"),
    "one failed, whatever the policy": ("OnFailure", (DONE, FAILED), "Failed"),
    "one still runs": ("Always", (DONE, RUNNING), "Running"),
}


@pytest.mark.parametrize(("policy", "containers", "phase"), ENDINGS.values(), ids=ENDINGS)
def test_a_pod_without_restarts_ends(policy, containers, phase):
    assert phase_of(policy, (), containers, ends=True) == phase
