from __future__ import annotations

import time

import pytest

from devcluster import ApiError
from e2e.jobs import Job, Space, example, losses, result, with_environment
from e2e.report import REPORT
from tests.support.waiting import eventually

HEADER = ["NAME", "STATUS", "MODE", "PS", "WORKER", "AGE"]


def trained(space: Space, name: str) -> tuple[Job, list[str]]:
    job = space.submit(with_environment(example(name), {"EPOCHS": 1}))
    job.await_phase("Running")
    REPORT.seconds(f"{name}: submit to Running", time.monotonic() - job.submitted)
    with space.followed(f"{job.name}-worker-0") as log:
        job.await_phase("Completed", within_seconds=300)
        REPORT.seconds(f"{name}: submit to Completed", time.monotonic() - job.submitted)
    return job, log


@pytest.mark.parametrize("name", ["wide_and_deep_podip", "wide_and_deep_service"])
def test_servers_and_workers_train_to_the_end_as_the_documents_show(space: Space, name: str) -> None:
    job, log = trained(space, name)
    assert losses(log)[-1] < losses(log)[0] / 1.5
    assert result(log, "auc") > 0.9
    header, row = space.table()
    assert header == HEADER
    assert row[:-1] == [job.name, "Completed", "PS", "2/2", "0/2"]


def test_each_server_and_worker_is_known_by_name(space: Space) -> None:
    """With `intranet: Service` every pod finds the others in the cluster's DNS."""
    job = space.submit(with_environment(example("wide_and_deep_service"), {"EPOCHS": 50}))
    job.await_phase("Running")
    peers = ("ps-0", "ps-1", "worker-1")
    command = ["getent", "hosts", *(f"{job.name}-{peer}" for peer in peers)]
    answer = space.kubectl("exec", f"{job.name}-worker-0", "--", *command)
    addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in job.pods()}
    assert [line.split()[0] for line in answer.splitlines()] == [
        addresses[f"{job.name}-{peer}"] for peer in peers
    ]


def test_an_unchanged_program_shows_its_step_loss_and_eta(space: Space) -> None:
    """The operator reads them from worker 0's log, with the rights that its manifest gives it."""
    job = space.submit(with_environment(example("wide_and_deep_podip"), {"EPOCHS": 50}))
    job.await_phase("Running")
    running = time.monotonic()
    progress = eventually(lambda: job.status().get("progress"), ignoring=(ApiError,))
    REPORT.seconds("wide_and_deep: Running to the first progress", time.monotonic() - running)
    assert progress["step"] > 0
    assert 0 < float(progress["loss"]) < 1
    header, row = space.table("-o", "wide")
    assert header[6:9] == ["STEP", "LOSS", "ETA"]
    assert float(row[7]) > 0
