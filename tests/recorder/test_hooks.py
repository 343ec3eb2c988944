from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddlejob.recorder import hooks
from paddlejob.recorder.progress import Progress
from paddlejob.recorder.sender import Sender
from paddlejob.recorder.startup import Startup


class Program:
    def __init__(self, *operations: str) -> None:
        self._operations = operations

    def global_block(self) -> SimpleNamespace:
        return SimpleNamespace(ops=[SimpleNamespace(type=name) for name in self._operations])


class Value:
    """A result, a loss or a variable with one element."""

    size = 1

    def __init__(self, number: float = 0.0, *, name: str = "") -> None:
        self._number = number
        self.name = name

    def item(self) -> float:
        return self._number

    def detach(self) -> Value:
        return self


def hooked() -> hooks._Hooks:
    progress = Progress()
    hooked = hooks._Hooks(progress, Sender(progress))
    hooked._paddle = SimpleNamespace(in_dynamic_mode=lambda: True)
    return hooked


@pytest.mark.parametrize("scale", [32768.0, math.inf])
def test_the_loss_of_mixed_precision_is_the_one_before_it_is_scaled(scale: float) -> None:
    it = hooked()
    scale_loss = it._scale(lambda _, loss: Value(loss.item() * scale))
    backward = it._backward(lambda _: None)
    backward(scale_loss(None, Value(4.5)))
    assert it.progress.loss == 4.5
    # A loss that is not scaled is read from the tensor itself.
    it.progress._loss_read = -math.inf
    backward(Value(3.5))
    assert it.progress.loss == 3.5


def test_neither_recomputation_nor_a_micro_batch_has_the_loss() -> None:
    it = hooked()
    backward = it._backward(lambda _: None)
    # A tensor with more elements is not a loss either, and the next one is read immediately.
    backward(SimpleNamespace(size=2))
    it._backward(lambda loss: backward(Value(1.5)))(Value(4.5))
    assert it.progress.loss == 4.5
    it.progress._loss_read = -math.inf
    it._pipeline(lambda _, batch: backward(Value(0.5)) or batch)(None, Value(2.5))
    assert it.progress.loss == 2.5


def test_the_ranks_have_met_when_the_call_returns() -> None:
    it = hooked()
    times = iter(range(100))
    it.progress.startup = Startup(lambda: float(next(times)))
    meet = it._join(lambda strategy: strategy)
    assert meet("first") == "first"
    assert meet(strategy="second") == "second"
    it.progress.startup.note_step()
    assert it.progress.startup.report()["startup"]["joinSeconds"] == 2


class Unreadable:
    """A value without a gradient scaler, a size or a stage."""

    @property
    def size(self) -> int:
        raise RuntimeError("unreadable")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda it, value: it._scale(lambda _, loss: loss)(None, value), id="scale"),
        pytest.param(lambda it, value: it._backward(lambda loss: loss)(value), id="backward"),
        pytest.param(lambda it, value: it._pipeline(lambda model: model)(value), id="pipeline"),
    ],
)
def test_an_unreadable_value_costs_the_value_only(
    call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PADDLEJOB_PROGRESS_FILE", str(tmp_path / "progress"))
    it, value = hooked(), Unreadable()
    assert call(it, value) is value
    assert it.sender.is_on
    assert (it.progress.loss, it.progress.stage) == (None, None)


def test_a_step_that_fails_is_not_counted() -> None:
    it = hooked()
    with pytest.raises(ZeroDivisionError):
        it._step(lambda: 1 // 0)()
    it._step(lambda: None)()
    assert (it.progress.step, it.progress.is_waiting) == (1, False)


LOSS, ACCURACY = Value(name="mean_0.tmp_loss"), Value(name="acc")


@pytest.mark.parametrize(
    ("fetched", "results", "loss"),
    [
        ([LOSS], [Value(0.5)], 0.5),
        (LOSS, [Value(0.5)], 0.5),
        ("loss", [Value(0.5)], 0.5),
        ((ACCURACY, LOSS), [Value(0.9), Value(0.5)], 0.5),
        ([ACCURACY], [Value(0.9)], 0.9),
        ([LOSS], [SimpleNamespace(size=2)], None),
        ([LOSS], None, None),
        (None, [], None),
    ],
)
def test_the_loss_is_found_among_fetched_results(fetched: Any, results: Any, loss: float | None) -> None:
    it = hooked()
    it._executor_run(lambda *_, **__: results)(None, Program("relu_grad"), fetch_list=fetched)
    assert (it.progress.step, it.progress.loss) == (1, loss)


def test_a_program_at_the_place_of_one_that_is_gone_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "id", lambda _: 1, raising=False)
    it = hooked()
    run = it._executor_run(lambda _, __: None)
    run(None, Program("relu", "relu_grad"))
    run(None, Program("relu"))
    assert it.progress.step == 1
