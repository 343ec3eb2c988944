"""A plain Python program on a pod with an accelerator: real Paddle selects its device.

Paddle for the CPU answers as if it was built for the device; nothing runs on a card.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roles.environments import environments
from simkube.build import job, snapshot

PROGRAM = Path(__file__).with_name("select_device.py")
DEVICES = {
    "nvidia.com/gpu": "gpu",
    "hygon.com/dcu": "gpu",
    "kunlunxin.com/xpu": "xpu",
    "huawei.com/Ascend910": "npu",
    "iluvatar.com/gpu": "iluvatar_gpu",
}

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


def selected(interpreter: str, build: str, resource: str, cards: int = 1) -> subprocess.CompletedProcess[str]:
    of = job().worker(2, resources={"limits": {resource: cards}})
    env = environments(snapshot(of))["worker-1"]
    return subprocess.run(
        [interpreter, "-W", "ignore", PROGRAM, build],
        env={**env, "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("resource", DEVICES)
def test_one_card_needs_no_launcher(interpreter, resource):
    ended = selected(interpreter, DEVICES[resource], resource)
    assert f"SELECTED {DEVICES[resource]}:0\n" in ended.stdout, ended.stderr[-2000:]


def test_paddle_refuses_several_cards_without_the_launcher(interpreter):
    ended = selected(interpreter, "gpu", "nvidia.com/gpu", cards=8)
    assert "environment variable FLAGS_selected_gpus is needed, but not set" in ended.stderr
