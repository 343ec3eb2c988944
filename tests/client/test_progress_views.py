"""All views of a program show the same progress, although they read different parts of its log."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.meta import ObjectMeta
from paddlejob.api.pod import ContainerStatus, Pod, PodStatus
from paddlejob.api.v1 import TrainingProgress
from paddlejob.client.local_runs import LocalRuns
from paddlejob.local.store.logs import LogLines
from paddlejob.local.ui.view import RunView
from paddlejob.sdk.snapshot import read_metrics, render
from paddlejob.training.log_lines import Tracker, training_progress
from sdk.notebooks import snapshot_of
from tests.client.test_local_runs import recorded
from tests.dashboard.records import snapshot

LOGS = sorted((Path(__file__).parent.parent / "training" / "logs").glob("*.table"))
WORKER = Pod(
    ObjectMeta("job-worker-0", labels={names.LABEL_RESOURCE_TYPE: "worker"}),
    status=PodStatus("Running", container_statuses=(ContainerStatus("main"),)),
)


def lines_of(log: Path) -> list[str]:
    """Return the lines of the first attempt, without times."""
    _, first, _ = log.with_suffix(".txt").read_bytes().decode().split("==> attempt ")
    return [line.partition(" ")[2] for line in first.split("\n")[1:-1]]


def numbers(progress: TrainingProgress | None) -> tuple[object, ...]:
    assert progress is not None
    return (
        progress.epoch,
        progress.epochs,
        progress.step,
        progress.steps,
        progress.epoch_step,
        progress.percent,
    )


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
async def test_all_views_agree(tmp_path: Path, log: Path):
    lines = lines_of(log)
    tracker = Tracker()
    for line in lines:
        tracker.feed(line, 0.0)
    expected = numbers(training_progress(tracker, 0.0))
    run = recorded(tmp_path, "job", log="".join(f"{line}\n" for line in lines))
    [listed] = await LocalRuns(tmp_path).list()
    assert numbers(listed.state.status.progress) == expected
    page = snapshot_of(render(snapshot(lines=lines)))
    assert numbers(msgspec.convert(page["job"]["progress"], TrainingProgress)) == expected
    table = RunView(run, run.read_record())
    table.on_pod(WORKER)
    for line in lines:
        table.on_log(LogLines("job-worker-0", "main", f"{line}\n".encode()))
    [row] = table.rows()
    assert numbers(training_progress(row.tracker, 0.0)) == expected


async def test_all_views_use_a_declared_total(tmp_path: Path):
    lines = lines_of(LOGS[0].with_stem("resnet"))
    run = recorded(tmp_path, "job", log="".join(f"{line}\n" for line in lines))
    record = run.read_record()
    record.job.metadata.annotations[names.ANNOTATION_TOTAL_STEPS] = "204"
    run.write_record(record)
    [listed] = await LocalRuns(tmp_path).list()
    assert (listed.state.status.progress.steps, listed.state.status.progress.percent) == (204, 50)
    assert (await read_metrics(listed)).progress.steps == 204
    table = RunView(run, run.read_record())
    table.on_pod(WORKER)
    for line in lines:
        table.on_log(LogLines("job-worker-0", "main", f"{line}\n".encode()))
    [row] = table.rows()
    assert (row.progress.step, row.progress.steps) == (102, 204)
