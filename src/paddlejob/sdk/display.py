"""Shows a job while it runs: in place in a notebook, line by line elsewhere."""

from __future__ import annotations

import html
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from paddlejob.dashboard.rows import detail_of
from paddlejob.dashboard.standalone import page
from paddlejob.sdk.snapshot import LAPTOP, JobSnapshot
from paddlejob.training.log_lines import training_progress
from paddlejob.training.steps import at_end

MAX_POINTS = 500
UPDATE_SECONDS = 3.0
"""Minimum time between two updates of a notebook cell: each one sends the whole page."""
_FRAME = "width:100%;height:36em;border:1px solid rgba(128,128,128,.4);border-radius:6px"


def show_function() -> Callable[[JobSnapshot], None]:
    """Return a function that shows a job in place of the last one, or prints a line if it has changed."""
    return _Notebook().show if _in_notebook() else _Lines().show


def render(snapshot: JobSnapshot) -> str:
    """Return the page of a job in a frame. Notebooks that remove frames show the text inside."""
    data = {"snapshot": _page_data(snapshot)}
    text = str(snapshot)
    return (
        f'<iframe title="{html.escape(snapshot.name)}" style="{_FRAME}" '
        f'srcdoc="{html.escape(page(snapshot.name, text, data))}">{html.escape(text)}</iframe>'
    )


def _page_data(snapshot: JobSnapshot) -> dict[str, Any]:
    detail = detail_of(snapshot.namespace, snapshot.name, snapshot.state)
    points = snapshot.metrics.points
    # The newest point stays.
    shown = points[:: -(len(points) // MAX_POINTS + 1)][::-1]
    return {
        "job": {**detail, "key": "", "progress": _progress(snapshot)},
        "isLocal": snapshot.where == LAPTOP,
        "place": snapshot.where,
        "ranks": snapshot.ranks,
        "points": shown,
        "trouble": snapshot.trouble,
        "time": round(1000 * snapshot.time),
    }


def _progress(snapshot: JobSnapshot) -> dict[str, Any] | None:
    status = snapshot.state.status
    progress = training_progress(snapshot.metrics.tracker, snapshot.time) or status.progress
    if progress is not None and status.phase.is_terminal:
        progress = at_end(progress, status.phase)
    return msgspec.to_builtins(progress) if progress else None


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows HTML and can change it."""
    # A process that has not imported IPython is not a kernel.
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class _Notebook:
    def __init__(self) -> None:
        self._handle: Any = None
        self._shown: tuple[object, ...] = ()
        self._next_update = 0.0

    def show(self, snapshot: JobSnapshot) -> None:
        text = str(snapshot)
        is_over = snapshot.state.status.phase.is_terminal
        if (text, snapshot.ranks) == self._shown or (time.monotonic() < self._next_update and not is_over):
            return
        self._shown = (text, snapshot.ranks)
        self._next_update = time.monotonic() + UPDATE_SECONDS
        bundle = {"text/html": render(snapshot), "text/plain": text}
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
