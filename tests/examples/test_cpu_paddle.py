"""What a Paddle for the CPU prints when it is asked to use a GPU, from the mouth of real Paddle."""

from __future__ import annotations

import subprocess

import pytest

from paddlejob.api.v1 import RoleSpec
from paddlejob.core.accelerators import idle_accelerators

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]

CONTAINER = {"name": "paddle", "resources": {"limits": {"nvidia.com/gpu": 1}}}
ROLE = RoleSpec(replicas=1, template={"spec": {"containers": [CONTAINER]}})
ASKS = [
    "paddle.set_device('gpu')",
    "paddle.CUDAPlace(0)",
    "paddle.static.cuda_places([0])",
    "paddle.device.cuda.get_device_name()",
]


@pytest.mark.parametrize("version", ["parameter_server_python", "collective_python"])
@pytest.mark.parametrize("statement", [*ASKS, "print(paddle.ones([2]).sum())"])
def test_only_a_program_that_asks_for_a_gpu_is_told_that_there_is_none(statement, version, request):
    python = request.getfixturevalue(version)
    ended = subprocess.run(
        [python, "-c", f"import paddle; {statement}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    asks = statement in ASKS
    assert (bool(idle_accelerators(ROLE, ended.stdout)), ended.returncode != 0) == (asks, asks), ended.stdout
