"""Programs that are not changed report from inside real pods, to the operator as it is installed."""

from __future__ import annotations

import time

import pytest

from e2e.jobs import Body, Space, eventually, example, with_environment, without_gpu
from e2e.report import REPORT


def recorded(job: Body, **environment: object) -> Body:
    job["spec"]["recorder"] = True
    return with_environment(job, environment)


@pytest.mark.parametrize(
    ("name", "counts_steps"),
    [("resnet", True), ("wide_and_deep", False)],
    ids=["resnet", "a data set that Paddle goes through by itself"],
)
def test_an_example_tells_how_far_it_is(space: Space, name: str, counts_steps: bool) -> None:
    body = recorded(without_gpu(example(name)), EPOCHS=3)
    body["spec"]["cleanPodPolicy"] = "Never"
    job = space.submit(body)
    job.await_phase("Running")
    eventually(lambda: " step " in job.log("worker-0"), within_seconds=120)
    began = time.monotonic()
    told = reported if counts_steps else from_anywhere
    eventually(lambda: told(job.status()).get("step", 0) > 0, within_seconds=60)
    REPORT.seconds(f"{name}: first step in the log to one in the status", time.monotonic() - began)
    job.await_phase("Completed", within_seconds=300)
    assert "recorder is off" not in job.log("worker-0")
    progress = job.status()["progress"]
    assert progress["step"] > 0
    assert float(progress["loss"]) > 0
    assert "lostSteps" not in progress


def from_anywhere(status: Body) -> Body:
    """Give the progress; steps that only Paddle counts are read from the log."""
    return status.get("progress") or {}


def reported(status: Body) -> Body:
    """Give the progress if it comes from the recorder, which alone knows what phase a program is in."""
    progress = from_anywhere(status)
    return progress if progress.get("phase") else {}
