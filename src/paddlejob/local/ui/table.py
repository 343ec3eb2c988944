"""The view of a run as a table: the job, and a line for each pod with its progress."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paddlejob.api.v1 import Phase, Role
from paddlejob.local.runner import Ending
from paddlejob.local.ui.view import PodRow, RunView

QUIET_SECONDS = 10.0
"""After this long without a word the view says so: a job that hangs looks like one that works."""
BAR_WIDTH = 10
CURVE_WIDTH = 10
LINES_AROUND = 5
"""Lines that are not pods: the job, the headings, the pods that do not fit, the footer, and the cursor."""

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


def render(view: RunView, footer: str = "", *, height: int, ending: Ending | None = None) -> RenderableType:
    """Return the whole view, of not more lines than a terminal has."""
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
    shown = _most_telling(rows, max(1, height - LINES_AROUND))
    parts: list[RenderableType] = [head, _table(view, shown)]
    if len(shown) < len(rows):
        states = Counter(row.state for row in rows)
        states.subtract(row.state for row in shown)
        parts.append(
            Text("and " + ", ".join(f"{number} {state}" for state, number in (+states).items()), style="dim")
        )
    if footer:
        parts.append(Text(footer, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _most_telling(rows: list[PodRow], most: int) -> list[PodRow]:
    """Return as many pods as fit: those in trouble first, then workers by rank; in the usual order."""
    by_interest = sorted(rows, key=lambda row: (row.state in _FINE, row.replica.role is not Role.WORKER))
    chosen = {row.replica for row in by_interest[:most]}
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
        "LAST LINE": lambda row: _last_words(row, now),
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
    """Return `2/10 120/392`, or what of it is known."""
    progress = row.progress
    if progress is None:
        return Text()
    pairs = ((progress.epoch, progress.epochs), (progress.step, progress.steps))
    return Text(" ".join(f"{at}/{of}" if of else str(at) for at, of in pairs if at is not None))


def _bar(row: PodRow) -> Text:
    fraction = row.progress.fraction if row.progress else None
    if fraction is None:
        return Text()
    full = int(fraction * BAR_WIDTH)
    return Text.assemble(
        ("━" * full, "green"), ("─" * (BAR_WIDTH - full), "dim"), f"{round(fraction * 100):4d}%"
    )


def _eta(row: PodRow, now: float) -> Text:
    seconds = row.tracker.eta_seconds(now) if row.state == "Running" else None
    return Text("" if seconds is None else clock(seconds))


def _loss(row: PodRow) -> Text:
    loss = row.progress.loss if row.progress else None
    if loss is None:
        return Text()
    return Text.assemble(f"{loss:.4g} ", (sparkline(row.tracker.losses, CURVE_WIDTH), "cyan"))


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve of one line; without at least two values there is none."""
    if len(values) < 2:
        return ""
    points = [values[index * (len(values) - 1) // (width - 1)] for index in range(width)]
    shown = points if len(values) >= width else values
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    return "".join(_BLOCKS[min(7, int((each - low) / span * 8))] for each in shown)


def _last_words(row: PodRow, now: float) -> Text:
    quiet = now - row.last_output
    line = _TIMESTAMP.sub("", row.last_line)
    is_quiet = row.state == "Running" and row.last_output > 0 and quiet > QUIET_SECONDS
    if is_quiet and row.replica.role is Role.WORKER:
        return Text.assemble((f"(quiet for {clock(quiet)}) ", "yellow"), (line, "dim"))
    return Text(line, style="dim")


def clock(seconds: float) -> str:
    """Return a length of time as a person says it."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    return (
        f"{whole // 60}m{whole % 60:02d}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    )
