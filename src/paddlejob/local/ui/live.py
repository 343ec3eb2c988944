"""The live view: the job and its pods in place, and above them what the pods say."""

from __future__ import annotations

import sys
import time
from typing import TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import Event, EventType
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import LogLines, Prefixes, chosen_pods, short_name, widest_label
from paddlejob.local.store.run_directory import Outcome
from paddlejob.local.ui import summary
from paddlejob.local.ui.output import Shown
from paddlejob.local.ui.stream import Stream
from paddlejob.local.ui.table import render
from paddlejob.local.ui.view import RunView

DRAW_SECONDS = 0.5
MOST_LINES = 200
"""What a person can follow at a time; the rest of a flood is in the file."""


class LiveOutput:
    """Draws a few times a second."""

    def __init__(self, logs: str, console: Console | None = None) -> None:
        self._logs = logs
        self.may_skip = True
        self._console = console or Console(file=cast("TextIO", Stream(sys.stdout)), highlight=False)
        self._live: Live | None = None
        self._view: RunView | None = None
        self._shown: Shown | None = None
        self._prefixes = Prefixes(colours=True)
        self._footer = ""
        self._has_news = True
        self._drawn = 0.0

    def on_start(self, shown: Shown) -> None:
        """Put up the view."""
        self._shown = shown
        self._view = RunView(shown)
        self._prefixes = Prefixes(widest_label(shown.job, self._logs), colours=True)
        for note in shown.notes:
            self._console.print(Text(f"note: {note}", style="dim"))
        run = shown.directory.name
        leaving = f"Ctrl-C detaches   stop: paddlejob stop {run}" if shown.is_attached else "Ctrl-C stops it"
        self._footer = f"run {run}   {leaving}   logs: paddlejob logs -f"
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def on_job(self, job: PaddleJob) -> None:
        """Take note."""
        assert self._view is not None
        self._view.on_job(job)
        self._has_news = True

    def on_pod(self, pod: Pod) -> None:
        """Take note."""
        assert self._view is not None
        self._has_news = bool(self._view.on_pod(pod)) or self._has_news

    def on_pod_gone(self, name: str) -> None:
        """Take note."""
        assert self._view is not None
        self._has_news = bool(self._view.on_pod_gone(name)) or self._has_news

    def on_event(self, event: Event) -> None:
        """Print warnings above the view."""
        if event.type is EventType.WARNING and event.reason != Phase.FAILED:
            self._console.print(Text(f"{event.reason}: {event.message}", style="yellow"))

    def on_log(self, lines: LogLines) -> None:
        """Keep a pod's last line; print its lines above the view where they are asked for."""
        assert self._view is not None
        self._view.on_log(lines)
        self._has_news = True
        if not lines.text or not chosen_pods(self._view.job.name, self._logs, (lines.pod,)):
            return
        shown = lines.text.splitlines(keepends=True)[-MOST_LINES:]
        if lines.skipped or len(shown) == MOST_LINES:
            name = short_name(self._view.job.name, lines.pod)
            self._console.print(Text(f"{name}: some lines are omitted; its log has all of them", style="dim"))
        text = self._prefixes.apply(b"".join(shown), self._view.speaker(lines))
        # Without its last newline: some releases of rich keep it, and print adds another.
        shown_text = Text.from_ansi(text.decode(errors="replace").removesuffix("\n"))
        self._console.print(shown_text, soft_wrap=True)

    def tick(self) -> None:
        """Draw, when there is something new or the clock has moved."""
        since = time.monotonic() - self._drawn
        if self._live is None or self._view is None or since < (DRAW_SECONDS if self._has_news else 1.0):
            return
        self._drawn, self._has_news = time.monotonic(), False
        self._live.update(render(self._view, self._footer, height=self._console.height), refresh=True)

    def on_interrupt(self, times: int) -> None:
        """Say what is done about it, in the view."""
        self._footer = summary.interruption(times)
        self._has_news = True

    def on_detach(self) -> None:
        """Take the view down."""
        assert self._shown is not None
        self._take_down()
        self._console.print(Text(f"detached; watch it again: paddlejob attach {self._shown.directory.name}"))

    def _take_down(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        """Leave the last view standing, and the result below it."""
        assert self._view is not None
        assert self._shown is not None
        self._take_down()
        self._console.print(render(self._view, ending=ending, height=self._console.height))
        for line in summary.details(self._view, ending, outcome, self._shown, selection=self._logs):
            self._console.print(Text(line, style="dim"), soft_wrap=True)
        style = "bold green" if ending is Ending.COMPLETED else "bold red"
        self._console.print(Text(summary.verdict(self._view, ending, outcome), style=style), soft_wrap=True)
        run = self._shown.directory
        where = f"logs: paddlejob logs {run.name}   directory: {run.path}"
        self._console.print(Text(where, style="dim"), soft_wrap=True)
