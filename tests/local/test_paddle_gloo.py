"""`withGloo: 2` with real Paddle: servers and workers meet through files, also after a restart."""

from __future__ import annotations

import re

import pytest

from local.jobs import container, job, role
from local.test_paddle import NO_DELAY, example, found, parameter_server_python
from paddlejob.local.runner import Ending

__all__ = ["example", "parameter_server_python"]

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]

PROGRAM = """
import os, signal
import paddle
import paddle.distributed.fleet as fleet

paddle.enable_static()
maker = fleet.PaddleCloudRoleMaker(is_collective=False)
fleet.init(maker)
maker._barrier("all")
pods = int(maker._all_reduce([1], "sum", "all")[0])
print(f"attempt {os.environ['PADDLEJOB_ATTEMPT']}: {pods} pods passed the barrier", flush=True)
maker._barrier("all")
if fleet.is_server():
    signal.pause()
if os.environ["PADDLEJOB_ATTEMPT"] == "0":
    os._exit(137)
"""


async def test_all_pods_pass_a_barrier_before_and_after_a_restart(start, parameter_server_python, directory):
    program = directory / "program.py"
    program.write_text(PROGRAM)
    environment = [{"name": "PADDLE_GLOO_FS_PATH", "value": "/shared/gloo"}]
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    pod = role(
        2,
        containers=[container("exec python /shared/program.py", env=environment, volumeMounts=mounts)],
        volumes=[{"name": "shared", "hostPath": {"path": str(directory)}}],
    )
    both = job(ps=pod, worker=pod, withGloo=2, restartPolicy=NO_DELAY)
    run = await start(both, python=parameter_server_python)
    assert await run.ended() is Ending.COMPLETED
    for each in ("ps-0", "ps-1", "worker-0", "worker-1"):
        passed = re.findall(r"^attempt (\d): 4 pods passed the barrier$", run.log(each), re.MULTILINE)
        assert passed == ["0", "1"], run.log(each)


async def test_the_example_trains_with_gloo_on_its_servers(start, example, parameter_server_python):
    env = {"EPOCHS": "1", "PADDLE_GLOO_FS_PATH": "/checkpoints/gloo"}
    run = await start(example("wide_and_deep", env=env, withGloo=2), python=parameter_server_python)
    assert await run.ended() is Ending.COMPLETED
    assert float(found(r"^done auc (\S+) ", run.log("worker-0", "paddle"))) >= 0.92
