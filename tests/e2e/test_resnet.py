from __future__ import annotations

import time

from e2e.jobs import Space, example, losses, result, with_environment, without_gpu
from e2e.report import REPORT


def test_two_workers_train_over_gloo_with_shared_memory(space: Space) -> None:
    job = space.submit(with_environment(without_gpu(example("resnet")), {"EPOCHS": 2}))
    job.await_phase("Running")
    with space.followed(f"{job.name}-worker-0") as log:
        mounts = space.kubectl("exec", f"{job.name}-worker-1", "--", "cat", "/proc/mounts")
        job.await_phase("Completed", within_seconds=300)
    REPORT.seconds("resnet: submit to Completed", time.monotonic() - job.submitted)
    assert "tmpfs /dev/shm tmpfs" in mounts
    assert losses(log)[-1] < losses(log)[0] / 2
    assert result(log, "accuracy") > 0.7
    assert any(line.endswith("on 2 workers") for line in log)
    assert space.table()[1][:-1] == ["resnet", "Completed", "Collective", "0/0", "0/2"]


def test_a_job_that_asks_for_a_gpu_waits_and_says_what_is_missing(space: Space) -> None:
    job = space.submit(example("resnet"))
    status = job.await_message("Insufficient nvidia.com/gpu")
    assert (status["phase"], status["reason"]) == ("Pending", "WaitingForPods")
