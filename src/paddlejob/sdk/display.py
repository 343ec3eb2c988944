"""Shows a job while it runs: in a notebook in place, elsewhere as lines."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from paddlejob.sdk.html import render
from paddlejob.sdk.snapshot import JobSnapshot

Show = Callable[[JobSnapshot], None]


@contextlib.contextmanager
def opened() -> Iterator[Show]:
    """Give the function that shows a job, each time in place of the last."""
    yield _Notebook().show if _in_notebook() else _Lines().show


def _in_notebook() -> bool:
    """Whether somebody's IPython runs this, with a front end that can show HTML and change it."""
    # Whoever has not imported IPython is not in it.
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class _Notebook:
    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, snapshot: JobSnapshot) -> None:
        text = render(snapshot)
        if text == self._shown:
            return
        self._shown = text
        bundle = {"text/html": text, "text/plain": str(snapshot)}
        if self._handle is None:
            ipython: Any = importlib.import_module("IPython.display")
            self._handle = ipython.display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


class _Lines:
    def __init__(self) -> None:
        self._shown = ""

    def show(self, snapshot: JobSnapshot) -> None:
        if (text := str(snapshot)) != self._shown:
            self._shown = text
            print(text, flush=True)
