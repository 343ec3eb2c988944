"""The operator's command without an operator: what it would have run with."""

from __future__ import annotations

import pytest

from paddlejob.cli.setup import operator
from paddlejob.operator import manager


class Started:
    """What the operator would have run with; nothing of it is set while it has not come that far."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = self.process = self.kubeconfig = self.logging = None
        monkeypatch.setattr(manager, "run", self._run)
        monkeypatch.setattr(operator, "load_config", self._load)
        monkeypatch.setattr(operator, "_set_up_logging", self._log)

    async def _run(self, _config, settings, process) -> None:
        self.settings, self.process = settings, process

    def _load(self, kubeconfig, _context) -> None:
        self.kubeconfig = str(kubeconfig) if kubeconfig else None

    def _log(self, level: str, form: str) -> None:
        self.logging = (level, form)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    return Started(monkeypatch)
