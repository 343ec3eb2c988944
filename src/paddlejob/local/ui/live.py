"""The live view: the job and its pods in place, and above them what the pods say."""

from __future__ import annotations

import sys
import time
from typing import TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase, Role
from paddlejob.core.actions import Event, EventType
from paddlejob.local.local_run import LocalRun
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import LogLines, Prefixes, chosen_pods, short_name
from paddlejob.local.ui import summary
from paddlejob.local.ui.stream import Stream
from paddlejob.local.ui.view import PodRow, RunView

QUIET_SECONDS = 10.0
"""After this long without a word the view says so: a job that hangs looks like one that works."""
DRAW_SECONDS = 0.5
MOST_LINES = 200
"""What a person can follow at a time; the rest of a flood is in the file."""

_PHASE_STYLES: dict[str, str] = {
    Phase.RUNNING: "bold green",
    Phase.COMPLETED: "bold green",
    Phase.FAILED: "bold red",
    Phase.RESTARTING: "bold yellow",
    Phase.SUSPENDED: "bold magenta",
}
_STATE_STYLES = {"Running": "green", "Completed": "green", "Terminating": "yellow"}


class LiveOutput:
    """Draws a few times a second."""

    def __init__(self, logs: str, console: Console | None = None) -> None:
        self._logs = logs
        self.may_skip = True
        self._console = console or Console(file=cast("TextIO", Stream(sys.stdout)), highlight=False)
        self._live: Live | None = None
        self._view: RunView | None = None
        self._local_run: LocalRun | None = None
        self._prefixes = Prefixes(colours=True)
        self._footer = ""
        self._has_news = True
        self._drawn = 0.0

    def on_start(self, local_run: LocalRun) -> None:
        """Put up the view."""
        job = local_run.runner.job
        self._local_run = local_run
        self._view = RunView(job)
        for note in local_run.notes:
            self._console.print(Text(f"note: {note}", style="dim"))
        self._footer = f"run {local_run.run_directory.name}   Ctrl-C stops it   logs: paddlejob logs -f"
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
        if not chosen_pods(self._view.job.name, self._logs, (lines.pod,)):
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
        self._live.update(render(self._view, self._footer), refresh=True)

    def on_interrupt(self, times: int) -> None:
        """Say what is done about it, in the view."""
        self._footer = summary.interruption(times)
        self._has_news = True

    def on_end(self, ending: Ending) -> None:
        """Leave the last view standing, and the result below it."""
        assert self._view is not None
        assert self._local_run is not None
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._console.print(render(self._view, "", ending))
        style = "bold green" if ending is Ending.COMPLETED else "bold red"
        *before, verdict = [
            line
            for line in summary.lines(self._view, ending, self._local_run, shown=self._logs)
            if not line.startswith("see ")
        ]
        for line in before:
            self._console.print(Text(line, style="dim"))
        self._console.print(Text(verdict, style=style))
        run = self._local_run.run_directory
        where = f"logs: paddlejob logs {run.name}   directory: {run.path}"
        self._console.print(Text(where, style="dim"), soft_wrap=True)


def render(view: RunView, footer: str, ending: Ending | None = None) -> RenderableType:
    """Return the whole view; of a run that was stopped, its end is shown instead of the job's last phase."""
    status = view.job.status
    phase, message = str(status.phase) or "Pending", status.message
    if ending in (Ending.INTERRUPTED, Ending.DELETED):
        phase, message = str(ending), ""
    head = Text.assemble(
        (view.job.name, "bold"),
        "  ",
        (phase, _PHASE_STYLES.get(phase, "bold yellow")),
        f"  {_clock(view.seconds)}  ",
        (message, "dim"),
    )
    parts: list[RenderableType] = [head, _table(view.rows())]
    if footer:
        parts.append(Text(footer, style="dim"))
    return Group(*parts)


def _table(rows: list[PodRow]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("POD", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    table.add_column("RESTARTS", justify="right", no_wrap=True)
    table.add_column("PROGRESS", no_wrap=True)
    table.add_column("LAST LINE", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        table.add_row(
            str(row.replica),
            Text(row.state, style=_STATE_STYLES.get(row.state, "red" if "Error" in row.state else "yellow")),
            str(row.restarts) if row.restarts else "",
            str(row.progress or ""),
            _last_words(row),
        )
    return table


def _last_words(row: PodRow) -> Text:
    quiet = time.monotonic() - row.last_output
    if (
        row.replica.role is Role.WORKER
        and row.state == "Running"
        and row.last_output
        and quiet > QUIET_SECONDS
    ):
        return Text.assemble((f"(quiet for {_clock(quiet)}) ", "yellow"), (row.last_line, "dim"))
    return Text(row.last_line, style="dim")


def _clock(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    return (
        f"{whole // 60}m{whole % 60:02d}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    )
