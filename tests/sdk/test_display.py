"""The data that a notebook cell shows of a job, and when the cell is updated."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from paddlejob.sdk import snapshot as snapshots
from sdk.notebooks import snapshot_of
from tests.dashboard.records import NOW, rank, snapshot


def shown(found):
    return snapshot_of(snapshots.render(found))


def test_a_running_job_shows_progress_and_ranks():
    lines = [
        "epoch 1/2 step 5/10 loss 0.9 ips: 120.5 samples/s",
        *[""] * 60,
        "epoch 1/2 step 10/10 loss 0.5 eta: 0:05:00",
    ]
    ranks = [rank("ps-0"), rank("worker-0", restarts=2)]
    found = shown(snapshot(lines=lines, ranks=ranks, phase="Running", message="2 workers running"))
    assert found["job"]["message"] == "2 workers running"
    progress = found["job"]["progress"]
    assert (progress["percent"], progress["loss"], progress["throughput"]) == (50, "0.5", "120.5 samples/s")
    assert progress["eta"] == "4m31s"
    assert [(each["rank"], each["restarts"]) for each in found["ranks"]] == [("ps-0", 0), ("worker-0", 2)]


def test_the_curve_of_a_long_log_keeps_its_end():
    found = shown(snapshot(lines=[f"step {step} loss {step}" for step in range(5000)]))
    losses = [each["loss"] for each in found["points"]]
    assert len(losses) <= snapshots.MAX_POINTS
    assert losses[-1] == 4999
    assert losses == sorted(losses)


@pytest.mark.parametrize("losses", [[], ["0.5"], ["nan", "nan", "inf"]])
def test_losses_without_a_curve_do_no_harm(losses):
    found = shown(snapshot(lines=[f"step {number} loss {loss}" for number, loss in enumerate(losses)]))
    assert [each["loss"] for each in found["points"]] == [0.5 if each == "0.5" else None for each in losses]


def test_progress_comes_from_the_status_when_the_log_is_gone():
    found = shown(snapshot(phase="Running", progress={"step": 3, "steps": 4, "percent": 75}))
    assert (found["job"]["progress"]["step"], found["job"]["progress"]["percent"]) == (3, 75)


class Cell:
    """A notebook cell that collects the texts it shows."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def display(self, bundle, **_):
        self.texts.append(bundle["text/plain"])
        return SimpleNamespace(update=self.display)


@pytest.fixture
def cell(monkeypatch):
    found = Cell()
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=found.display))
    return found


def test_a_cell_is_updated_after_a_pause_and_at_the_end(cell, monkeypatch):
    now = 0.0
    monkeypatch.setattr(snapshots.time, "monotonic", lambda: now)
    show = snapshots.show_function()
    for step, seconds in ((1, 0.0), (2, 1.0), (3, 4.0), (3, 8.0)):
        now = seconds
        show(snapshot(lines=[f"step {step}/9 loss 1"], phase="Running"))
    show(snapshot(lines=["step 9/9 loss 1"], phase="Completed", completionTime=NOW.isoformat()))
    assert [re.search(r"step (\d)", text)[1] for text in cell.texts] == ["1", "3", "9"]


def test_a_terminal_gets_a_line_for_each_change(capsys):
    show = snapshots.show_function()
    for step in (1, 1, 2):
        show(snapshot(lines=[f"step {step}/2 loss 1"], phase="Running"))
    assert capsys.readouterr().out == (
        "demo on laptop: Running, step 1/2 loss 1\ndemo on laptop: Running, step 2/2 loss 1\n"
    )
