"""The recorder in all modes of training that run on CPUs: every step is counted once, and a loss is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recorder.interpreter import SITE, reports

PROGRAM = str(Path(__file__).with_name("recorder_modes.py"))

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(300)]

PADDLE_2, PADDLE_3 = "parameter_server_python", "collective_python"
STEPS = {
    "plain": 12,
    "minimize": 12,
    "parameter_groups": 12,
    "autograd_backward": 12,
    "accumulation": 4,
    "shape_of_one_element": 12,
    "amp_o1": 12,
    "amp_o2": 12,
    "scaled": 12,
    "overflow": 12,
    "scaled_recomputation": 12,
    "hapi": 12,
    "static_graph": 12,
    "train_from_dataset": 0,
}
STEPS_OF_TWO = {
    "data_parallel": 12,
    "sharding_stage_1": 12,
    "sharding_stage_1_split": 12,
    "sharding_stage_1_scaled": 12,
}
STEPS_OF_DISTRIBUTED_TENSORS = {"sharded_weights": 12, "sharded_data": 12, "sharded_sum": 12}
STEPS_OF_STAGES = {"pipeline": 12, "scaled_pipeline": 12}


@pytest.mark.parametrize(
    ("version", "workers", "expected"),
    [
        pytest.param(PADDLE_2, 1, STEPS, id="Paddle 2, one rank"),
        pytest.param(PADDLE_3, 1, STEPS, id="Paddle 3, one rank"),
        pytest.param(PADDLE_2, 2, STEPS_OF_TWO, id="Paddle 2, two ranks"),
        pytest.param(PADDLE_3, 2, STEPS_OF_TWO | STEPS_OF_DISTRIBUTED_TENSORS, id="Paddle 3, two ranks"),
        pytest.param(PADDLE_3, 2, STEPS_OF_STAGES, id="Paddle 3, two stages"),
    ],
)
def test_every_step_is_counted_once_and_a_loss_is_read(
    version, workers, expected, start_job, request, tmp_path
):
    command = [request.getfixturevalue(version), PROGRAM, *expected]
    job = start_job(command, workers=workers, PYTHONPATH=SITE, PADDLEJOB_PROGRESS_FILE=tmp_path / "progress")
    last = {}
    for rank, worker in enumerate(job.workers):
        for mode, steps in expected.items():
            counted = json.loads(worker.wait_for(rf"{mode} (\{{.*)")[1])
            assert counted["steps"] == steps, mode
            assert counted["loss"] in (counted["losses"] or [None]), mode
            assert counted["stage"] == (rank if mode in STEPS_OF_STAGES else None), mode
        last[rank] = sum(expected.values())
    assert set(job.exit_codes().values()) == {0}
    assert {report["rank"]: report["step"] for report in reports(tmp_path)} == last
