from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlejob.api.v1 import PaddleJobStatus, ProgressMark, TrainingProgress
from paddlejob.training.steps import Origin, add_report, has_advanced

FROM_SCRATCH, RESUMED = Origin(), Origin(resumed=True)
STARTED_AGAIN = Origin(restarted=True)


def of(step: int, **more) -> TrainingProgress:
    return TrainingProgress(step=step, **more)


def numbers(progress: TrainingProgress) -> dict:
    shown = msgspec.to_builtins(progress)
    names = ("step", "epochStep", "percent", "attempt", "attemptStep")
    names += ("resumedStep", "savedStep", "lostSteps")
    return {name: shown[name] for name in names if shown.get(name)}


def test_the_number_of_processes_is_kept_if_the_log_has_newer_progress():
    assert add_report(of(5, processes=8), of(9), attempt=0).processes == 8


@pytest.mark.parametrize(
    ("before", "told", "attempt", "origin", "after"),
    [
        pytest.param(None, of(5), 0, FROM_SCRATCH, {"step": 5}, id="the first report"),
        pytest.param(of(5), of(9), 0, FROM_SCRATCH, {"step": 9}, id="steps go on"),
        pytest.param(
            of(180),
            of(3),
            1,
            FROM_SCRATCH,
            {"step": 180, "attempt": 1, "attemptStep": 3, "lostSteps": 180},
            id="a restart from the beginning",
        ),
        pytest.param(
            of(180, saved_step=150, percent=18),
            of(3, steps=1000),
            1,
            RESUMED,
            {
                "step": 180,
                "attempt": 1,
                "attemptStep": 153,
                "resumedStep": 150,
                "savedStep": 150,
                "lostSteps": 30,
                "percent": 18,
            },
            id="a restart from a checkpoint",
        ),
        pytest.param(
            of(180, attempt=1, attempt_step=153, resumed_step=150, saved_step=150, lost_steps=30),
            of(40, steps=1000, percent=4, saved_step=40),
            1,
            RESUMED,
            {
                "step": 190,
                "attempt": 1,
                "resumedStep": 150,
                "savedStep": 190,
                "lostSteps": 30,
                "percent": 19,
            },
            id="beyond what was reached before",
        ),
        pytest.param(
            of(180, attempt=1, attempt_step=50, lost_steps=180),
            of(2),
            2,
            FROM_SCRATCH,
            {"step": 180, "attempt": 2, "attemptStep": 2, "lostSteps": 230},
            id="a restart while steps are repeated",
        ),
        pytest.param(
            of(180),
            of(2),
            0,
            STARTED_AGAIN,
            {"step": 180, "attemptStep": 2, "lostSteps": 180},
            id="a container that was restarted in its pod",
        ),
        pytest.param(
            of(180),
            of(2),
            0,
            FROM_SCRATCH,
            {"step": 180, "attemptStep": 2},
            id="another rank of the attempt, which is behind",
        ),
        pytest.param(
            of(180),
            of(151),
            1,
            None,
            {"step": 180, "attempt": 1, "attemptStep": 151, "lostSteps": 29},
            id="a program that says its steps",
        ),
        pytest.param(
            of(400, epoch=1, epochs=2, steps=1000, epoch_step=400),
            of(510, epoch=2, epochs=2, steps=1000, epoch_step=10),
            0,
            None,
            {"step": 510, "epochStep": 10},
            id="the next epoch",
        ),
        pytest.param(
            of(510, epoch=2, epochs=2, steps=1000, epoch_step=10),
            of(490, epoch=1, epochs=2, steps=1000, epoch_step=490),
            1,
            None,
            {"step": 510, "epochStep": 10, "attempt": 1, "attemptStep": 490, "lostSteps": 20},
            id="a restart in the epoch before",
        ),
        pytest.param(of(500), of(0), 0, None, {"step": 500}, id="lines that count from 0 in an epoch unsaid"),
    ],
)
def test_progress_over_attempts(before, told, attempt, origin, after):
    assert numbers(add_report(before, told, attempt=attempt, origin=origin)) == after


@given(
    st.lists(st.tuples(st.integers(1, 50), st.booleans(), st.integers(0, 50)), min_size=1, max_size=6),
)
def test_steps_never_fall_and_every_repeated_step_is_lost(runs: list[tuple[int, bool, int]]):
    """Each run begins at the last checkpoint or at 0; whatever is done is either kept or lost."""
    now: TrainingProgress | None = None
    start = saved = done = 0
    for attempt, (steps, resumed, save_at) in enumerate(runs):
        resumes = resumed and saved > 0
        start = saved if resumes else 0
        for step in range(1, steps + 1):
            said_saved = save_at if 0 < save_at <= step else 0
            told = of(step, saved_step=said_saved)
            before, now = now, add_report(now, told, attempt=attempt, origin=Origin(resumed=resumes))
            assert before is None or now.step >= before.step
            assert (now.attempt_step or now.step) == start + step
            saved = start + said_saved if said_saved else saved
        done += steps
    assert now is not None
    assert (now.attempt_step or now.step) + now.lost_steps == done


def test_epochs_that_a_resumed_process_counts_again_do_not_hide_its_new_steps():
    before = of(8000, epoch=8, saved_step=8000)
    mark = ProgressMark(epoch=8, step=8000)
    now = add_report(before, of(1000, epoch=1, saved_step=1000), attempt=1, origin=RESUMED)
    assert (now.epoch, now.step, now.saved_step) == (8, 9000, 9000)
    assert has_advanced(PaddleJobStatus(attempt=1, base_attempt=1, progress=now, progress_mark=mark))
