"""Counts training steps over all epochs of a program that prints the step within each epoch.

A line such as `epoch 3 step 40/62` has neither the step since the beginning nor the total number of steps.
The former follows from the sizes of the epochs before. The latter is known only if the program also prints
the number of epochs.
"""

from __future__ import annotations

from typing import NamedTuple

from paddlejob.api.training import TrainingProgress

MAX_EPOCHS = 256
"""Number of epochs with a known first step; the first steps of other epochs are extrapolated."""
STRIDES = 2
"""If an epoch begins at most this many strides after the last step of the epoch before, the step counts over
all epochs."""
LARGEST = 1 << 53
"""Larger numbers are not steps. The API server would refuse a status with them."""


class PrintedStep(NamedTuple):
    """The numbers of a line as the program counts them."""

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    """Total of the step: in the epoch or in the whole training, or without a step the total of all epochs."""
    bar: str = ""
    """Text of a progress bar."""
    counts_over_epochs: bool = False
    """Whether the line is known to count over all epochs, such as `global_step`."""
    first_epoch_is_0: bool = False
    """Whether the line is of a program that numbers epochs from 0."""


class Position(NamedTuple):
    """A step over all epochs; None if unknown."""

    step: int | None = None
    steps: int | None = None
    epoch_step: int | None = None
    """Step within the epoch, if the program prints that."""


