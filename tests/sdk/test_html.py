"""What a notebook shows of a job: complete, harmless, and without anything to load."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import msgspec
import pytest

from paddlejob.api.v1 import PaddleJob
from paddlejob.client.logs.model import LogLine
from paddlejob.client.logs.training_metrics import Metrics
from paddlejob.sdk.html import MOST_RANKS, render
from paddlejob.sdk.snapshot import JobSnapshot, RankState

START = datetime(2030, 1, 1, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&</div></svg><!--"
MAY_HAVE = {
    "div",
    "b",
    "span",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "svg",
    "title",
    "line",
    "polyline",
    "text",
}


def snapshot(*, lines=(), name="demo", where="laptop", ranks=(), trouble="", **status):
    body = {"metadata": {"name": name}, "spec": {}, "status": {"startTime": "2030-01-01T00:00:00Z", **status}}
    metrics = Metrics()
    for second, line in enumerate(lines):
        metrics.feed(LogLine("worker-0", 0, line, datetime.fromtimestamp(START.timestamp() + second, UTC)))
    return JobSnapshot(
        name=name,
        where=where,
        state=msgspec.convert(body, PaddleJob, strict=False),
        metrics=metrics,
        ranks=tuple(ranks),
        trouble=trouble,
        time=START.timestamp() + 90,
    )


def parsed(snapshot):
    """Return the elements; also proves that the HTML is well-formed."""
    return ET.fromstring(render(snapshot))


def texts(snapshot):
    return " ".join("".join(parsed(snapshot).itertext()).split())


def curve(snapshot):
    found = parsed(snapshot).find(".//polyline")
    return (
        None
        if found is None
        else [tuple(map(float, each.split(","))) for each in found.get("points").split()]
    )


def test_a_running_job_shows_phase_time_progress_and_ranks():
    running = snapshot(
        lines=[
            "epoch 1/2 step 5/10 loss 0.9 ips: 120.5 samples/s",
            "epoch 1/2 step 10/10 loss 0.5 eta: 0:05:00",
        ],
        ranks=[RankState("ps-0", "Running"), RankState("worker-0", "Running", 2)],
        phase="Running",
        message="2 workers running",
    )
    shown = texts(running)
    for part in (
        "demo on laptop Running 90s",
        "2 workers running",
        "50%",
        "epoch 1/2 step 10/10 loss 0.5",
    ):
        assert part in shown
    assert "120.5 samples/s" in shown
    assert "3m31s left" in shown
    assert "ps-0Running" in shown
    assert "worker-0Running2" in shown
    assert parsed(running).find(".//*[@role='progressbar']").get("aria-valuenow") == "50"


def test_the_curve_falls_as_the_loss_does():
    points = curve(snapshot(lines=[f"step {step} loss {1 / step}" for step in range(1, 500)]))
    assert 2 <= len(points) <= 64
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted(y for _, y in points)


@pytest.mark.parametrize("losses", [[], ["0.5"], ["nan", "nan", "inf"], ["nan", "inf", "inf"], ["1"] * 3])
def test_losses_without_a_curve_do_no_harm(losses):
    shown = snapshot(lines=[f"step {number} loss {loss}" for number, loss in enumerate(losses)])
    assert (curve(shown) is not None) == (losses == ["1"] * 3)
    if "nan" in losses:
        # A single infinite loss is an overflow that mixed precision skips.
        assert f"loss {losses[1]}" in texts(shown)


def test_a_completed_job_has_all_of_its_bar_and_nothing_left():
    done = snapshot(
        lines=["step 5/10 loss 1", "step 9/10 loss 1"], phase="Completed", completionTime=START.isoformat()
    )
    assert parsed(done).find(".//*[@role='progressbar']").get("aria-valuenow") == "100"
    assert "left" not in texts(done)


def test_progress_comes_from_the_status_when_the_log_is_gone():
    reported = snapshot(phase="Running", progress={"step": 3, "steps": 4, "loss": "0.25"})
    assert "step 3/4 loss 0.25" in texts(reported)
    assert "75%" in texts(reported)


def test_of_many_ranks_those_in_trouble_are_shown():
    ranks = [RankState(f"worker-{index}", "Running") for index in range(100)]
    ranks[77] = RankState("worker-77", "OOMKilled 137")
    rows = parsed(snapshot(ranks=ranks)).findall(".//tbody/tr")
    assert len(rows) == MOST_RANKS
    assert "".join(rows[0].itertext()) == "worker-77OOMKilled 137"
    assert "and 84 more: 84 Running" in texts(snapshot(ranks=ranks))


def test_hostile_names_messages_and_lines_are_text():
    attacked = snapshot(
        name=HOSTILE,
        where=HOSTILE,
        lines=[HOSTILE, f"step 1/2 loss 0.5 ips: 3 {HOSTILE}", f"step 2/2 loss 0.4 ips: 3.0 {HOSTILE}"],
        ranks=[RankState(HOSTILE, HOSTILE)],
        trouble=HOSTILE,
        phase="Running",
        message=HOSTILE,
        reason=HOSTILE,
        progress={"loss": "0.5", "throughput": HOSTILE, "eta": HOSTILE},
    )
    elements = list(parsed(attacked).iter())
    assert {each.tag for each in elements} <= MAY_HAVE
    names = {name for each in elements for name in each.attrib}
    assert not [name for name in names if name.startswith("on") or name in ("href", "src", "class", "id")]
    assert "<script>alert(1)</script>" in "".join(parsed(attacked).itertext())
    assert len(render(snapshot(name="x" * 10_000, message="y" * 10_000))) < 3000


def test_nothing_is_loaded_and_nothing_is_run():
    text = render(
        snapshot(lines=["step 1/2 loss 1", "step 2/2 loss 0.5"], ranks=[RankState("worker-0", "Running")])
    )
    assert not re.search(r"https?:|url\(|<script|<style|<link|javascript:", text)


def test_colours_are_those_of_the_surroundings():
    """Texts inherit their colour, so that they can be read on black and on white."""
    text = render(snapshot(phase="Running", lines=["step 1/2 loss 1", "step 2/2 loss 0.5"]))
    assert set(re.findall(r"[^-]color:([^;\"]+)", text)) == {"#fff"}
    assert set(re.findall(r'fill="([^"]+)"', text)) == {"none", "currentColor"}
