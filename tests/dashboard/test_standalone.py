"""The page of one job as a file: self-contained, and no text of a job becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from paddlejob.dashboard.rows import STATIC
from paddlejob.dashboard.standalone import record_page
from paddlejob.history.record import Point, Record, Summary
from tests.dashboard.records import HOSTILE, failed_record, record_with

MAX_LENGTH = 300_000


class Parsed(HTMLParser):
    """The tags of a page, their attributes, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self._open = tag

    def handle_data(self, data):
        self.texts.setdefault(self._open, []).append(data)

    def handle_endtag(self, tag):
        self._open = ""


def test_the_data_in_the_page_is_the_record():
    record = failed_record()
    data, _ = Parsed(record_page(record)).texts["script"]
    shown = json.loads(data)["record"]
    assert shown["summary"]["message"] == record.summary.message
    assert [each["attempt"] for each in shown["curve"]] == [each.attempt for each in record.curve]
    assert (shown["curve"][20]["loss"], shown["curve"][20]["oddLoss"]) == (None, "nan")
    assert shown["goodput"] == "training 60s (100% training)"
    ledger = {"attempt": 1, "text": "InPlace, 1.80s to the next new step: detect 0.02s, import 1.20s"}
    assert [each["recovery"] for each in shown["attempts"]] == [None, ledger]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_job_becomes_markup(text):
    page = record_page(record_with(text))
    parsed, plain = Parsed(page), Parsed(record_page(record_with("plain")))
    assert parsed.tags == plain.tags
    assert parsed.attributes == plain.attributes
    assert not {"\x1b", "\x00", "\u202e", "\x08"} & set(page)
    data, _ = parsed.texts["script"]
    assert "<" not in data


def test_the_page_loads_nothing_and_allows_one_script():
    page = record_page(failed_record())
    parsed = Parsed(page)
    assert not {"src", "href", "srcset", "action", "data"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"url\(|@import", page)
    _, script = parsed.texts["script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'sha256-" in page
    assert len(page) < MAX_LENGTH


def test_every_module_is_in_the_script_and_none_is_imported():
    _, script = Parsed(record_page(failed_record())).texts["script"]
    modules = set(re.findall(r'^modules\["([^"]+)"\] =', script, re.MULTILINE))
    assert modules == set(re.findall(r'= modules\["([^"]+)"\]', script)) | {"standalone.js"}
    assert all((STATIC / name).is_file() for name in modules)
    assert not re.search(r"^\s*(?:import|export)\b", script, re.MULTILINE)


def test_a_reader_without_javascript_gets_the_failure_and_the_last_lines():
    (text,) = Parsed(record_page(failed_record())).texts["pre"]
    assert text.startswith("resnet: Failed\n\nattempt 1 failed: worker-1 exited with code 1")
    assert text.endswith("\n\nTraceback\nValueError: no data")


@pytest.mark.parametrize(
    "points", [(), (Point(1, 0, 1, "1"),), (Point(10**9, 0, 1, "1"), Point(10**9 + 1, 0, 2, "2"))]
)
def test_a_record_with_few_points_or_none_has_a_page(points):
    assert record_page(Record(Summary("demo"), curve=points)).endswith("</html>\n")
