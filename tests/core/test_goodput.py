"""How a job spent its time: the parts sum to its life, whatever happens to it."""

from __future__ import annotations

import random
from datetime import timedelta

import msgspec
import pytest

from paddlejob.api.v1 import Failure, Goodput, Phase, ProgressMark, TrainingProgress
from paddlejob.training.findings import Hang
from paddlejob.training.goodput import add_goodput, goodput_at, in_words, passes_mark
from simkube.build import job, snapshot

DEMO = job().worker(1).metadata(creationTimestamp="2020-01-01T00:00:00Z")
PARTS = [field for field in Goodput.__struct_fields__ if field.endswith("_seconds")]


def total(spent: Goodput) -> int:
    return sum(getattr(spent, part) for part in PARTS)


def changed(demo, phase: Phase, now, hang: Hang | None = None, **fields):
    """Return a job after a phase of it was written."""
    fresh = msgspec.structs.replace(demo.status, phase=phase, **fields)
    return msgspec.structs.replace(demo, status=add_goodput(demo, fresh, now, hang))


def test_each_phase_has_its_part():
    demo = DEMO.build()
    now = demo.metadata.creation_timestamp
    for phase, seconds in (
        (Phase.PENDING, 2),
        (Phase.STARTING, 30),
        (Phase.RUNNING, 5),
        (Phase.RESTARTING, 600),
        (Phase.RUNNING, 7),
        (Phase.SCALING, 300),
        (Phase.RUNNING, 11),
        (Phase.SUSPENDED, 100),
        (Phase.PENDING, 50),
    ):
        now += timedelta(seconds=seconds)
        demo = changed(demo, phase, now)
    assert demo.status.goodput == Goodput(
        queued_seconds=2 + 30,
        starting_seconds=5 + 7 + 11,
        training_seconds=600 + 300 + 100,
        suspended_seconds=50,
        updated=now,
    )


def test_nothing_is_counted_while_nothing_changes_nor_after_the_end():
    demo = DEMO.build()
    now = demo.metadata.creation_timestamp + timedelta(seconds=9)
    demo = changed(demo, Phase.RUNNING, now)
    before = demo.status.goodput
    assert changed(demo, Phase.RUNNING, now + timedelta(hours=1)).status.goodput == before
    end = now + timedelta(hours=2)
    demo = changed(demo, Phase.COMPLETED, now + timedelta(hours=1), completion_time=end)
    assert (demo.status.goodput.training_seconds, demo.status.goodput.updated) == (7200, end)
    assert changed(demo, Phase.TERMINATING, end + timedelta(days=1)).status.goodput == demo.status.goodput


def test_steps_that_are_made_again_are_told_apart():
    demo = DEMO.build()
    begin = demo.metadata.creation_timestamp
    demo = changed(demo, Phase.RUNNING, begin, attempt_time=begin, progress_mark=ProgressMark(0, 100))
    later = begin + timedelta(seconds=60)
    assert goodput_at(demo, later).repeating_seconds == 60
    for step, part in ((100, "repeating_seconds"), (101, "training_seconds")):
        told = TrainingProgress(step=step, updated=later)
        status = msgspec.structs.replace(demo.status, progress=told)
        assert getattr(goodput_at(msgspec.structs.replace(demo, status=status), later), part) == 60
        assert passes_mark(demo.status, told) == (step > 100)
    assert not passes_mark(status, told)
    assert not passes_mark(msgspec.structs.replace(demo.status, phase=Phase.STARTING), told)


def test_a_job_that_hangs_is_stalled_since_its_last_step_until_it_makes_one():
    demo = DEMO.build()
    begin = demo.metadata.creation_timestamp
    demo = changed(demo, Phase.RUNNING, begin)
    found = begin + timedelta(seconds=1000)
    hang = Hang(0, 100, 600, (), "no step for 10m")
    demo = changed(demo, Phase.RUNNING, found, hang)
    assert changed(demo, Phase.RUNNING, found + timedelta(seconds=99), hang).status == demo.status
    spent = goodput_at(demo, found)
    assert (spent.training_seconds, spent.stalled_seconds) == (400, 600)
    demo = changed(demo, Phase.RUNNING, found + timedelta(seconds=50))
    spent = goodput_at(demo, found + timedelta(seconds=80))
    assert (spent.training_seconds, spent.stalled_seconds, spent.stalled) == (430, 650, False)
    assert in_words(spent) == "training 7m10s, stalled 10m (39% training)"


