from __future__ import annotations

from types import SimpleNamespace

import pytest

from paddlejob.recorder import hooks
from paddlejob.recorder.progress import Progress
from paddlejob.recorder.sender import Sender


class Program:
    def __init__(self, *operations: str) -> None:
        self._operations = operations

    def global_block(self) -> SimpleNamespace:
        return SimpleNamespace(ops=[SimpleNamespace(type=name) for name in self._operations])


def test_a_program_at_the_place_of_one_that_is_gone_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "id", lambda _: 1, raising=False)
    progress = Progress()
    hooked = hooks._Hooks(progress, Sender(progress))
    run = hooked._executor_run(lambda _, __: None)
    run(None, Program("relu", "relu_grad"))
    run(None, Program("relu"))
    assert progress.step == 1
