"""What a container gets from this machine."""

from __future__ import annotations

from local.jobs import container, job, role
from paddlejob.local.pod.context import base_environment


def test_only_a_few_variables_of_the_shell_are_inherited():
    own = {"HOME": "/home/me", "PADDLE_PORT": "1", "PYTHONPATH": "/x", "PATH": "/other"}
    kept = base_environment(own, "/shims:/bin", threads=2)
    assert kept == {"LANG": "C.UTF-8", "HOME": "/home/me", "PATH": "/shims:/bin", "OMP_NUM_THREADS": "2"}


async def test_a_user_may_choose_the_number_of_threads(finish):
    one = container("echo $OMP_NUM_THREADS", env=[{"name": "OMP_NUM_THREADS", "value": "7"}])
    run = await finish(job(worker=role(1, containers=[one])))
    assert run.log("worker-0") == "7\n"
