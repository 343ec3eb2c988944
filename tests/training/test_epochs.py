"""Steps over all epochs, from lines that have the step within an epoch."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlejob.api.v1 import TrainingProgress
from paddlejob.training.epochs import LARGEST, MAX_EPOCHS, Position, PrintedStep, StepCounter


def counted(*lines: PrintedStep, counter: StepCounter | None = None) -> list[tuple[int | None, int | None]]:
    """Return the step and the total after each line."""
    counter = counter or StepCounter()
    return [counter.count(line)[:2] for line in lines]


def at(epoch: int | None, step: int | None, steps: int | None = None, epochs: int | None = None, **more):
    return PrintedStep(epoch, epochs, step, steps, **more)


LINES = {
    "epochs without their number": (
        [at(1, 20, 62), at(1, 60, 62), at(2, 20, 62), at(3, 62, 62)],
        [(20, None), (60, None), (82, None), (186, None)],
    ),
    "epochs and their number": (
        [at(1, 31, 62, 4), at(2, 31, 62, 4)],
        [(31, 248), (93, 248)],
    ),
    "epochs that are numbered from 0": (
        [at(0, 31, 62, 4), at(1, 31, 62, 4), at(3, 62, 62, 4)],
        [(31, 248), (93, 248), (248, 248)],
    ),
    "the first line is of a later epoch": ([at(3, 1, 62, 4)], [(125, 248)]),
    "the same, of a program that numbers from 0": (
        [at(3, 1, 62, first_epoch_is_0=True)],
        [(187, None)],
    ),
    "epochs of different sizes": (
        [at(1, 60, 60), at(2, 50, 50), at(3, 1, 70), at(2, 1, 50), at(3, 1, 70)],
        [(60, None), (110, None), (111, None), (61, None), (111, None)],
    ),
    "a larger epoch than before the restart": (
        [at(1, 50, 50), at(2, 1, 50), at(1, 100, 100), at(2, 1, 100)],
        [(50, None), (51, None), (100, None), (101, None)],
    ),
    "epochs without the number of steps": (
        [at(0, 0), at(0, 900), at(1, 0), at(1, 900), at(2, 100)],
        [(0, None), (900, None), (900, None), (1800, None), (1900, None)],
    ),
    "an epoch whose lines are missing": ([at(1, 62, 62), at(4, 1, 62)], [(62, None), (187, None)]),
    "lines of their own begin an epoch": (
        [at(1, None, epochs=3), at(None, 25, 25), at(2, None, epochs=3), at(None, 5, 25)],
        [(None, None), (25, 75), (25, 75), (30, 75)],
    ),
    "one of these lines is missing": (
        [at(1, None, epochs=3), at(None, 20, 25), at(None, 5, 25), at(None, 5, 5), at(None, 10, 25)],
        [(None, None), (20, 75), (30, 75), (30, 75), (35, 75)],
    ),
    "the total changes with an epoch": (
        [at(1, None, epochs=3), at(None, 20, 25), at(2, None, epochs=3), at(None, 5, 50)],
        [(None, None), (20, 75), (25, 75), (30, 125)],
    ),
    "a step that is known to count over all epochs": (
        [at(1, 20, counts_over_epochs=True), at(2, 80, counts_over_epochs=True), at(2, 60)],
        [(20, None), (80, None), (60, None)],
    ),
    "a step that continues in the next epoch": (
        [at(1, 20, 1000), at(1, 40, 1000), at(2, 60, 1000), at(3, 900, 1000)],
        [(20, None), (40, None), (60, 1000), (900, 1000)],
    ),
    "a step that seemed to continue": (
        [at(1, 20, 99), at(1, 40, 99), at(2, 60, 99), at(3, 20, 99), at(3, 40, 99), at(4, 60, 99)],
        [(20, None), (40, None), (60, 99), (218, None), (238, None), (357, None)],
    ),
    "a distant step after missing lines": (
        [at(1, 10, 99), at(1, 20, 99), at(2, 70, 99)],
        [(10, None), (20, None), (169, None)],
    ),
    "the total of all steps, in a separate line": (
        [at(None, None, 180), at(0, 10, counts_over_epochs=True), at(1, 70, counts_over_epochs=True)],
        [(None, 180), (10, 180), (70, 180)],
    ),
    "one pass without epochs": ([at(None, 10, 40), at(None, 40, 40)], [(10, 40), (40, 40)]),
    "passes without epochs": (
        [at(None, 20, 62), at(None, 60, 62), at(None, 20, 62), at(None, 60, 62), at(None, 20, 62)],
        [(20, 62), (60, 62), (82, None), (122, None), (144, None)],
    ),
    "passes without epochs and totals": (
        [at(None, 20), at(None, 900), at(None, 20)],
        [(20, None), (900, None), (920, None)],
    ),
    "the last states of bars": (
        [at(None, 40, 40, bar="a"), at(None, 40, 40, bar="a"), at(None, 40, 40, bar="b")],
        [(40, 40), (40, 40), (80, None)],
    ),
    "a restart within a pass": (
        [at(None, 20, 62), at(None, 30, 62), at(None, 5, 62)],
        [(20, 62), (30, 62), (5, 62)],
    ),
    "a bar of other work before": (
        [at(None, 999, 999), at(None, 1, 40), at(None, 40, 40), at(None, 1, 40)],
        [(999, 999), (1, 40), (40, 40), (41, None)],
    ),
    "a bar of other work in an epoch": (
        [at(1, 62, 62), at(None, 5, 10), at(2, 1, 62)],
        [(62, None), (62, None), (63, None)],
    ),
    "a download before the first epoch": (
        [at(None, 10, 10), at(1, 20, 62), at(2, 20, 62)],
        [(10, 10), (20, None), (82, None)],
    ),
    "epochs without steps": ([at(1, None, epochs=3), at(2, None, epochs=3)], [(None, None), (None, None)]),
}


@pytest.mark.parametrize(("lines", "expected"), LINES.values(), ids=LINES)
def test_steps_over_all_epochs(lines, expected):
    assert counted(*lines) == expected


def test_a_new_process_resumes_in_an_epoch_of_an_earlier_one():
    counter = StepCounter()
    assert counted(at(0, 60, 60), at(1, 50, 50), at(2, 10, 70), counter=counter)[-1] == (120, None)
    counter.restart()
    assert counted(at(1, 5, 50), at(2, 5, 70), counter=counter) == [(65, None), (115, None)]
    counter.restart()
    assert counted(at(3, 1, 80), counter=counter) == [(181, None)]


def test_a_new_process_does_not_begin_another_pass():
    counter = StepCounter()
    counted(at(None, 40, 40), at(None, 10, 40), counter=counter)
    counter.restart()
    assert counted(at(None, 5, 40), counter=counter) == [(5, 40)]


def test_another_operator_continues_from_the_status():
    shown = TrainingProgress(step=3630, epoch=5, epoch_step=30, epochs=9)
    counter = StepCounter.from_status(shown)
    lines = [at(None, 40), at(5, 50), at(6, 3)]
    assert counted(*lines, counter=counter) == [(3640, None), (3650, None), (3653, None)]
    resumed = StepCounter.from_status(shown)
    resumed.restart()
    assert counted(at(None, 40, 900), at(4, 40, 900), counter=resumed) == [(None, None), (2740, 8100)]


def test_another_operator_knows_the_total_until_it_is_exceeded():
    counter = StepCounter.from_status(TrainingProgress(step=40, steps=60))
    assert counted(at(None, 50), at(None, 61), counter=counter) == [(50, 60), (61, None)]
    assert counted(at(None, 50), counter=StepCounter.from_status(None)) == [(50, None)]


def test_a_position_has_the_step_within_the_epoch_if_that_is_printed():
    counter = StepCounter()
    assert counter.count(at(1, 62, 62)).epoch_step == 62
    assert counter.count(at(2, 5, 62)) == Position(67, None, 5)
    assert StepCounter().count(at(None, 5, 62)).epoch_step is None


def test_many_epochs_are_counted_within_bounds():
    counter = StepCounter()
    for epoch in range(4 * MAX_EPOCHS):
        assert counter.count(at(epoch, 10, 10)).step == 10 * (epoch + 1)
    assert len(counter._starts) <= MAX_EPOCHS
    assert counter.count(at(3, 5, 10)).step == 35


@given(st.lists(st.builds(PrintedStep, *[st.none() | st.integers(0, LARGEST - 1)] * 4), max_size=8))
def test_any_numbers_give_steps_that_fit_into_a_status(lines):
    for position in map(StepCounter().count, lines):
        assert all(each is None or 0 <= each < LARGEST for each in position)


SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 30), st.integers(0, 1), st.booleans(), st.data())
def test_any_program_with_epochs_is_counted_exactly(sizes, stride, first, tells_epochs, data):
    """A program prints every `stride` steps and at the end of epochs, and resumes anywhere."""
    counter, starts = StepCounter(), [0, *itertools.accumulate(sizes)]
    reached = 0
    for begin in data.draw(st.lists(st.floats(0, 1), max_size=3).map(lambda each: [0.0, *each])):
        position = int(begin * reached)
        counter.restart()
        last = data.draw(st.integers(position, starts[-1]))
        for index, (start, size) in enumerate(zip(starts, sizes, strict=False)):
            for step in range(1, size + 1):
                if position < start + step <= last and (step % stride == 0 or step == size):
                    line = at(first + index, step, size, len(sizes) if tells_epochs else None)
                    assert counter.count(line).step == start + step
        reached = max(reached, last)