def test_a_hang_that_ends_in_a_restart_was_no_training():
    demo = DEMO.build()
    begin = demo.metadata.creation_timestamp
    demo = changed(demo, Phase.RUNNING, begin)
    end = begin + timedelta(seconds=1000)
    hang = Hang(0, 100, 600, (), "no step for 10m")
    spent = changed(demo, Phase.RESTARTING, end, hang, attempt=1).status.goodput
    assert (spent.training_seconds, spent.stalled_seconds, spent.stalled) == (400, 600, False)


def test_a_clock_that_goes_back_takes_nothing_away():
    demo = DEMO.build()
    now = demo.metadata.creation_timestamp + timedelta(seconds=60)
    demo = changed(demo, Phase.RUNNING, now)
    spent = goodput_at(demo, now - timedelta(seconds=30))
    assert spent == demo.status.goodput


def test_a_job_that_ran_before_anybody_counted_was_queued_until_it_ran():
    demo = DEMO.build()
    started = demo.metadata.creation_timestamp + timedelta(seconds=40)
    demo = msgspec.structs.replace(
        demo, status=msgspec.structs.replace(demo.status, phase=Phase.RUNNING, start_time=started)
    )
    spent = goodput_at(demo, started + timedelta(seconds=500))
    assert (spent.queued_seconds, spent.training_seconds, total(spent)) == (40, 500, 540)


def test_the_parts_in_words():
    assert in_words(Goodput()) == ""
    spent = Goodput(queued_seconds=20, training_seconds=80)
    assert in_words(spent) == "training 80s, queued 20s (80% training)"


def test_a_job_without_a_date_has_none():
    demo = DEMO.build()
    unborn = msgspec.structs.replace(demo.metadata, creation_timestamp=None)
    assert goodput_at(msgspec.structs.replace(demo, metadata=unborn), snapshot(DEMO).now) is None


LOST = Failure(reason="QuotaLost")


@pytest.mark.parametrize(
    ("reason", "failure", "part"),
    [
        ("QuotaLost", LOST, "queued_seconds"),
        ("WaitingToRestart", LOST, "queued_seconds"),
        ("WaitingForGang", LOST, "queued_seconds"),
        ("WaitingForGang", None, "queued_seconds"),
        ("WaitingForPods", LOST, "starting_seconds"),
        ("WaitingToRestart", Failure(reason="OOMKilled"), "starting_seconds"),
    ],
)
def test_time_without_admission_is_queued(reason, failure, part):
    demo = DEMO.build()
    begin = demo.metadata.creation_timestamp
    demo = changed(demo, Phase.RESTARTING, begin, reason=reason, last_failure=failure)
    demo = changed(demo, Phase.RUNNING, begin + timedelta(seconds=60))
    assert getattr(demo.status.goodput, part) == 60


def test_fractions_of_a_second_are_not_lost():
    """A laptop's clock has them; there are many short phases."""
    demo = DEMO.build()
    created = demo.metadata.creation_timestamp
    now = created + timedelta(seconds=0.9)
    for phase in (Phase.RUNNING, Phase.RESTARTING) * 500:
        now += timedelta(seconds=1.9)
        demo = changed(demo, phase, now)
    assert total(demo.status.goodput) == 1900


@pytest.mark.parametrize("seed", range(200))
def test_the_parts_sum_to_the_life_of_the_job_in_every_history(seed):
    rng = random.Random(seed)
    demo = DEMO.build()
    created = now = demo.metadata.creation_timestamp
    live = [phase for phase in Phase if not phase.is_terminal]
    for _ in range(50):
        now += timedelta(seconds=rng.choice((-3, 0, 1, 17, 4000, 0.4, 1.7)))
        phase = rng.choice(live)
        hang = Hang(0, 1, rng.choice((0, 10, 900)), (), "") if rng.random() < 0.3 else None
        demo = changed(demo, phase, now, hang, attempt=demo.status.attempt + (rng.random() < 0.2))
        spent = demo.status.goodput
        if spent is not None:
            assert total(spent) == (spent.updated - created).total_seconds()
            assert all(getattr(spent, part) >= 0 for part in PARTS)
    end = max(now, created) + timedelta(seconds=5)
    spent = changed(demo, Phase.FAILED, end, completion_time=end).status.goodput
    assert total(spent) == (spent.updated - created).total_seconds()


def test_a_plan_counts_when_it_changes_the_phase():
    built = snapshot(DEMO)
    first = built.plan().status
    assert (first.phase, total(first.goodput)) == (
        Phase.PENDING,
        (built.now - built.job.metadata.creation_timestamp).total_seconds(),
    )
    assert built.status(first).later(60).plan().status.goodput == first.goodput
