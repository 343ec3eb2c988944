"""A pod's phase, by the kubelet's rules."""

from __future__ import annotations

import pytest

from paddlejob.api.pod import (
    ContainerRunning,
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    ContainerWaiting,
)
from paddlejob.local.pod import pod_phase

RUNNING = ContainerStatus(state=ContainerState(running=ContainerRunning()))
WAITING = ContainerStatus(state=ContainerState(waiting=ContainerWaiting("ContainerCreating")))
DONE = ContainerStatus(state=ContainerState(terminated=ContainerTerminated(exit_code=0)))
FAILED = ContainerStatus(state=ContainerState(terminated=ContainerTerminated(exit_code=1)))
CRASHING = ContainerStatus(
    state=ContainerState(waiting=ContainerWaiting("CrashLoopBackOff")), last_state=FAILED.state
)

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
    assert pod_phase.of(policy, init, containers) == phase