class StepCounter:
    """Follows the lines of one program, over restarts too.

    If a program prints no epochs, a pass over the data begins when the step starts again after its total.
    Any other smaller step belongs to a program that was restarted.
    """

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        """Step over all epochs at which an epoch begins."""
        self._first_epoch = 1
        self._names_epochs = False
        """Whether the program prints epochs. If not, passes count as epochs."""
        self._steps_have_epoch = False
        """Whether lines with a step have the epoch too; then a line without it is not about training."""
        self._counts_over_epochs: bool | None = None
        """None until the epoch has changed."""
        self._size = 0
        """Steps of an epoch."""
        self._epochs: int | None = None
        self._forget_position()

    def restart(self) -> None:
        """Begin a new process of the program, which may resume at any epoch."""
        if not self._names_epochs:
            self._starts.clear()
        elif self._epoch is not None and self._total and not self._counts_over_epochs:
            self._end_epoch(self._epoch)
        self._forget_position()

    def _forget_position(self) -> None:
        self._epoch: int | None = None
        self._step: int | None = None
        self._total: int | None = None
        self._all_steps: int | None = None
        self._stride = 0
        """Distance between the last two lines of an epoch."""
        self._bar = ""

    @classmethod
    def from_status(cls, progress: TrainingProgress | None) -> StepCounter:
        """Return a counter that continues from the progress of a job, which another operator wrote."""
        counter = cls()
        if progress is None:
            return counter
        if not progress.epoch_step:
            counter._all_steps = progress.steps or None
        elif progress.epoch:
            counter._names_epochs = True
            counter._epoch, counter._step = progress.epoch, progress.epoch_step
            counter._epochs = progress.epochs or None
            counter._starts = {progress.epoch: progress.step - progress.epoch_step}
        return counter

    def count(self, line: PrintedStep) -> Position:
        """Return the position of a line; lines are counted in the order in which they were printed."""
        self._epochs = line.epochs or self._epochs
        if line.epoch is None and line.step is None:
            self._all_steps = line.steps or self._all_steps
            return self._position()
        self._counts_over_epochs = line.counts_over_epochs or self._counts_over_epochs
        self._steps_have_epoch |= line.epoch is not None and line.step is not None
        if self._names_epochs and not self._counts_over_epochs and self._is_other_work(line):
            return self._position()
        if line.epoch is not None and not self._names_epochs:
            # Steps without an epoch before this line are of other work, such as a download.
            self._names_epochs = True
            self._starts.clear()
            self._epoch = self._step = None
        epoch = self._epoch_of(line)
        if epoch is None and not self._counts_over_epochs:
            return Position()
        if self._epoch is not None and epoch is not None and epoch > self._epoch:
            if self._names_epochs and self._step is not None and line.step is not None:
                self._compare_with_last_epoch(line, line.step, self._step)
            self._end_epoch(self._epoch)
        self._enter(epoch, line)
        return self._position()

    def _is_other_work(self, line: PrintedStep) -> bool:
        """Return whether a line within an epoch is of an evaluation, for example."""
        has_other_total = bool(self._step) and self._total not in (None, line.steps)
        return line.epoch is None and (self._steps_have_epoch or has_other_total)

    def _epoch_of(self, line: PrintedStep) -> int | None:
        if line.epoch is not None:
            return line.epoch
        if self._epoch is None or line.step is None or self._step is None:
            return self._epoch if self._names_epochs else 1
        if self._names_epochs:
            # The line that began the epoch may be missing.
            is_next = line.step < self._step and not self._counts_over_epochs
            return self._epoch + 1 if is_next else self._epoch
        if self._begins_pass(line, line.step, self._step):
            return self._epoch + 1
        # A smaller step is of a restarted program, and another total is of other work.
        return self._epoch if line.step >= self._step and line.steps == self._total else 1

    def _begins_pass(self, line: PrintedStep, step: int, last: int) -> bool:
        if line.steps != self._total:
            return False
        if step < last:
            return line.steps is None or last + self._stride >= line.steps
        # A log without the intermediate states of a bar has only its last state.
        return step == last == line.steps and line.bar not in ("", self._bar)

    def _compare_with_last_epoch(self, line: PrintedStep, step: int, last: int) -> None:
        """Find out whether the step continues in the next epoch or starts again."""
        if step <= last and not line.counts_over_epochs:
            self._counts_over_epochs = False
        elif self._counts_over_epochs is None and line.steps == self._total and last != line.steps:
            # Lines may be missing between two distant steps.
            self._counts_over_epochs = step <= last + STRIDES * self._stride or None

    def _end_epoch(self, epoch: int) -> None:
        self._size = self._total or self._step or self._size
        start = self._start_of(epoch)
        self._starts[epoch] = start
        self._starts[epoch + 1] = max(start + self._size, self._starts.get(epoch + 1, 0))
        while len(self._starts) > MAX_EPOCHS:
            del self._starts[min(self._starts)]

    def _enter(self, epoch: int | None, line: PrintedStep) -> None:
        if line.first_epoch_is_0 or epoch == 0:
            self._first_epoch = 0
        self._size = line.steps or self._size
        is_same, before, step = epoch == self._epoch, self._step, line.step
        if step is None:
            step = before if is_same or before is None else 0
        else:
            if is_same and before is not None and step > before:
                self._stride = step - before
            self._total = line.steps or (self._total if self._counts_over_epochs else None)
        self._epoch, self._step, self._bar = epoch, step, line.bar

    def _start_of(self, epoch: int) -> int:
        known = self._starts or {self._first_epoch: 0}
        nearest = max((each for each in known if each <= epoch), default=min(known))
        return max(0, known[nearest] + (epoch - nearest) * self._size)

    def _position(self) -> Position:
        if self._step is not None and self._counts_over_epochs:
            return Position(self._step, self._all_steps or self._total)
        if self._step is None or self._epoch is None:
            return Position(steps=self._all_steps)
        start = self._start_of(self._epoch)
        step = start + self._step
        if step >= LARGEST:
            return Position()
        if self._all_steps is not None and step > self._all_steps:
            self._all_steps = None
        epoch_step = self._step if self._names_epochs else None
        return Position(step, self._all_steps or self._total_steps(start), epoch_step)

    def _total_steps(self, start: int) -> int | None:
        if not self._names_epochs:
            return self._total if self._epoch == 1 else None
        if not self._epochs or not self._total or self._epoch is None:
            return None
        total = start + self._total * max(1, self._epochs - (self._epoch - self._first_epoch))
        return total if total < LARGEST else None
