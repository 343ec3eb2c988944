"""How a program comes to its first step, as its recorder reports it."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.recorder.progress import Progress
from paddlejob.recorder.startup import Startup
from paddlejob.training import reports


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


CASES = {
    "an ordinary program": (
        [(1.2, "note_import"), (0.5, "note_join"), (0.3, "note_step"), (5.0, None)],
        {"ageSeconds": 7.0, "importSeconds": 1.2, "joinSeconds": 0.5, "loadSeconds": 0.3},
    ),
    "a program that meets nobody": (
        [(1.2, "note_import"), (0.8, "note_step")],
        {"ageSeconds": 2.0, "importSeconds": 1.2, "loadSeconds": 0.8},
    ),
    "the ranks meet twice": (
        [(1.0, "note_import"), (0.5, "note_join"), (0.5, "note_join"), (1.0, "note_step")],
        {"ageSeconds": 3.0, "importSeconds": 1.0, "joinSeconds": 1.0, "loadSeconds": 1.0},
    ),
    "only the first step counts": (
        [(1.0, "note_import"), (1.0, "note_step"), (1.0, "note_join"), (1.0, "note_step")],
        {"ageSeconds": 4.0, "importSeconds": 1.0, "loadSeconds": 1.0},
    ),
    "a program that reports steps without Paddle": (
        [(2.0, "note_step")],
        {"ageSeconds": 2.0, "loadSeconds": 2.0},
    ),
}


@pytest.mark.parametrize(("acts", "found"), CASES.values(), ids=CASES)
def test_the_parts_up_to_the_first_step(acts, found):
    clock = Clock()
    startup = Startup(clock)
    for seconds, act in acts:
        clock.now += seconds
        if act:
            assert startup.report() == {} or act != "note_import"
            getattr(startup, act)()
    reported = startup.report()["startup"]
    assert reported == pytest.approx(found, abs=0.0011)
    read = reports.read_report(msgspec.json.encode({"startup": reported}), pods=1).startup
    assert read.seconds <= read.age_seconds


def test_nothing_is_reported_before_the_first_step():
    progress = Progress()
    progress.enter()
    progress.leave()
    assert progress.startup.report() == {}
    progress.enter()
    progress.leave(steps=1)
    assert "loadSeconds" in progress.startup.report()["startup"]


@pytest.mark.parametrize("value", [-1, 1e10, "soon"])
def test_a_report_with_an_impossible_time_is_refused(value):
    body = msgspec.json.encode({"startup": {"ageSeconds": value}})
    with pytest.raises(msgspec.ValidationError):
        reports.read_report(body, pods=1)
