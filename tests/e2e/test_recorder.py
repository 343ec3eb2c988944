"""Programs that are not changed report from inside real pods, to the operator as it is installed."""

from __future__ import annotations

import time

import pytest

from e2e.jobs import Body, Space, eventually, example, with_environment, without_gpu
from e2e.report import REPORT


def recorded(job: Body, **environment: object) -> Body:
    job["spec"]["recorder"] = True
    return with_environment(job, environment)


@pytest.mark.parametrize("name", ["resnet", "wide_and_deep"])
def test_an_example_tells_its_step_from_inside(space: Space, name: str) -> None:
    body = recorded(without_gpu(example(name)), EPOCHS=3)
    body["spec"]["cleanPodPolicy"] = "Never"
    job = space.submit(body)
    job.await_phase("Running")
    eventually(lambda: " step " in job.log("worker-0"), within_seconds=120)
    began = time.monotonic()
    eventually(lambda: reported(job.status()).get("step", 0) > 0, within_seconds=60)
    REPORT.seconds(f"{name}: first step in the log to a reported step", time.monotonic() - began)
    job.await_phase("Completed", within_seconds=300)
    assert "recorder is off" not in job.log("worker-0")
    progress = job.status()["progress"]
    assert progress["step"] > 0
    assert float(progress["loss"]) > 0
    assert "lostSteps" not in progress


def reported(status: Body) -> Body:
    """Give the progress if it comes from the recorder, which alone knows what phase a program is in."""
    progress = status.get("progress") or {}
    return progress if progress.get("phase") else {}
