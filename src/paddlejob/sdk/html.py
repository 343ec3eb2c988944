"""A job as HTML for a notebook: complete in itself, without a script, in the colours of its surroundings."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.client.job import running_seconds
from paddlejob.core.messages import duration
from paddlejob.progress import Progress
from paddlejob.sdk.snapshot import JobSnapshot, RankState

WIDTH, HEIGHT = 360, 90
MOST_RANKS = 16
MOST_STATES = 5
LONGEST_TEXT = 300
_COLOURS = {
    Phase.RUNNING: "#1a73e8",
    Phase.COMPLETED: "#2e7d32",
    Phase.FAILED: "#c62828",
    Phase.RESTARTING: "#b26a00",
    Phase.SCALING: "#b26a00",
}
_GREY = "#6b7280"
_BLUE = "#1a73e8"
_QUIET_STATES = ("Running", "Completed")
_INHERIT = "font:inherit;color:inherit;background:none;border:none"


def render(snapshot: JobSnapshot) -> str:
    """Return the job as a block of HTML."""
    parts = [
        _head(snapshot),
        _message(snapshot),
        _progress(snapshot),
        _curve(snapshot.metrics.tracker.losses),
        _ranks(snapshot.ranks),
    ]
    return (
        '<div style="font:13px/1.5 system-ui,sans-serif;max-width:44em;padding:.6em .8em;'
        'border:1px solid rgba(128,128,128,.4);border-radius:6px">' + "".join(parts) + "</div>"
    )


def _text(value: object) -> str:
    """Return a text of unknown origin so that it can stand anywhere in HTML."""
    text = str(value)
    shown = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    return html.escape(shown, quote=True)


def _head(snapshot: JobSnapshot) -> str:
    phase = snapshot.state.status.phase or Phase.PENDING
    badge = f"background:{_COLOURS.get(phase, _GREY)};color:#fff;border-radius:9px;padding:1px 9px"
    return (
        f'<div><b>{_text(snapshot.name)}</b> <span style="opacity:.7">on {_text(snapshot.where)}</span> '
        f'<span style="{badge}">{_text(phase)}</span> '
        f'<span style="opacity:.7">{_text(_duration(snapshot.state, snapshot.time))}</span></div>'
    )


def _message(snapshot: JobSnapshot) -> str:
    lines = [snapshot.state.status.message, snapshot.trouble]
    return "".join(f'<div style="opacity:.85">{_text(line)}</div>' for line in lines if line)


def _progress(snapshot: JobSnapshot) -> str:
    progress = snapshot.progress
    if progress is None:
        return ""
    parts = [str(progress)]
    if progress.throughput:
        parts.append(f"{progress.throughput:.4g} {progress.throughput_unit}".rstrip())
    eta = None if snapshot.state.status.phase.is_terminal else snapshot.metrics.eta_seconds(snapshot.time)
    if eta:
        parts.append(f"{duration(eta)} left")
    return _bar(_fraction(snapshot, progress)) + f"<div>{_text(' · '.join(filter(None, parts)))}</div>"


def _fraction(snapshot: JobSnapshot, progress: Progress) -> float | None:
    if snapshot.state.status.phase is Phase.COMPLETED:
        return 1.0
    return progress.fraction


def _bar(fraction: float | None) -> str:
    if fraction is None:
        return ""
    percent = round(100 * fraction)
    return (
        f'<div role="progressbar" aria-valuenow="{percent}" aria-valuemin="0" aria-valuemax="100" '
        'style="display:flex;align-items:center;gap:.6em;margin-top:.4em">'
        '<div style="flex:1;height:8px;border-radius:4px;background:rgba(128,128,128,.25)">'
        f'<div style="width:{percent}%;height:8px;border-radius:4px;background:{_BLUE}"></div></div>'
        f"<span>{percent}%</span></div>"
    )


def _curve(losses: Sequence[float]) -> str:
    """Return the losses as a line, with its highest and lowest value beside it."""
    finite = [each for each in losses if math.isfinite(each)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    right = WIDTH - 60
    points = " ".join(
        f"{1 + index * (right - 2) / (len(finite) - 1):.1f},{6 + (HEIGHT - 12) * (high - each) / span:.1f}"
        for index, each in enumerate(finite)
    )
    label = f"loss from {finite[0]:.4g} to {finite[-1]:.4g}"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" style="margin-top:.4em;max-width:100%"><title>{label}</title>'
        f'<line x1="0" y1="{HEIGHT - 5}" x2="{right}" y2="{HEIGHT - 5}" stroke="currentColor" '
        'stroke-opacity=".3"/>'
        f'<polyline points="{points}" fill="none" stroke="{_BLUE}" stroke-width="2" '
        'stroke-linejoin="round"/>'
        f'<text x="{right + 6}" y="12" font-size="11" fill="currentColor" opacity=".75">{high:.4g}</text>'
        f'<text x="{right + 6}" y="{HEIGHT - 4}" font-size="11" fill="currentColor" opacity=".75">{low:.4g}'
        "</text></svg>"
    )


def _ranks(ranks: Sequence[RankState]) -> str:
    if not ranks:
        return ""
    # Where there are many, those that need attention are shown.
    chosen = sorted(ranks, key=lambda each: each.state in _QUIET_STATES) if len(ranks) > MOST_RANKS else ranks
    rows = "".join(_row(_cells(each), "td") for each in chosen[:MOST_RANKS])
    return (
        f'<table style="{_INHERIT};border-collapse:collapse;margin-top:.4em">'
        f"<thead>{_row(('rank', 'state', 'restarts'), 'th')}</thead><tbody>{rows}</tbody></table>"
        f"{_more(chosen[MOST_RANKS:])}"
    )


def _more(ranks: Sequence[RankState]) -> str:
    if not ranks:
        return ""
    counts = Counter(each.state for each in ranks).most_common(MOST_STATES)
    states = ", ".join(f"{count} {state}" for state, count in counts)
    return f'<div style="opacity:.75">and {len(ranks)} more: {_text(states)}</div>'


def _cells(rank: RankState) -> tuple[str, ...]:
    return rank.rank, rank.state, str(rank.restarts or "")


def _row(cells: Iterable[str], tag: str) -> str:
    # Front ends have opinions on tables, and browsers let some tables inherit nothing.
    style = f"{_INHERIT};font-weight:{600 if tag == 'th' else 400};text-align:left;padding:0 1.2em 0 0"
    written = "".join(f'<{tag} style="{style}">{_text(each)}</{tag}>' for each in cells)
    return f"<tr>{written}</tr>"


def _duration(state: PaddleJob, now: float) -> str:
    seconds = running_seconds(state, datetime.fromtimestamp(now, UTC))
    return "" if seconds is None else duration(seconds)
