from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.actions import Event, EventType
from paddlejob.core.messages import PhaseReason
from paddlejob.text import MESSAGE_LENGTH, duration, one_line
from simkube.build import job, snapshot

DENIAL = (
    'admission webhook "validate.kyverno.svc-fail" denied the request: \n\n'
    "resource Pod/default/demo-worker-0 was blocked\n\n"
    "require-labels:\n  check-team: label team is required\n"
)
FLAT = (
    'admission webhook "validate.kyverno.svc-fail" denied the request: resource Pod/default/demo-worker-0 '
    "was blocked require-labels: check-team: label team is required"
)

LINES = {
    "one line stays": ("worker-0 failed", "worker-0 failed"),
    "many become one": (DENIAL, FLAT),
    "other line breaks too": ("a\r\nb\x0bc\u2028d\te", "a b c d e"),
    "blanks alone are nothing": (" \n ", ""),
    "a long one keeps its beginning": ("x" * 2000, "x" * (MESSAGE_LENGTH - 3) + "..."),
    "as long as may be": ("x" * MESSAGE_LENGTH, "x" * MESSAGE_LENGTH),
}


@pytest.mark.parametrize(("text", "line"), LINES.values(), ids=LINES.keys())
def test_one_line(text, line):
    assert one_line(text) == line


def test_room_can_be_left_for_more():
    assert one_line("x" * 20, 10) == "x" * 7 + "..."


TIMES = {
    -5: "0s",
    0: "0s",
    119.9: "119s",
    120: "2m",
    200: "3m20s",
    600: "10m",
    3600: "60m",
    10_799: "179m",
    10_800: "3h",
    11_100: "3h5m",
    28_800: "8h",
    172_799: "47h",
    172_800: "2d",
    200_000: "2d7h",
    700_000: "8d",
    1e300: "11574d",
}


@pytest.mark.parametrize(("seconds", "text"), TIMES.items())
def test_times_are_written_as_kubectl_writes_ages(seconds, text):
    assert duration(seconds) == text


def test_a_standing_and_an_event_are_made_of_one_line():
    assert PhaseReason(Phase.PENDING, "CreateFailed", DENIAL).message == FLAT
    assert Event(EventType.WARNING, "CreateFailed", DENIAL).message == FLAT


def test_an_answer_of_many_lines_is_one_in_status_and_event():
    plan = snapshot(job().worker(1)).refused("create", "Pod", "demo-worker-0", DENIAL).plan()
    assert FLAT in plan.status.message
    assert [event.message for event in plan.events] == [plan.status.message]
