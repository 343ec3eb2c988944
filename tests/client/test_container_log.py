"""When the log of a container is complete, as the status of its pod has it."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.pod import Pod
from paddlejob.client.logs.container_log import container_view

OVER = {
    "the phase is final": ("Failed", "Always", 1, True),
    "exit 1 with Never, before the phase follows": ("Running", "Never", 1, True),
    "exit 0 with OnFailure, before the phase follows": ("Running", "OnFailure", 0, True),
    "exit 1 with OnFailure": ("Running", "OnFailure", 1, False),
    "exit 0 with Always": ("Running", "Always", 0, False),
}


@pytest.mark.parametrize(("phase", "policy", "code", "expected"), OVER.values(), ids=OVER)
def test_a_log_is_complete_when(phase, policy, code, expected):
    ended = {"name": "paddle", "state": {"terminated": {"exitCode": code}}}
    status = {"phase": phase, "containerStatuses": [ended]}
    pod = {"metadata": {"name": "p"}, "spec": {"restartPolicy": policy}, "status": status}
    assert container_view(msgspec.convert(pod, Pod), "paddle").is_over is expected


ENDED, FAILED, RUNS = {"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 1}}, {"running": {}}
INIT_OVER = {
    "runs before the others": (RUNS, {"waiting": {}}, "Pending", False),
    "exit 0 before the others": (ENDED, {"waiting": {}}, "Pending", True),
    "a sidecar runs after the others": (RUNS, ENDED, "Running", False),
    "a sidecar that failed is restarted": (FAILED, RUNS, "Running", False),
    "a sidecar that failed after the others": (FAILED, ENDED, "Running", True),
    "the phase is final": (RUNS, ENDED, "Succeeded", True),
}


@pytest.mark.parametrize(("state", "training", "phase", "expected"), INIT_OVER.values(), ids=INIT_OVER)
def test_the_log_of_an_init_container_is_complete_when(state, training, phase, expected):
    status = {
        "phase": phase,
        "initContainerStatuses": [{"name": "sidecar", "state": state}],
        "containerStatuses": [{"name": "paddle", "state": training}],
    }
    pod = {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never"}, "status": status}
    assert container_view(msgspec.convert(pod, Pod), "sidecar").is_over is expected
