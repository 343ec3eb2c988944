"""The live view for terminals: a table of the pods, and the output of the selected pods above it."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase, Role
from paddlejob.core.actions import Event, EventType
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import LogLines, short_name, widest_label
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord
from paddlejob.local.ui import output
from paddlejob.local.ui.output import Output, Stream
from paddlejob.local.ui.view import PodRow, RunView
from paddlejob.text import Prefixes
from paddlejob.training.steps import percentage

QUIET_SECONDS = 10.0
"""After this long without output a worker is marked as quiet: a hanging job looks like a working one."""
BAR_WIDTH = 10
CURVE_WIDTH = 10
LINES_AROUND = 5
"""Lines other than pods: the job, the headings, the count of omitted pods, the footer and the cursor."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_TIMESTAMP = re.compile(r"^\W*\d{4}[-/]\d\d[-/]\d\d[ T][\d:.,]+\W*(?:\w+\W+(?=\S))?")
_PHASE_STYLES: dict[str, str] = {
    Phase.RUNNING: "bold green",
    Phase.COMPLETED: "bold green",
    Phase.FAILED: "bold red",
    Phase.RESTARTING: "bold yellow",
    Phase.SUSPENDED: "bold magenta",
}
_STATE_STYLES = {"Running": "green", "Completed": "green", "Terminating": "yellow"}
_FINE = ("Running", "Completed")
DRAW_SECONDS = 0.5
MAX_LINES = 200
"""Lines of one pod printed at a time; the log file has the rest of a flood."""


def render(view: RunView, footer: str = "", *, height: int, ending: Ending | None = None) -> RenderableType:
    """Return the whole view, at most `height` lines."""
    phase = view.phase(ending)
    head = Text.assemble(
        (view.job.name, "bold"),
        "  ",
        (phase, _PHASE_STYLES.get(phase, "bold yellow")),
        f"  {clock(view.seconds)}  ",
        (view.message if phase == view.phase() else "", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    rows = view.rows()
    shown = _select_rows(rows, max(1, height - LINES_AROUND))
    parts: list[RenderableType] = [head, _table(view, shown)]
    if len(shown) < len(rows):
        omitted = Counter(row.state for row in rows) - Counter(row.state for row in shown)
        counts = ", ".join(f"{number} {state}" for state, number in omitted.items())
        parts.append(Text(f"and {counts}", style="dim"))
    if footer:
        parts.append(Text(footer, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _select_rows(rows: list[PodRow], most: int) -> list[PodRow]:
    """Return the rows that fit, in the usual order; pods with problems take precedence, then workers."""
    by_priority = sorted(rows, key=lambda row: (row.state in _FINE, row.replica.role is not Role.WORKER))
    chosen = {row.replica for row in by_priority[:most]}
    return [row for row in rows if row.replica in chosen]


def _table(view: RunView, rows: list[PodRow]) -> Table:
    now = time.monotonic()
    columns: dict[str, Callable[[PodRow], Text]] = {
        "POD": lambda row: Text(str(row.replica)),
        "STATE": _state,
        "RESTARTS": lambda row: Text(str(view.restarts(row) or ""), justify="right"),
        "STEP": _step,
        "DONE": _bar,
        "ETA": lambda row: _eta(row, now),
        "LOSS": _loss,
        "LAST LINE": lambda row: _last_line(row, now),
    }
    table = Table(box=None, pad_edge=False, expand=True)
    cells = {heading: [make(row) for row in rows] for heading, make in columns.items()}
    kept = {heading: column for heading, column in cells.items() if any(column) or heading == "LAST LINE"}
    for heading, column in kept.items():
        ratio = 1 if heading == "LAST LINE" else None
        table.add_column(heading if any(column) else "", no_wrap=True, overflow="ellipsis", ratio=ratio)
    for row in zip(*kept.values(), strict=True):
        table.add_row(*row)
    return table


def _state(row: PodRow) -> Text:
    return Text(row.state, style=_STATE_STYLES.get(row.state, "red" if "Error" in row.state else "yellow"))


def _step(row: PodRow) -> Text:
    """Return epoch and step, such as `2/10 120/392`."""
    progress = row.progress
    if progress is None:
        return Text()
    pairs = ((progress.epoch, progress.epochs), (progress.step, progress.steps))
    return Text(" ".join(f"{at}/{of}" if of else str(at) for at, of in pairs if at is not None))


def _bar(row: PodRow) -> Text:
    fraction = row.progress.fraction if row.progress else None
    if fraction is None:
        return Text()
    percent = 100 if row.state == "Completed" else percentage(fraction)
    full = percent * BAR_WIDTH // 100
    return Text.assemble(("━" * full, "green"), ("─" * (BAR_WIDTH - full), "dim"), f"{percent:4d}%")


def _eta(row: PodRow, now: float) -> Text:
    is_training = row.state == "Running" and not _is_quiet(row, now)
    seconds = row.tracker.eta_seconds(now) if is_training else None
    return Text("" if seconds is None else clock(seconds))


def _loss(row: PodRow) -> Text:
    loss = row.progress.loss if row.progress else None
    if loss is None:
        return Text()
    return Text.assemble(f"{loss:.4g} ", (sparkline(row.tracker.losses, CURVE_WIDTH), "cyan"))


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve in one line, empty for fewer than two values."""
    if len(values) < 2:
        return ""
    points = [values[index * (len(values) - 1) // (width - 1)] for index in range(width)]
    shown = points if len(values) >= width else values
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    return "".join(_BLOCKS[min(7, int((each - low) / span * 8))] for each in shown)


def _last_line(row: PodRow, now: float) -> Text:
    line = _TIMESTAMP.sub("", row.last_line)
    if _is_quiet(row, now):
        return Text.assemble((f"(quiet for {clock(now - row.last_output)}) ", "yellow"), (line, "dim"))
    return Text(line, style="dim")


def _is_quiet(row: PodRow, now: float) -> bool:
    has_stopped = row.last_output > 0 and now - row.last_output > QUIET_SECONDS
    return has_stopped and row.state == "Running" and row.replica.role is Role.WORKER


def clock(seconds: float) -> str:
    """Return a duration such as 42s, 3m05s or 2h10m."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


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
        self._footer = output.interruption(times)
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
        for line in output.details(self.view, ending, outcome, selection=self.logs):
            self._console.print(Text(line, style="dim"), soft_wrap=True)
        style = "bold green" if ending is Ending.COMPLETED else "bold red"
        self._console.print(Text(output.verdict(self.view, ending, outcome), style=style), soft_wrap=True)
        run = self.view.run
        where = f"logs: paddlejob logs {run.name}{run.run_dir_flag}   directory: {run.path}"
        self._console.print(Text(where, style="dim"), soft_wrap=True)
