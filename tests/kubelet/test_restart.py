"""When containers are started again."""

from __future__ import annotations

import pytest

from paddlejob.kubelet import back_off_message, back_off_seconds, is_restarted

POLICIES = {
    "Always, whatever the code": ("Always", 0, True),
    "OnFailure after a failure": ("OnFailure", 1, True),
    "OnFailure after success": ("OnFailure", 0, False),
    "Never": ("Never", 1, False),
}


@pytest.mark.parametrize(("policy", "exit_code", "restarted"), POLICIES.values(), ids=POLICIES)
def test_the_policy_decides(policy, exit_code, restarted):
    assert is_restarted(policy, exit_code) is restarted


def test_the_first_restart_is_immediate_and_the_delay_doubles_up_to_five_minutes():
    assert [back_off_seconds(restarts) for restarts in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(("seconds", "text"), [(0.5, "0.5s"), (10, "10s"), (80, "1m20s"), (300, "5m0s")])
def test_the_delay_is_written_as_kubelets_write_it(seconds, text):
    assert back_off_message(seconds, "paddle") == f"back-off {text} restarting failed container=paddle"
