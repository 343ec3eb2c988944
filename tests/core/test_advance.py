"""A job that makes no new step is given up on; one that does may fail as often as it likes."""

from __future__ import annotations

import random
from datetime import timedelta

import msgspec
import pytest

from paddlejob.api.meta import Condition
from paddlejob.api.v1 import PaddleJobStatus, Phase, ProgressMark, TrainingProgress
from paddlejob.core.attempts import backoff
from paddlejob.training.findings import Hang, Slowdown
from paddlejob.training.steps import add_late_progress, has_advanced
from simkube.build import job, snapshot

LIMITED = job().worker(1).spec(backoffLimit=1, restartPolicy={"noProgressLimit": 2})


class Story:
    """A job that fails again and again, each time at some step."""

    def __init__(self, of) -> None:
        self.of = of
        self.status = None
        self.now = timedelta()

    def fails_at(self, step: int | None, *, epoch: int = 0, code: int = 137):
        """Let an attempt reach a step, or tell none, and fail; return the new status."""
        built = snapshot(self.of)
        if self.status is not None:
            built.status(self.status)
        self.now += timedelta(seconds=400)
        built.later(self.now.total_seconds()).pods_running().formed().phase(Phase.RUNNING)
        if step is not None:
            attempt = built.job.status.attempt
            told = TrainingProgress(step=step, epoch=epoch, attempt=attempt, updated=built.now)
            built.status(msgspec.structs.replace(built.job.status, progress=told))
        plan = built.failed("worker", 0, code=code).plan()
        self.status = plan.status
        return plan.status


def test_a_job_that_fails_at_the_same_step_is_given_up_on():
    story = Story(LIMITED)
    assert story.fails_at(340).phase is Phase.RESTARTING
    assert story.fails_at(340).phase is Phase.RESTARTING
    status = story.fails_at(339)
    assert (status.phase, status.reason) == (Phase.FAILED, "NoProgress")
    assert status.message == (
        "worker-0 exited with code 137; no progress beyond step 340 in 2 restarts (noProgressLimit 2)"
    )


def test_every_new_step_refills_the_budget():
    story = Story(LIMITED)
    for step in range(10, 100, 10):
        status = story.fails_at(step)
        assert (status.phase, status.restarts_without_progress) == (Phase.RESTARTING, 0)
        assert story.fails_at(step - 5).restarts_without_progress == 1
    assert status.restarts > LIMITED.build().spec.backoff_limit
    assert story.status.progress_mark == ProgressMark(0, 90)


def test_an_epoch_is_further_than_any_step_of_the_one_before():
    story = Story(job().worker(1).spec(restartPolicy={"noProgressLimit": 1}))
    story.fails_at(500, epoch=1)
    assert story.fails_at(3, epoch=2).phase is Phase.RESTARTING
    status = story.fails_at(400, epoch=1)
    assert status.message.endswith("no progress beyond epoch 2 step 3 in 1 restart (noProgressLimit 1)")


def test_an_attempt_that_tells_nothing_has_made_no_step_where_others_did():
    story = Story(LIMITED)
    story.fails_at(340)
    story.fails_at(None)
    assert story.fails_at(None).reason == "NoProgress"


def test_where_no_step_is_ever_known_the_usual_budget_holds():
    story = Story(LIMITED)
    assert story.fails_at(None).restarts_without_progress == 0
    assert story.fails_at(0).reason == "BackoffLimitExceeded"


def test_without_a_limit_the_budget_is_as_it_was():
    story = Story(job().worker(1).spec(backoffLimit=1))
    assert story.fails_at(10).phase is Phase.RESTARTING
    assert story.fails_at(20).reason == "BackoffLimitExceeded"


def test_what_is_nobodys_fault_does_not_count():
    story = Story(LIMITED)
    story.fails_at(340)
    for _ in range(4):
        status = story.fails_at(340, code=143)
        assert (status.phase, status.restarts_without_progress) == (Phase.RESTARTING, 0)


@pytest.mark.parametrize("seed", range(200))
def test_no_history_ends_while_it_advances_nor_goes_on_when_it_does_not(seed):
    rng = random.Random(seed)
    limit = rng.randint(1, 4)
    story = Story(job().worker(1).spec(backoffLimit=1000, restartPolicy={"noProgressLimit": limit}))
    furthest, without = (0, 0), 0
    for _ in range(40):
        told = None if rng.random() < 0.2 else (rng.randint(1, 3), rng.randint(1, 30))
        advances = told is not None and told > furthest
        is_known = furthest > (0, 0)
        status = story.fails_at(*((told[1],) if told else (None,)), epoch=told[0] if told else 0)
        furthest = told if advances else furthest
        without = 0 if advances else without + is_known
        assert (status.phase is Phase.FAILED) == (without >= limit), (told, furthest, without)
        if status.phase is Phase.FAILED:
            assert status.reason == "NoProgress"
            return
        assert status.restarts_without_progress == without
        mark = status.progress_mark or ProgressMark()
        assert (mark.epoch, mark.step) == furthest


