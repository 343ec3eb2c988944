"""The progress of one process: step, loss, phase, and the time spent in each part of a step."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Callable

from .startup import Startup

STARTING, TRAINING, EVALUATING, SAVING = "starting", "training", "evaluating", "saving"
LOSS_SECONDS = 1.0
"""Minimum time between two reads of the loss, because each read waits for the device."""
OUTLIER_SECONDS, OUTLIER_FACTOR = 1.0, 20.0
"""A step that takes longer than both limits, the second relative to usual steps, is not counted: it contains
other work, such as a checkpoint or an evaluation that the hooks did not detect."""
USUAL_WEIGHT, USUAL_GROWTH = 0.1, 10.0


class Progress:
    """Values counted by the hooks or reported by the program. The sender's thread only reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.startup = Startup(clock)
        self.step = 0
        self.total: int | None = None
        self.epoch: int | None = None
        self.loss: float | None = None
        self.phase = STARTING
        self.own_seconds = 0.0
        """Time outside backward and the optimizer: data loading, forward, the program's own code."""
        self.waiting_seconds = 0.0
        """Time inside them, in which ranks wait for each other; the slowest rank has the least of it."""
        self.has_reported_steps = False
        """Whether the program reports its steps; counted steps start at 0 in every process."""
        self.saved_step: int | None = None
        """Step of the last checkpoint."""
        self.stage: int | None = None
        """Pipeline stage of this process, None without a pipeline."""
        self.resumed = False
        """Whether an optimizer loaded the state of a checkpoint before the first step."""
        self._own = 0.0
        """Own time of the current step."""
        self._usual: float | None = None
        self._depth = 0
        self._entered = 0.0
        self._left: float | None = None
        self._loss_read = -LOSS_SECONDS
        self._loader: Any = None
        self._training_loader: Any = None

    def set_reported(
        self,
        *,
        step: int | None,
        total: int | None,
        epoch: int | None,
        loss: float | None,
        phase: str | None,
    ) -> None:
        """Set the values that the program reports; they replace the counted ones."""
        if step is not None:
            self.has_reported_steps = True
            self.step = int(step)
            self.startup.note_step()
        if total is not None:
            self.total = int(total)
        if epoch is not None:
            self.epoch = int(epoch)
        if loss is not None:
            with suppress(Exception):
                self.loss = _number(loss)
        self.phase = phase or TRAINING

    def enter(self) -> None:
        """Begin a section in which ranks wait for each other; sections may nest."""
        if self._depth == 0:
            self._entered = self._clock()
            if self._left is not None and self.phase == TRAINING:
                self._own += self._entered - self._left
        self._depth += 1

    def leave(self, *, steps: int = 0) -> None:
        """End a section, counting `steps` of the optimizer; of nested sections only the outermost counts."""
        self._depth -= 1
        if self._depth:
            return
        self._left = self._clock()
        self.waiting_seconds += self._left - self._entered
        if steps:
            self._count(steps)

    @property
    def is_waiting(self) -> bool:
        """Whether the training thread is in a section in which ranks wait for each other."""
        return self._depth > 0

    def change_phase(self, phase: str) -> None:
        """Change the phase; time spent in other phases is not attributed to any step."""
        if phase != self.phase:
            self.phase = phase
            self._left = None

    def resume(self) -> None:
        """Record that an optimizer loads the state of a checkpoint."""
        if not self.step:
            self.resumed = True

    def read_loss(self, find: Callable[[], Any]) -> None:
        """Read a loss, at most once a second, unless `find` returns None; ignore errors."""
        now = self._clock()
        if now - self._loss_read < LOSS_SECONDS:
            return
        with suppress(Exception):
            found = find()
            if found is not None:
                self._loss_read = now
                self.loss = _number(found)

    def begin_loader(self, dataset: Any) -> None:
        """Record that a data loader starts; the next step shows whether it is the training data."""
        self._loader = dataset

    def _count(self, steps: int) -> None:
        self.phase = TRAINING
        self.startup.note_step()
        self._add_own_time()
        if not self.has_reported_steps:
            self.step += steps
        if self._loader is not None:
            if self._training_loader in (None, self._loader):
                self._training_loader = self._loader
                self.epoch = (self.epoch or 0) + 1
            self._loader = None

    def _add_own_time(self) -> None:
        own, self._own = self._own, 0.0
        if not own:
            # The start of the first step, also after another phase, is unknown.
            return
        usual = own if self._usual is None else self._usual
        self._usual = usual + USUAL_WEIGHT * (min(own, USUAL_GROWTH * usual) - usual)
        if own <= max(OUTLIER_SECONDS, OUTLIER_FACTOR * usual):
            self.own_seconds += own


def _number(value: Any) -> float:
    """Convert a number, or an array or tensor with one element, to a float."""
    return float(value.item() if hasattr(value, "item") else value)
