"""A record as one HTML page: complete in itself, without a script, and harmless whatever a log says."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from paddlejob.core.messages import duration
from paddlejob.core.pod_set import PodState
from paddlejob.core.policy.goodput import in_words
from paddlejob.history.record import AttemptRecord, Change, PhaseEntry, Point, RankEnd, Record, Summary

WIDTH, HEIGHT, MARGIN = 860, 200, 64
OPEN_RANKS = 1
"""How many ranks of the last attempt are unfolded."""
_COLOURS = {"Completed": "#2e7d32", "Failed": "#c62828", "Deleted": "#6b7280"}
_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em}
h1{font-size:1.5em;margin:0}h2{font-size:1.15em;margin:2em 0 .4em}h3{font-size:1em;margin:1.4em 0 .3em}
.badge{color:#fff;border-radius:1em;padding:.1em .8em;font-size:.65em;vertical-align:middle}
.why{font-size:1.1em;margin:.6em 0;padding:.6em .9em;border-left:4px solid #c62828;
background:rgba(198,40,40,.08);overflow-wrap:anywhere}
table{border-collapse:collapse}td,th{text-align:left;padding:.15em 1.2em .15em 0;vertical-align:top;
overflow-wrap:anywhere}th{font-weight:600}td:first-child{white-space:nowrap}
pre{background:rgba(128,128,128,.12);padding:.7em;overflow:auto;max-height:32em;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:12.5px}
summary{cursor:pointer}.quiet{opacity:.7}svg{max-width:100%;height:auto}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(record: Record) -> str:
    """Return the page."""
    summary = record.summary
    body = "".join(
        (
            _head(summary),
            _why(summary),
            _facts(summary),
            _curve(record.curve),
            _attempts(record),
            _timeline(record.timeline),
            _environment(record.environment),
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{_text(summary.name)}: {_text(summary.result)}</title><style>{_STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _text(value: object) -> str:
    """Return a text of unknown origin so that it can stand anywhere in HTML, on one line."""
    return html.escape("".join(each for each in str(value) if each.isprintable()), quote=True)


def _lines(text: str) -> str:
    """Return the end of a log; what a terminal would obey, or what turns text around, is left out."""
    return "\n".join(_text(line.expandtabs(8)) for line in text.splitlines())


def _head(summary: Summary) -> str:
    colour = _COLOURS.get(summary.result, "#1a73e8")
    where = f" in namespace {summary.namespace}" if summary.namespace else ""
    return (
        f'<h1>{_text(summary.name)} <span class="badge" style="background:{colour}">'
        f'{_text(summary.result)}</span></h1><div class="quiet">PaddleJob{_text(where)}</div>'
    )


def _why(summary: Summary) -> str:
    return f'<p class="why">{_text(summary.message)}</p>' if summary.result == "Failed" else ""


def _facts(summary: Summary) -> str:
    failure = summary.failure
    first = f"attempt {failure.attempt}: {failure.message}" if failure else ""
    took = _span(summary.started or summary.created, summary.ended)
    rows = (
        ("Reason", summary.reason),
        ("Mode", summary.mode),
        ("Created", _time(summary.created)),
        ("Started", _time(summary.started)),
        ("Ended", _time(summary.ended)),
        ("Took", took),
        ("Time", in_words(summary.goodput) if summary.goodput else ""),
        ("Attempts", str(summary.attempt + 1)),
        ("Counted restarts", str(summary.restarts)),
        ("First failure", first),
        ("UID", summary.uid),
    )
    return _table(row for row in rows if row[1])


def _attempts(record: Record) -> str:
    if not record.attempts:
        return ""
    left_out = record.more_attempts
    note = f'<p class="quiet">{left_out} attempts in between are left out.</p>' if left_out else ""
    newest = len(record.attempts) - 1
    parts = (_attempt(each, is_last=at == newest) for at, each in enumerate(record.attempts))
    return f"<h2>Attempts</h2>{note}" + "".join(parts)


def _attempt(attempt: AttemptRecord, *, is_last: bool) -> str:
    took = _span(attempt.began, attempt.ended)
    head = f"Attempt {attempt.attempt}: {attempt.result}" + (f" after {took}" if took else "")
    parts = [f"<h3>{_text(head)}</h3>", f"<div>{_text(attempt.message)}</div>"]
    if failure := attempt.failure:
        when = f" at {_time(failure.time)}" if failure.time else ""
        parts.append(f'<div class="quiet">First to fail: {_text(failure.pod)}{_text(when)}</div>')
    parts += [_changes(attempt.changes)]
    parts += [_rank(each, is_open=is_last and at < OPEN_RANKS) for at, each in enumerate(attempt.ranks)]
    if attempt.more_ranks:
        parts.append(f'<div class="quiet">and {attempt.more_ranks} more ranks</div>')
    return "".join(parts)


def _changes(changes: Sequence[Change]) -> str:
    if not changes:
        return ""
    rows = ((each.name, each.before or "-", each.after or "-") for each in changes)
    return "<div>Changed since the attempt before:</div>" + _table(rows, ("", "before", "after"))


def _rank(rank: RankEnd, *, is_open: bool) -> str:
    has_exit_code = rank.state != PodState.RUNNING and (rank.exit_code or not rank.reason)
    how = f"exited with code {rank.exit_code}" if has_exit_code else ""
    reason = f"({rank.reason})" if rank.reason and rank.reason not in ("Error", "Completed") else ""
    node = f"on {rank.node}" if rank.node else ""
    head = " ".join(filter(None, (rank.rank, rank.state, how, reason, node)))
    source = "end of its log" if rank.from_log else "its termination message"
    text = f'<div class="quiet">{source}</div><pre>{_lines(rank.text)}</pre>' if rank.text else ""
    return f"<details{' open' if is_open else ''}><summary>{_text(head)}</summary>{text}</details>"


def _timeline(entries: Sequence[PhaseEntry]) -> str:
    if not entries:
        return ""
    rows = ((_time(each.time), each.phase, each.reason, each.message) for each in entries)
    return "<h2>Timeline</h2>" + _table(rows, ("time", "phase", "reason", "message"))


def _environment(environment: dict[str, str]) -> str:
    if not environment:
        return ""
    return f"<h2>Environment</h2><details><summary>{len(environment)} values</summary>" + (
        _table(environment.items()) + "</details>"
    )


def _table(rows: Iterable[Iterable[str]], headings: Sequence[str] = ()) -> str:
    head = f"<tr>{''.join(f'<th>{_text(each)}</th>' for each in headings)}</tr>" if headings else ""
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


def _curve(points: Sequence[Point]) -> str:
    """Return the losses over time, a gap where an attempt ends, and a mark where the loss is not finite."""
    known = [(point, loss) for point in points if (loss := _number(point.loss)) is not None]
    finite = [loss for _, loss in known if math.isfinite(loss)]
    if len(finite) < 2:
        return ""
    begin, end = known[0][0].time, known[-1][0].time
    low, high = min(finite), max(finite)
    across, up = WIDTH - MARGIN - 4, HEIGHT - 30

    def place(point: Point, loss: float) -> tuple[float, float]:
        x = MARGIN + across * (point.time - begin) / max(1, end - begin)
        return x, 8 + up * (high - loss) / ((high - low) or 1.0)

    drawn = []
    for run in _runs(known):
        places = " ".join("{:.1f},{:.1f}".format(*place(*each)) for each in run)
        drawn.append(f'<polyline points="{places}" fill="none" stroke="#1a73e8" stroke-width="2"/>')
    for point, loss in known:
        if not math.isfinite(loss):
            x, _ = place(point, high)
            drawn.append(f'<text x="{x:.1f}" y="18" fill="#c62828" font-size="12">{_text(point.loss)}</text>')
    last = points[-1]
    where = f"epoch {last.epoch} step {last.step}" if last.epoch else f"step {last.step}"
    label = _text(f"loss from {finite[0]:.4g} to {finite[-1]:.4g}, {where}")
    axis = (
        f'<text x="0" y="16" font-size="12" fill="currentColor">{high:.4g}</text>'
        f'<text x="0" y="{8 + up}" font-size="12" fill="currentColor">{low:.4g}</text>'
        f'<text x="{MARGIN}" y="{HEIGHT - 4}" font-size="12" fill="currentColor">{_clock(begin)}</text>'
        f'<text x="{WIDTH - 4}" y="{HEIGHT - 4}" font-size="12" text-anchor="end" fill="currentColor">'
        f"{_clock(end)}</text>"
    )
    return (
        f'<h2>Loss</h2><svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}">'
        f'{axis}{"".join(drawn)}</svg><div class="quiet">{label}</div>'
    )


def _runs(known: Sequence[tuple[Point, float]]) -> Iterator[list[tuple[Point, float]]]:
    """Yield the stretches that are drawn as one line: finite losses of one attempt."""
    run: list[tuple[Point, float]] = []
    for point, loss in known:
        if run and (run[-1][0].attempt != point.attempt or not math.isfinite(loss)):
            yield run
            run = []
        if math.isfinite(loss):
            run.append((point, loss))
    if run:
        yield run


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _time(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if moment else ""


def _clock(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return ""


def _span(begin: datetime | None, end: datetime | None) -> str:
    return duration((end - begin).total_seconds()) if begin and end else ""
