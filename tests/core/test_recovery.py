"""The ledger of a recovery, from the moments that were measured."""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec
import pytest

from paddlejob.api.training import RECOVERY_PARTS
from paddlejob.api.v1 import Phase, Recovery, RecoveryKind
from paddlejob.core.actions import Milestone
from paddlejob.core.attempts.recovery import FirstSteps, Moments, add_steps, fill_in
from paddlejob.training.findings import Hang
from paddlejob.training.recovery import in_words
from paddlejob.training.reports import Startup
from simkube.build import SnapshotBuilder, job
from tests.core.test_in_place import begun, down, failed_in_place, live

BEGUN = Recovery(2, RecoveryKind.IN_PLACE, detect_seconds=0.5)
MOMENTS = Moments(2, seen=100.0, recorded=100.25, stopped=101.25, placed=101.5)
STARTUP = Startup(3.0, import_seconds=1.0, join_seconds=0.5, load_seconds=0.25)
STEPS = FirstSteps(2, step=7, at=110.0, startup=STARTUP, reported=105.0, new_step=108.0)
"""The program began at 102, made its first step at 103.75, and the first new one at 108."""


def test_every_part_is_known_and_they_sum_up_to_the_total():
    ledger = fill_in(BEGUN, MOMENTS, STEPS, 0.0)
    assert ledger.parts() == {
        "detect": 0.5,
        "decide": 0.25,
        "stop": 1.0,
        "place": 0.25,
        "start": 0.5,
        "import": 1.0,
        "join": 0.5,
        "load": 0.25,
        "repeat": 4.25,
    }
    assert tuple(ledger.parts()) == RECOVERY_PARTS
    assert ledger.total_seconds == sum(ledger.parts().values()) == 8.5


def changed(of, **fields):
    return msgspec.structs.replace(of, **fields)


LEDGERS = {
    "nothing but a step is reported": (
        MOMENTS,
        changed(STEPS, startup=None, new_step=None),
        {"detect": 0.5, "decide": 0.25, "stop": 1.0, "place": 0.25},
        None,
    ),
    "a new step from the log": (
        MOMENTS,
        changed(STEPS, startup=None),
        {"detect": 0.5, "decide": 0.25, "stop": 1.0, "place": 0.25},
        8.5,
    ),
    "steps are repeated": (
        MOMENTS,
        changed(STEPS, new_step=None),
        {
            "detect": 0.5,
            "decide": 0.25,
            "stop": 1.0,
            "place": 0.25,
            "start": 0.5,
            "import": 1.0,
            "join": 0.5,
            "load": 0.25,
        },
        None,
    ),
    "another operator began the attempt": (
        None,
        STEPS,
        {"detect": 0.5, "import": 1.0, "join": 0.5, "load": 0.25, "repeat": 4.25},
        8,
    ),
    "moments of an earlier attempt": (
        changed(MOMENTS, attempt=1),
        STEPS,
        {"detect": 0.5, "import": 1.0, "join": 0.5, "load": 0.25, "repeat": 4.25},
        8,
    ),
    "worker 0 begins before the others have an address": (
        changed(MOMENTS, placed=104.0),
        STEPS,
        {
            "detect": 0.5,
            "decide": 0.25,
            "stop": 1.0,
            "place": 0.75,
            "start": 0.0,
            "import": 1.0,
            "join": 0.5,
            "load": 0.25,
            "repeat": 4.25,
        },
        8.5,
    ),
    "a program that claims to be older than its attempt": (
        MOMENTS,
        changed(STEPS, startup=Startup(1e6, load_seconds=1.0)),
        {"detect": 0.5, "decide": 0.25, "stop": 1.0, "place": 0.25},
        8.5,
    ),
    "the same, and another operator began the attempt": (
        None,
        changed(STEPS, startup=Startup(10.0, load_seconds=1.0)),
        {"detect": 0.5},
        8,
    ),
    "parts that are longer than the age of the program": (
        MOMENTS,
        changed(STEPS, startup=changed(STARTUP, load_seconds=1e6)),
        {"detect": 0.5, "decide": 0.25, "stop": 1.0, "place": 0.25, "start": 0.5},
        8.5,
    ),
    "reports of another attempt": (MOMENTS, changed(STEPS, attempt=1), {"detect": 0.5}, None),
}


@pytest.mark.parametrize(("moments", "steps", "parts", "total"), LEDGERS.values(), ids=LEDGERS)
def test_what_was_not_measured_is_absent(moments, steps, parts, total):
    ledger = fill_in(BEGUN, moments, steps, 100.25)
    assert (ledger.parts(), ledger.total_seconds) == (parts, total)


def test_no_total_if_it_is_unknown_when_the_attempt_began():
    assert fill_in(BEGUN, None, STEPS, -math.inf).total_seconds is None


def test_a_part_on_record_stays_as_it_is():
    known = changed(BEGUN, decide_seconds=9.0, join_seconds=8.0)
    ledger = fill_in(known, MOMENTS, STEPS, 0.0)
    assert (ledger.decide_seconds, ledger.join_seconds, ledger.stop_seconds) == (9.0, 8.0, 1.0)


# --- the first steps


def test_a_first_step_that_is_new_was_made_when_the_program_says():
    steps = add_steps(None, 2, 11, 105.0, STARTUP, mark=10)
    assert (steps.began, steps.stepped, steps.new_step) == (102.0, 103.75, 103.75)