@pytest.mark.parametrize(
    ("progress", "mark", "expected"),
    [
        (None, None, False),
        (TrainingProgress(loss="0.5"), None, False),
        (TrainingProgress(step=5), None, True),
        (TrainingProgress(step=5), ProgressMark(0, 5), False),
        (TrainingProgress(step=6), ProgressMark(0, 5), True),
        (TrainingProgress(epoch=2, step=1), ProgressMark(1, 500), True),
    ],
)
def test_what_counts_as_an_advance(progress, mark, expected):
    built = snapshot(job().worker(1))
    status = msgspec.structs.replace(
        built.job.status, progress=progress, progress_mark=mark, consecutive_restarts=4
    )
    assert has_advanced(status) is expected
    assert backoff.restarts_in_a_row(status, built.now) == 4
    ran = Condition("Running", "True", last_transition_time=built.now - timedelta(seconds=60))
    status = msgspec.structs.replace(status, conditions=(ran,))
    assert backoff.restarts_in_a_row(status, built.now) == (0 if expected else 4)
    later = msgspec.structs.replace(status, attempt=1, base_attempt=1)
    assert not has_advanced(later)


@pytest.mark.parametrize(
    ("late", "mark", "raised"),
    [
        (None, None, None),
        (TrainingProgress(step=5, attempt=1), None, ProgressMark(0, 5)),
        (TrainingProgress(step=5, attempt=1), ProgressMark(0, 4), ProgressMark(0, 5)),
        (TrainingProgress(step=5, attempt=1), ProgressMark(0, 5), None),
        (TrainingProgress(step=1, epoch=2, attempt=0), ProgressMark(1, 9), ProgressMark(2, 1)),
        # The pods of this attempt still train.
        (TrainingProgress(step=5, attempt=2), ProgressMark(0, 4), None),
        (TrainingProgress(step=5, attempt=3), ProgressMark(0, 4), None),
    ],
)
def test_late_progress_raises_the_mark(late, mark, raised):
    status = PaddleJobStatus(attempt=3, base_attempt=2, progress_mark=mark, restarts_without_progress=2)
    changed = add_late_progress(status, late)
    assert changed == (
        msgspec.structs.replace(status, progress_mark=raised, restarts_without_progress=0)
        if raised
        else status
    )


def test_a_job_that_is_suspended_keeps_how_far_it_got():
    built = snapshot(job().worker(1).spec(suspend=True)).pods_running().formed().phase(Phase.RUNNING)
    built.status(msgspec.structs.replace(built.job.status, progress=TrainingProgress(step=8)))
    status = built.plan().status
    assert (status.phase, status.progress_mark) == (Phase.SUSPENDED, ProgressMark(0, 8))


def failing(built):
    built.failed("worker", 1, code=137)


def hanging(built):
    built.findings = (Hang(0, 100, 600, ("demo-worker-1",), "no step for 10m"),)


def straggling(built):
    built.findings = (Slowdown(0, "demo-worker-1", "worker-1 is slow", is_lasting=True),)


FAILS, RUNS, AGAIN = Phase.FAILED, Phase.RUNNING, Phase.RESTARTING
POLICIES = {"hangPolicy": "Restart", "stragglerPolicy": "Replace"}


@pytest.mark.parametrize(
    ("limit", "step", "restarts", "left"),
    [
        pytest.param({}, 500, 3, False, id="backoffLimit is used up"),
        pytest.param({}, 500, 2, True, id="backoffLimit is not used up"),
        pytest.param({"noProgressLimit": 2}, None, 3, False, id="noProgressLimit, but no step is known"),
        pytest.param({"noProgressLimit": 2}, 500, 30, True, id="noProgressLimit, and new steps"),
        pytest.param({"noProgressLimit": 2}, 400, 30, False, id="noProgressLimit, and no new step"),
    ],
)
@pytest.mark.parametrize(
    ("trouble", "otherwise"),
    [(failing, FAILS), (hanging, RUNS), (straggling, RUNS)],
    ids=("failing", "hanging", "straggling"),
)
def test_all_restarts_that_count_have_one_limit(trouble, otherwise, limit, step, restarts, left):
    built = snapshot(job().worker(2).spec(backoffLimit=3, restartPolicy=limit, **POLICIES))
    built.pods_running().formed().config({}).phase(RUNS, restarts=restarts, restarts_without_progress=1)
    if step is not None:
        progress, mark = TrainingProgress(step=step, updated=built.now), ProgressMark(0, 400)
        built.status(msgspec.structs.replace(built.job.status, progress=progress, progress_mark=mark))
    trouble(built)
    assert built.plan().status.phase is (AGAIN if left else otherwise)
