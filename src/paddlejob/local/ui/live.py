"""The live view for terminals: a table of the pods, and the output of the selected pods above it."""

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
from paddlejob.local.store.logs import LogLines, short_name, widest_label
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord
from paddlejob.local.ui import summary
from paddlejob.local.ui.output import Output, Stream
from paddlejob.local.ui.table import render
from paddlejob.terminal import Prefixes

DRAW_SECONDS = 0.5
MAX_LINES = 200
"""Lines of one pod printed at a time; the log file has the rest of a flood."""


class LiveOutput(Output):
    """Redraws the view a few times per second."""

    def __init__(self, logs: str, console: Console | None = None) -> None:
        super().__init__(logs, may_skip=True)
        self._console = console or Console(file=cast("TextIO", Stream(sys.stdout)), highlight=False)
        self._live: Live | None = None
        self._prefixes = Prefixes(colours=True)
        self._footer = ""
        self._has_news = True
        self._drawn = 0.0

    def on_start(self, run: RunDirectory, record: RunRecord, *, is_attached: bool = False) -> None:
        super().on_start(run, record, is_attached=is_attached)
        self._prefixes = Prefixes(widest_label(record.job, self.logs), colours=True)
        for note in record.notes:
            self._console.print(Text(f"note: {note}", style="dim"))
        flag = run.run_dir_flag
        stop = f"Ctrl-C detaches   stop: paddlejob stop {run.name}{flag}"
        leaving = stop if is_attached else "Ctrl-C stops it"
        self._footer = f"run {run.name}   {leaving}   logs: paddlejob logs -f{flag}"
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def on_job(self, job: PaddleJob) -> None:
        self.view.on_job(job)
        self._has_news = True

    def on_pod(self, pod: Pod) -> None:
        self._has_news = bool(self.view.on_pod(pod)) or self._has_news

    def on_pod_gone(self, name: str) -> None:
        self._has_news = bool(self.view.on_pod_gone(name)) or self._has_news

    def on_event(self, event: Event) -> None:
        if event.type is EventType.WARNING and event.reason != Phase.FAILED:
            self._console.print(Text(f"{event.reason}: {event.message}", style="yellow"))

    def on_log(self, lines: LogLines) -> None:
        self.view.on_log(lines)
        self._has_news = True
        if not lines.text or not self.is_selected(lines):
            return
        shown = lines.text.splitlines(keepends=True)[-MAX_LINES:]
        if lines.skipped or len(shown) == MAX_LINES:
            name = short_name(self.view.job.name, lines.pod)
            self._console.print(Text(f"{name}: some lines are omitted; its log has all of them", style="dim"))
        text = self._prefixes.apply(b"".join(shown), self.view.label(lines))
        # Some releases of rich keep the last newline, and print adds another.
        shown_text = Text.from_ansi(text.decode(errors="replace").removesuffix("\n"))
        self._console.print(shown_text, soft_wrap=True)

    def tick(self) -> None:
        elapsed = time.monotonic() - self._drawn
        if self._live is None or elapsed < (DRAW_SECONDS if self._has_news else 1.0):
            return
        self._drawn, self._has_news = time.monotonic(), False
        self._live.update(render(self.view, self._footer, height=self._console.height), refresh=True)

    def on_interrupt(self, times: int) -> None:
        self._footer = summary.interruption(times)
        self._has_news = True

    def on_detach(self) -> None:
        self._remove_view()
        run = self.view.run
        hint = f"detached; watch it again: paddlejob attach {run.name}{run.run_dir_flag}"
        self._console.print(Text(hint), soft_wrap=True)

    def _remove_view(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        self._remove_view()
        self._console.print(render(self.view, ending=ending, height=self._console.height))
        for line in summary.details(self.view, ending, outcome, selection=self.logs):
            self._console.print(Text(line, style="dim"), soft_wrap=True)
        style = "bold green" if ending is Ending.COMPLETED else "bold red"
        self._console.print(Text(summary.verdict(self.view, ending, outcome), style=style), soft_wrap=True)
        run = self.view.run
        where = f"logs: paddlejob logs {run.name}{run.run_dir_flag}   directory: {run.path}"
        self._console.print(Text(where, style="dim"), soft_wrap=True)