def test_without_a_recorder_it_was_made_when_it_was_read():
    assert add_steps(None, 2, 11, 105.0, None, mark=10).new_step == 105.0


def test_a_new_step_between_two_reports_is_interpolated_once():
    steps = add_steps(None, 2, 4, 105.0, STARTUP, mark=None)
    assert steps.new_step is None
    steps = add_steps(steps, 2, 8, 110.0, STARTUP, mark=None)
    steps = add_steps(steps, 2, 18, 120.0, STARTUP, mark=10)
    assert steps.new_step == 113.0
    assert steps.reported == 105.0, "the first report of the parts counts"
    assert add_steps(steps, 2, 28, 130.0, STARTUP, mark=10).new_step == 113.0
    assert add_steps(steps, 3, 29, 140.0, None, mark=18).new_step == 140.0, "another attempt"


def test_parts_may_come_after_progress_from_the_log():
    steps = add_steps(None, 2, 4, 105.0, None, mark=None)
    steps = add_steps(steps, 2, 5, 106.0, STARTUP, mark=None)
    assert steps.began == 103.0


# --- the beginning and the milestones of a restart


def hung() -> SnapshotBuilder:
    built = live(job().worker(3).spec(hangPolicy="Restart"))
    built.findings = (Hang(0, 100, 300, ("demo-worker-1 on node-0",), "no step for 5m"),)
    return built


BEGINNINGS = {
    "a program ends": (live().supervised("worker", 1, down(137, detect_seconds=0.25)), "InPlace", 0.25),
    "an old supervisor does not say when": (live().supervised("worker", 1, down(137)), "InPlace", None),
    "a hang, from the last step on": (hung(), "InPlace", 300.0),
    "a pod ends": (live().failed("worker", 1, code=137).seen_for(4), "Mixed", 4.0),
    "a pod is deleted": (live().gone("worker", 1), "Mixed", None),
    "a server ends": (live(job().ps(1).worker(2)).failed("ps", 0, code=137).seen_for(4), "Recreate", 4.0),
}


@pytest.mark.parametrize(("built", "kind", "detect"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_the_kind_and_the_first_part_are_written_with_the_attempt(built, kind, detect):
    status = built.plan().status
    assert status.phase is Phase.RESTARTING
    assert status.last_recovery == Recovery(1, RecoveryKind(kind), detect_seconds=detect)


OTHERS = {
    "a change of size": live().respecified(job().worker(2)),
    "a worker that others do not need": live(
        job().ps(1).worker(2).spec(withGloo=0, restartPolicy={"inPlace": False})
    ).failed("worker", 1, code=137),
}


@pytest.mark.parametrize("built", OTHERS.values(), ids=OTHERS)
def test_the_last_ledger_stays_if_not_all_programs_restart_after_a_failure(built):
    built.phase(Phase.RUNNING, last_recovery=BEGUN)
    status = built.plan().status
    assert (status.attempt, status.last_recovery) == (1, BEGUN)


def test_the_milestones_of_a_restart_in_place():
    built = failed_in_place()
    assert built.plan().milestone is Milestone.RECORDED
    for index in range(3):
        built.supervised("worker", index, down(137))
    plan = built.plan()
    assert plan.milestone is Milestone.PLACED, "the plan writes the ConfigMap"
    built.phase(Phase.RESTARTING, retry_time=built.now + timedelta(seconds=5))
    assert built.plan().milestone is Milestone.STOPPED, "the restart is delayed"


def test_the_milestones_of_new_pods():
    built = begun(live().failed("worker", 1, code=137).respecified(job().worker(3, image="other")))
    assert (built.job.status.base_attempt, built.plan().milestone) == (1, Milestone.RECORDED)
    for index in range(3):
        built.gone("worker", index)
    assert built.later(60).plan().milestone is Milestone.STOPPED
    built.pods()
    assert built.plan().milestone is Milestone.STOPPED, "no addresses yet"
    built.pods_with_addresses()
    assert built.plan().milestone is Milestone.PLACED


def test_moments_are_those_of_the_first_time():
    moments = Moments(1, 1.0, 2.0).passed(Milestone.STOPPED, 3.0).passed(Milestone.PLACED, 4.0)
    assert moments.passed(Milestone.PLACED, 9.0) == Moments(1, 1.0, 2.0, 3.0, 4.0)
    assert Moments(1, 1.0, 2.0).passed(Milestone.PLACED, 3.0) == Moments(1, 1.0, 2.0, 3.0, 3.0)


# --- words


WORDS = {
    "all parts": (
        fill_in(BEGUN, MOMENTS, STEPS, 0.0),
        (
            "InPlace, 8.50s to the next new step: detect 0.50s, decide 0.25s, stop 1.00s, "
            "place 0.25s, start 0.50s, import 1.00s, join 0.50s, load 0.25s, repeat 4.25s"
        ),
    ),
    "long": (
        Recovery(1, RecoveryKind.RECREATE, repeat_seconds=7200.0, total_seconds=7260.0),
        "Recreate, 121m to the next new step: repeat 120m",
    ),
    "nothing measured": (Recovery(1, RecoveryKind.MIXED), "Mixed"),
}


@pytest.mark.parametrize(("ledger", "text"), WORDS.values(), ids=WORDS)
def test_in_words(ledger, text):
    assert in_words(ledger) == text
