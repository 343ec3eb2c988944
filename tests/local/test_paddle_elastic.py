"""Real training that changes its size: 2 workers, then 3, then 2, each time from the checkpoint."""

from __future__ import annotations

import re

import pytest

from local.test_paddle import collective_python, example, said
from paddlejob.api.v1 import Phase
from paddlejob.local.runner import Ending

__all__ = ["collective_python", "example"]

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


async def test_a_resized_job_resumes_each_time_and_its_loss_goes_on_falling(
    start, example, collective_python
):
    run = await start(example("resnet", env={"EPOCHS": "4"}), python=collective_python)
    await said(run, "worker-0", "checkpoint pass-00001")
    run.runner.scale(3)
    await said(run, "worker-2", "worker 2 of 3")
    await run.phase(Phase.RUNNING)
    await said(run, "worker-0", "checkpoint pass-00002")
    run.runner.scale(2)
    assert await run.ended() is Ending.COMPLETED
    assert (run.status.attempt, run.status.restarts) == (2, 0)
    log = run.log("worker-0", "paddle")
    assert re.findall(r"^worker 0 of (\d)", log, re.MULTILINE) == ["2", "3", "2"]
    assert len(re.findall(r"^resumed from pass-", log, re.MULTILINE)) == 2
    losses = [float(loss) for loss in re.findall(r"^epoch \d+ step \d+/\d+ loss (\S+)", log, re.MULTILINE)]
    quarter = len(losses) // 4
    assert sum(losses[-quarter:]) < 0.5 * sum(losses[:quarter])
    assert float(re.findall(r"^done accuracy (\S+) ", log, re.MULTILINE)[0]) >= 0.95
