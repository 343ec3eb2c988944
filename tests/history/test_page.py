"""The page of a record: self-contained, and harmless whatever a log says."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from paddlejob.api.v1 import Failure, Goodput
from paddlejob.history.page import render
from paddlejob.history.record import AttemptRecord, Change, PhaseEntry, Point, RankEnd, Record, Summary

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "h3",
        "span",
        "div",
        "p",
        "table",
        "tr",
        "td",
    ),
    *("th", "details", "summary", "pre", "svg", "polyline", "text"),
}
EVIL = [
    "<script>alert(1)</script>",
    "</pre></details><img src=x onerror=alert(1)>",
    "\"'><iframe src=//evil.example></iframe>",
    "<!-- ]]> </style></title>",
    "\x1b]0;title\x07\x1b[31mred\x00\x08\r\n\u202egnp.exe",
    "&lt;script&gt; &#60;b&#62;",
    "<\n" * 50,
]


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


def record(text: str) -> Record:
    """A record that has the text wherever a text of unknown origin may come from."""
    failure = Failure(pod=text, reason=text, message=text, time=NOW)
    summary = Summary(text, text, text, text, "Failed", text, text, NOW, NOW, NOW, 1, 1, failure)
    ranks = (RankEnd(text, text, 1, text, text, NOW, text, from_log=True), RankEnd(text))
    return Record(
        summary,
        attempts=(
            AttemptRecord(
                0,
                text,
                text,
                text,
                NOW,
                NOW,
                failure,
                ranks,
                more_ranks=3,
                changes=(Change(text, text, text),),
            ),
        ),
        more_attempts=2,
        timeline=(PhaseEntry(NOW, text, text, text),),
        curve=(Point(0, 1, 1, "2"), Point(10, 1, 2, "1"), Point(20, 1, 3, "nan"), Point(30, 1, 4, text)),
        environment={text: text},
    )


@pytest.mark.parametrize("text", EVIL)
def test_no_text_of_a_job_becomes_markup(text):
    page = render(record(text))
    seen = Seen()
    seen.feed(page)
    plain = Seen()
    plain.feed(render(record("plain")))
    assert seen.tags == plain.tags
    assert [name for name, _ in seen.attributes] == [name for name, _ in plain.attributes]
    assert set(seen.tags) <= TAGS
    assert not {"\x1b", "\x00", "\u202e", "\x08"} & set(page)


def test_nothing_is_loaded_and_no_script_is_needed():
    page = render(record("plain"))
    seen = Seen()
    seen.feed(page)
    assert not {"src", "href", "srcset", "action", "data"} & {name for name, _ in seen.attributes}
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_the_page_tells_who_failed_first_and_the_last_lines():
    failure = Failure(
        pod="demo-worker-1", message="worker-1 exited with code 1: ValueError: no data", time=NOW
    )
    rank = RankEnd(
        "worker-1", "failed", 1, node="node-7", text="Traceback\nValueError: no data", from_log=True
    )
    spent = Goodput(training_seconds=60)
    summary = Summary("demo", result="Failed", message=failure.message, failure=failure, goodput=spent)
    page = render(Record(summary, attempts=(AttemptRecord(0, "Failed", failure=failure, ranks=(rank,)),)))
    for expected in (
        "First to fail: demo-worker-1 at 2026-01-01 00:00:00 UTC",
        "Traceback\nValueError: no data",
        "worker-1 failed exited with code 1 on node-7",
        "end of its log",
        "training 60s (100% training)",
    ):
        assert expected in page


def test_a_loss_that_is_not_finite_breaks_the_line_and_is_marked():
    points = tuple(Point(at * 10, 0, at, loss) for at, loss in enumerate(("3", "2", "nan", "2", "1")))
    page = render(Record(Summary("demo"), curve=points))
    assert page.count("<polyline") == 2
    assert ">nan</text>" in page
    assert "loss from 3 to 1, step 4" in page


@pytest.mark.parametrize(
    "points", [(), (Point(1, 0, 1, "1"),), (Point(10**18, 0, 1, "1"), Point(10**18 + 1, 0, 2, "2"))]
)
def test_a_curve_of_few_or_odd_points_does_no_harm(points):
    assert render(Record(Summary("demo"), curve=points)).endswith("</html>\n")
