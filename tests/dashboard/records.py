"""Records and snapshots of jobs for the pages that hold their own data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from paddlejob.api.v1 import Failure, Goodput, PaddleJob, Recovery, RecoveryKind
from paddlejob.client.logs.model import LogLine
from paddlejob.client.logs.training_metrics import Metrics
from paddlejob.history.record import AttemptRecord, Change, PhaseEntry, Point, RankEnd, Record, Summary
from paddlejob.sdk.snapshot import JobSnapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = [
    "<script>document.title = 'ran'</script>",
    "</script><img src=x onerror=\"document.title = 'ran'\">",
    "\"'><iframe srcdoc=\"<script>parent.document.title = 'ran'</script>\"></iframe>",
    "<!-- ]]> </style></title></noscript><script>",
    "\x1b]0;title\x07\x1b[31mred\x00\x08\r\n\u202egnp.exe",
    "&lt;script&gt; &#60;b&#62; \\u003cscript\\u003e",
    "<\n" * 50,
]


def record_with(text: str) -> Record:
    """Return a record that has the text in every field of unknown origin."""
    failure = Failure(pod=text, reason=text, message=text, time=NOW)
    summary = Summary(text, text, text, text, "Failed", text, text, NOW, NOW, NOW, 1, 1, failure)
    ranks = (RankEnd(text, text, 1, text, text, NOW, text, from_log=True), RankEnd(text))
    changes = (Change(text, text, text),)
    return Record(
        summary,
        attempts=(
            AttemptRecord(0, text, text, text, NOW, NOW, failure, ranks, more_ranks=3, changes=changes),
        ),
        more_attempts=2,
        timeline=(PhaseEntry(NOW, text, text, text),),
        curve=(Point(0, 1, 1, "2"), Point(10, 1, 2, "1"), Point(20, 1, 3, "nan"), Point(30, 1, 4, text)),
        environment={text: text},
    )


def failed_record() -> Record:
    """Return the record of a job with two attempts and a loss that was once not a number."""
    failure = Failure(
        pod="demo-worker-1", attempt=1, message="worker-1 exited with code 1: ValueError: no data", time=NOW
    )
    lines = "Traceback\nValueError: no data"
    ranks = (
        RankEnd("worker-1", "failed", 1, "Error", "node-7", NOW, lines, from_log=True),
        RankEnd("worker-0", "running", 0, "", "node-1", NOW, "stack of worker-0"),
    )
    spent = Goodput(training_seconds=60)
    message = "attempt 1 failed: worker-1 exited with code 1: ValueError: no data"
    end = NOW + timedelta(minutes=41)
    names = ("resnet", "team", "uid-1", "Collective", "Failed", "PodFailed", message)
    summary = Summary(*names, NOW, NOW, end, 1, 1, failure, spent)
    start = int(NOW.timestamp())
    losses = [str(2.2 / (1 + at / 10)) for at in range(60)]
    losses[20] = "nan"
    points = (Point(start + 10 * at, 1, at, loss, at // 40) for at, loss in enumerate(losses))
    return Record(
        summary,
        attempts=(
            AttemptRecord(0, "Restarting", "Evicted", "node-3 is gone", NOW, NOW + timedelta(minutes=7)),
            AttemptRecord(
                *(1, "Failed", "PodFailed", failure.message, NOW, end, failure, ranks),
                more_ranks=3,
                changes=(Change("worker image", "paddle:1", "paddle:2"),),
                recovery=Recovery(
                    1, RecoveryKind.IN_PLACE, detect_seconds=0.02, import_seconds=1.2, total_seconds=1.8
                ),
            ),
        ),
        timeline=(PhaseEntry(NOW, "Running"), PhaseEntry(end, "Failed", "PodFailed", failure.message)),
        curve=tuple(points),
        environment={"worker env BATCH": "48"},
    )


def rank(name: str, state: str = "Running", restarts: int = 0) -> dict[str, object]:
    """Return a row of the table of ranks."""
    row = {"rank": name, "state": state, "restarts": restarts, "attempt": 0, "node": "node-1"}
    return {**row, "created": NOW, "started": NOW, "ended": None, "exitCode": None}


def snapshot(*, lines=(), name="demo", where="laptop", ranks=(), trouble="", **status) -> JobSnapshot:
    """Return a job as the SDK sees it 90 seconds after its start; the first worker printed the lines."""
    metadata = {"name": name, "creationTimestamp": NOW.isoformat()}
    body = {"metadata": metadata, "spec": {}, "status": {"startTime": NOW.isoformat(), **status}}
    metrics = Metrics()
    for second, line in enumerate(lines):
        metrics.feed(LogLine("worker-0", 0, line, NOW + timedelta(seconds=second)))
    return JobSnapshot(
        name=name,
        namespace="default",
        where=where,
        state=msgspec.convert(body, PaddleJob, strict=False),
        metrics=metrics,
        ranks=tuple(ranks),
        trouble=trouble,
        time=NOW.timestamp() + 90,
    )
