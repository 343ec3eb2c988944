"""What ranks did over time: from the reports of a local run, and from what an operator says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from local.jobs import job as local_job
from local.jobs import role
from paddlejob.api.names import Reason
from paddlejob.client.job import JobEvent, job_of
from paddlejob.client.logs.model import LogLine
from paddlejob.dashboard.activity import LogActivity, _Report, from_events, from_reports
from paddlejob.training.hangs import HangLimits, RankPace, find_hang
from simkube.build import job

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


@pytest.mark.parametrize(
    ("waiting", "working", "wanted"),
    [
        pytest.param([0, 7, 14], 0.1, "waiting", id="most of the time"),
        pytest.param([0, 7, 14], 0.6, "training", id="not more than the rank that others wait for"),
        pytest.param([0, 1, 2], 0.0, "training", id="seldom"),
    ],
)
def test_a_rank_waits_where_it_has_more_of_it_than_the_one_that_waits_least(waiting, working, wanted):
    reports = [_Report(10.0 * n, "training", 10 * n, seconds) for n, seconds in enumerate(waiting)]
    assert [tuple(span) for span in from_reports(reports, None, working)] == [(wanted, at(0), at(20))]


def logged(*told: tuple, rank: str = "worker-0", attempt: int = 0) -> LogActivity:
    found = LogActivity()
    for time, text in told:
        found.feed(LogLine(rank, attempt, text, None if time is None else at(time)))
    return found


@pytest.mark.parametrize(
    ("lines", "now", "wanted"),
    [
        pytest.param([(0, "loading data"), (None, "step 1/9 loss: 1")], 99, [], id="it does not train yet"),
        pytest.param(
            [(0, "loading"), (900, "step 1/9 loss: 1")], 901, [("training", 900, None)], id="at work"
        ),
        pytest.param(
            [(0, "step 1/9 loss: 1"), (60, "step 2/9 loss: 1")], None, [("training", 0, 60)], id="over"
        ),
        pytest.param(
            [(0, "step 1/9 loss: 1"), (1, "step 2/9 loss: 1"), (701, "step 3/9 loss: 1"), (702, "saved")],
            None,
            [("training", 0, 1), ("stalled", 1, 701), ("training", 701, 702)],
            id="it was silent for long",
        ),
        pytest.param(
            [(0, "step 1/9 loss: 1"), (1, "step 2/9 loss: 1")],
            1000,
            [("training", 0, 1), ("stalled", 1, None)],
            id="silent since then",
        ),
        pytest.param(
            [(0, "step 1/9 loss: 1"), (500, "step 2/9 loss: 1")],
            2000,
            [("training", 0, None)],
            id="its steps take long",
        ),
    ],
)
def test_lines_of_a_log_become_spans(lines, now, wanted):
    found = logged(*lines).spans(None if now is None else at(now))
    ends = [(state, at(began), None if end is None else at(end)) for state, began, end in wanted]
    assert [tuple(span) for span in found.get("worker-0", [])] == ends


def test_a_log_tells_of_the_last_attempt_and_of_as_many_ranks_as_are_drawn():
    found = logged((0, "step 1/9 loss: 1"), (1, "step 2/9 loss: 1"))
    found.feed(LogLine("worker-0", 1, "step 1/9 loss: 1", at(100)))
    found.feed(LogLine("worker-0", 0, "what was read late", at(5)))
    for number in range(1, 100):
        found.feed(LogLine(f"worker-{number}", 0, "step 1/9 loss: 1", at(0)))
    spans = found.spans(at(101))
    assert [tuple(span) for span in spans["worker-0"]] == [("training", at(100), None)]
    assert len(spans) == 64


def hang(*waiting: bool, nodes: str = "") -> str:
    """Return what the operator says of ranks that make no step, of which some wait for the others."""
    paces = []
    for index, is_waiting in enumerate(waiting):
        pace = RankPace(f"demo-worker-{index} (rank {index})", nodes, 0.0)
        pace.add_report(7, "training", is_waiting=is_waiting, now=0.0)
        pace.add_report(8, "training", is_waiting=is_waiting, now=1.0)
        pace.reported_at = 900.0
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


async def test_the_page_of_a_run_without_a_recorder_is_told_what_its_log_tells(runs, pages):
    script = "echo step 1/2 loss: 0.5; sleep 0.01; echo step 2/2 loss: 0.4"
    demo = await runs.submit(local_job(worker=role(2, script)))
    await demo.wait(timeout_seconds=60)
    async with pages.stream(f"/api/jobs/default/{demo.name}/stream?logs=1") as events:
        told = await events.until("activity", lambda each: len(each) == 2)
    assert {rank: [each[0] for each in spans] for rank, spans in told.items()} == {
        "worker-0": ["training"],
        "worker-1": ["training"],
    }


async def test_the_page_of_a_run_is_told_what_its_recorder_reported(runs, pages):
    report = '{"time": %s, "rank": 0, "phase": "%s", "step": %s}'
    lines = [report % (1000 + index, "saving" if index == 3 else "training", index) for index in range(5)]
    script = "\n".join(f"echo '{line}' >> $PADDLEJOB_PROGRESS_FILE" for line in lines)
    demo = await runs.submit(local_job(worker=role(1, f"{script}\necho x >> $PADDLEJOB_PROGRESS_FILE")))
    await demo.wait(timeout_seconds=60)
    async with pages.stream(f"/api/jobs/default/{demo.name}/stream") as events:
        told = await events.until("activity")
    assert [each[0] for each in told["worker-0"]] == ["training", "saving"]
