"""How far one process is: its step, loss and phase, and where the time of a step goes."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Callable

STARTING, TRAINING, EVALUATING, SAVING = "starting", "training", "evaluating", "saving"
LOSS_SECONDS = 1.0
"""Reading a loss waits for the device, so it is read at most this often."""
ODD_SECONDS, ODD_TIMES = 1.0, 20.0
"""What takes longer, and so many times as long as usual, is not a step but what a program does between two:
a checkpoint or an evaluation that the hooks do not know."""
USUAL_WEIGHT, USUAL_GROWTH = 0.1, 10.0


class Progress:
    """What the hooks count and a program says. Written by the training thread, read by the sender's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.step = 0
        self.total: int | None = None
        self.epoch: int | None = None
        self.loss: float | None = None
        self.phase = STARTING
        self.own_seconds = 0.0
        """Time of steps outside backward and the optimizer: data, forward, the program's own code."""
        self.waiting_seconds = 0.0
        """Time inside them, where ranks wait for each other: the slowest rank has the least of it."""
        self.says_its_steps = False
        """Whether steps come from the program; those that are counted begin with 0 in every process."""
        self.saved_step: int | None = None
        """Step of the last checkpoint."""
        self.resumed = False
        """Whether an optimizer was given the state of a checkpoint before the first step."""
        self._own = 0.0
        """Time of the step in progress."""
        self._usual: float | None = None
        self._depth = 0
        self._entered = 0.0
        self._left: float | None = None
        self._loss_read = -LOSS_SECONDS
        self._loader: Any = None
        self._training_loader: Any = None

    def say(
        self,
        *,
        step: int | None,
        total: int | None,
        epoch: int | None,
        loss: float | None,
        phase: str | None,
    ) -> None:
        """Set the numbers that the program reports; they replace the counted ones."""
        if step is not None:
            self.says_its_steps = True
            self.step = int(step)
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
        """End a section, with a step of the optimizer if it was one; of nested ones the outermost counts."""
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
        """Evaluate, save, or train again; the time of other phases is nobody's step."""
        if phase != self.phase:
            self.phase = phase
            self._left = None

    def resume(self) -> None:
        """Note that an optimizer is given the state of a checkpoint."""
        if not self.step:
            self.resumed = True

    def read_loss(self, find: Callable[[], Any]) -> None:
        """Read a loss once a second; an error costs this loss only, and the recorder stays on."""
        now = self._clock()
        if now - self._loss_read < LOSS_SECONDS:
            return
        self._loss_read = now
        with suppress(Exception):
            self.loss = _number(find())

    def begin_loader(self, dataset: Any) -> None:
        """Note that a data loader starts over; which one is the training data is known at the next step."""
        self._loader = dataset

    def _count(self, steps: int) -> None:
        self.phase = TRAINING
        self._add_own_time()
        if not self.says_its_steps:
            self.step += steps
        if self._loader is not None:
            if self._training_loader in (None, self._loader):
                self._training_loader = self._loader
                self.epoch = (self.epoch or 0) + 1
            self._loader = None

    def _add_own_time(self) -> None:
        own, self._own = self._own, 0.0
        if not own:
            # The first step, or the first after another phase: nobody knows when it began.
            return
        usual = own if self._usual is None else self._usual
        self._usual = usual + USUAL_WEIGHT * (min(own, USUAL_GROWTH * usual) - usual)
        if own <= max(ODD_SECONDS, ODD_TIMES * usual):
            self.own_seconds += own


def _number(value: Any) -> float:
    """Return the number of a Python number, or of an array or tensor with one element in any shape."""
    return float(value.item() if hasattr(value, "item") else value)
