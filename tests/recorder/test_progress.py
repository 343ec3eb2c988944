from __future__ import annotations

import pytest

from paddlejob.recorder.progress import EVALUATING, SAVING, TRAINING, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def begin() -> tuple[Progress, Clock]:
    clock = Clock()
    return Progress(clock), clock


def section(progress: Progress, clock: Clock, seconds: float, *, steps: int = 0) -> None:
    progress.enter()
    clock.now += seconds
    progress.leave(steps=steps)


def test_a_step_is_split_into_own_time_and_waiting():
    progress, clock = begin()
    for _ in range(3):
        section(progress, clock, 2.0)
        section(progress, clock, 1.0, steps=1)
        clock.now += 5.0
    assert (progress.step, progress.phase) == (3, TRAINING)
    assert progress.waiting_seconds == 9.0
    # What comes before the first step and after the last one belongs to neither.
    assert progress.own_seconds == 10.0


def test_of_nested_sections_the_outermost_counts():
    progress, clock = begin()
    progress.enter()
    section(progress, clock, 2.0, steps=1)
    progress.leave(steps=1)
    assert (progress.step, progress.waiting_seconds) == (1, 2.0)


def test_time_of_other_phases_is_not_that_of_a_step():
    progress, clock = begin()
    section(progress, clock, 1.0, steps=1)
    for phase in (EVALUATING, SAVING):
        progress.change_phase(phase)
        clock.now += 60.0
    progress.change_phase(TRAINING)
    clock.now += 1.0
    section(progress, clock, 1.0, steps=1)
    assert (progress.own_seconds, progress.waiting_seconds) == (0.0, 2.0)


def test_a_pause_that_is_not_a_steps_own_is_nobodys_and_slower_steps_are():
    """A checkpoint in the program's own code would otherwise make its rank a straggler."""
    progress, clock = begin()
    for seconds in [0.1] * 50 + [60.0] + [0.1] * 10:
        clock.now += seconds
        section(progress, clock, 0.2, steps=1)
    assert progress.own_seconds == pytest.approx(59 * 0.1)
    for _ in range(20):
        clock.now += 4.0
        section(progress, clock, 0.2, steps=1)
    assert progress.own_seconds > 59 * 0.1 + 15 * 4.0


def test_setting_the_training_phase_again_changes_nothing():
    progress, clock = begin()
    for _ in range(2):
        progress.change_phase(TRAINING)
        clock.now += 3.0
        section(progress, clock, 1.0, steps=1)
    assert progress.own_seconds == 3.0


def test_an_epoch_is_a_new_start_of_the_loader_that_feeds_steps():
    progress, clock = begin()
    progress.begin_loader("evaluation before anything")
    for _ in range(3):
        progress.begin_loader("train")
        for _ in range(4):
            section(progress, clock, 1.0, steps=1)
            progress.begin_loader("evaluation within the epoch")
    assert (progress.epoch, progress.step) == (3, 12)


def test_reported_steps_override_counted_steps():
    progress, clock = begin()
    section(progress, clock, 1.0, steps=1)
    progress.set_reported(step=500, total=1000, epoch=None, loss=0.5, phase=None)
    section(progress, clock, 1.0, steps=1)
    assert (progress.step, progress.total, progress.loss) == (500, 1000, 0.5)


def test_a_loss_is_read_at_most_once_a_second():
    progress, clock = begin()
    read = []
    for number in range(100):
        clock.now += 0.1
        progress.read_loss(lambda number=number: read.append(number) or 1.0)
    assert 9 <= len(read) <= 11


class Tensor:
    """One element in a shape that is not (): float() fails on it from NumPy 2.4 on."""

    def __float__(self) -> float:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")

    def item(self) -> float:
        return 0.25


@pytest.mark.parametrize(("value", "loss"), [(0.25, 0.25), (Tensor(), 0.25), (None, 2.0), ("low", 2.0)])
def test_a_loss_of_any_shape_is_read_and_an_error_costs_the_loss_only(value, loss):
    read, said = begin()[0], begin()[0]
    read.loss = said.loss = 2.0
    read.read_loss(lambda: value)
    said.set_reported(step=3, total=None, epoch=None, loss=value, phase=None)
    assert (read.loss, said.loss, said.step) == (loss, loss, 3)


def test_an_error_while_a_loss_is_found_costs_the_loss_only():
    progress, _ = begin()
    progress.read_loss(lambda: {}["loss"])
    assert progress.loss is None
