"""What ranks did over time: from the reports of a local run, and from what an operator says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from local.jobs import job as local_job
from local.jobs import role
from paddlejob.api.names import Reason
from paddlejob.client.job import JobEvent, job_of
from paddlejob.core.recording.hangs import HangLimits, RankPace, find_hang
from paddlejob.dashboard.activity import _Report, from_events, from_reports
from paddlejob.testing.build import job

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def steps(*told: tuple) -> list[_Report]:
    return [_Report(time, phase, step) for time, phase, step in told]


@pytest.mark.parametrize(
    ("reports", "now", "wanted"),
    [
        pytest.param((), 99, [], id="nothing was told"),
        pytest.param([(0, "training", 1)], None, [], id="one report of a process that has ended"),
        pytest.param([(0, "training", 1)], 5, [("training", 0, None)], id="at work"),
        pytest.param(
            [(0, "training", 1), (10, "saving", 5), (40, "training", 6), (50, "training", 7)],
            None,
            [("training", 0, 10), ("saving", 10, 40), ("training", 40, 50)],
            id="phases",
        ),
        pytest.param(
            [(0, "training", 1), (1, "training", 2), (101, "training", 2), (102, "training", 3)],
            None,
            [("training", 0, 1), ("stalled", 1, 101), ("training", 101, 102)],
            id="no step for long",
        ),
        pytest.param(
            [(0, "training", 1), (1, "training", 2)],
            100,
            [("training", 0, 1), ("stalled", 1, None)],
            id="silent since then",
        ),
        pytest.param(
            [(0, "training", 1), (60, "training", 2)],
            300,
            [("training", 0, None)],
            id="not longer than its steps take",
        ),
        pytest.param([(0, "saving", 1)], 999, [("saving", 0, None)], id="a checkpoint takes its time"),
    ],
)
def test_reports_become_spans(reports, now, wanted):
    found = from_reports(steps(*reports), None if now is None else at(now))
    ends = [(state, at(began), None if end is None else at(end)) for state, began, end in wanted]
    assert [tuple(span) for span in found] == ends


def hang(*waiting: bool, nodes: str = "") -> str:
    """Return what the operator says of ranks that make no step, of which some wait for the others."""
    paces = []
    for index, is_waiting in enumerate(waiting):
        pace = RankPace(f"demo-worker-{index} (rank {index})", nodes, 0.0)
        pace.hear(7, "training", is_waiting=is_waiting, now=0.0)
        pace.hear(8, "training", is_waiting=is_waiting, now=1.0)
        pace.heard_at = 900.0
        paces.append(pace)
    found = find_hang(paces, 901.0, attempt=0, silent_seconds=30.0, limits=HangLimits())
    assert found is not None
    return found.message


@pytest.mark.parametrize("nodes", ["", "node-a"])
def test_the_rank_that_others_wait_for_is_told_from_those_that_wait(nodes):
    event = JobEvent("Warning", Reason.HUNG, hang(True, False, True, nodes=nodes), "PaddleJob/demo", NOON)
    found = from_events(job_of(job().worker(3).manifest), [event])
    began = NOON - timedelta(minutes=15)
    assert {rank: [tuple(each) for each in spans] for rank, spans in found.items()} == {
        "worker-0": [("waiting", began, NOON)],
        "worker-1": [("stalled", began, NOON)],
        "worker-2": [("waiting", began, NOON)],
    }


def test_where_none_stands_out_all_are_stalled_for_as_long_as_the_status_says_so():
    event = JobEvent("Warning", Reason.HUNG, hang(True, True), "PaddleJob/demo", NOON)
    state = job_of(job().worker(2).manifest)
    status = msgspec.structs.replace(state.status, message=f"2/2 running; {event.message}")
    found = from_events(msgspec.structs.replace(state, status=status), [event])
    assert {rank: (spans[0].state, spans[0].ended) for rank, spans in found.items()} == {
        "worker-0": ("stalled", None),
        "worker-1": ("stalled", None),
    }


def test_nobody_is_blamed_where_not_all_are_named():
    event = JobEvent("Warning", Reason.HUNG, hang(*[False] * 5, True), "PaddleJob/demo", NOON)
    found = from_events(job_of(job().worker(6).manifest), [event])
    assert {spans[0].state for spans in found.values()} == {"stalled"}


def test_other_events_tell_nothing():
    event = JobEvent("Normal", "Running", "2/2 running", "PaddleJob/demo", NOON)
    assert from_events(job_of(job().worker(2).manifest), [event]) == {}


async def test_the_page_of_a_run_is_told_what_its_recorder_reported(runs, pages):
    report = '{"time": %s, "rank": 0, "phase": "%s", "step": %s}'
    lines = [report % (1000 + index, "saving" if index == 3 else "training", index) for index in range(5)]
    script = "\n".join(f"echo '{line}' >> $PADDLEJOB_PROGRESS_FILE" for line in lines)
    demo = await runs.submit(local_job(worker=role(1, f"{script}\necho x >> $PADDLEJOB_PROGRESS_FILE")))
    await demo.wait(timeout_seconds=60)
    async with pages.stream(f"/api/jobs/default/{demo.name}/stream") as events:
        told = await events.until("activity")
    assert [each[0] for each in told["worker-0"]] == ["training", "saving"]
