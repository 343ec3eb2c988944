from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.plan import plan
from paddlejob.training.findings import Awaited, Hang
from paddlejob.training.hangs import find_awaited, restored_hang
from paddlejob.training.stacks import parse_position
from simkube.build import SnapshotBuilder, job, snapshot
from tests.core.hang_histories import EVERY, Play, check


def message(play: Play) -> str:
    found = play.hang()
    assert found is not None
    return found.message


def test_a_job_that_makes_progress_does_not_hang():
    play = Play()
    play.train(100)
    assert play.hang() is None


@pytest.mark.parametrize(
    ("how", "text", "odd"),
    [
        pytest.param(
            {"silent": (1,), "waiting": (0, 2)},
            "no step for 5m (step 100): worker-1 on node-1 is not reporting",
            ("worker-1 on node-1",),
            id="a process that is stopped, or cut off",
        ),
        pytest.param(
            {"waiting": (0, 2)},
            "no step for 5m (step 100): worker-1 on node-1 does not join the call that the others wait in",
            ("worker-1 on node-1",),
            id="a deadlock in its own code",
        ),
        pytest.param(
            {"waiting": (1,)},
            "no step for 5m (step 100): worker-0 on node-0, worker-2 on node-2 do not join the call "
            "that the others wait in",
            ("worker-0 on node-0", "worker-2 on node-2"),
            id="two of three",
        ),
        pytest.param(
            {"waiting": (0, 1, 2)},
            "no step for 5m (step 100): all 3 ranks are waiting",
            (),
            id="a lost message",
        ),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(how: dict, text: str, odd: tuple):
    play = Play()
    play.train(100)
    play.stay(300, 100, **how)
    found = play.hang()
    assert found is not None
    assert (found.message, found.odd, found.step, found.seconds) == (text, odd, 100, 300)


def test_a_rank_that_is_behind_is_named():
    play = Play()
    play.train(100)
    for rank in play.ranks[:2]:
        rank.add_report(101, "training", is_waiting=True, now=play.now)
    play.ranks[2].add_report(100, "training", is_waiting=True, now=play.now)
    for _ in range(61):
        play.now += EVERY
        for rank, step in zip(play.ranks, (101, 101, 100), strict=True):
            rank.add_report(step, "training", is_waiting=True, now=play.now)
    assert message(play).endswith(": worker-2 on node-2 is behind")


def test_nothing_is_said_of_steps_that_only_paddle_counts():
    play = Play()
    play.stay(7200, 0, waiting=(0, 2))
    assert play.hang() is None
    assert find_awaited(play.ranks, play.now, silent_seconds=15.0) is None


def test_of_many_ranks_a_few_are_named():
    play = Play(ranks=8)
    play.train(10)
    play.stay(300, 10, silent=range(1, 6))
    assert message(play).endswith(
        ": worker-1 on node-1, worker-2 on node-2, worker-3 on node-3 and 2 more are not reporting"
    )


def test_one_rank_alone_is_the_job():
    play = Play(ranks=1)
    play.ranks[0].node = ""
    play.train(10)
    play.stay(300, 10)
    assert message(play) == "no step for 5m (step 10)"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (3, "no report for 5m (last one at step 100): all 3 ranks are stopped or cannot reach the operator"),
        (
            1,
            (
                "no report for 5m (last one at step 100): worker-0 on node-0 is stopped or cannot reach "
                "the operator"
            ),
        ),
    ],
)
def test_ranks_that_all_fall_silent_are_told_of(ranks: int, text: str):
    play = Play(ranks)
    play.train(100)
    play.now += 299
    assert play.hang() is None
    play.now += 1
    found = play.hang()
    assert found is not None
    assert (found.message, found.odd, found.has_reports) == (text, (), False)


def test_a_job_whose_ranks_have_ended_does_not_hang():
    play = Play()
    play.train(100)
    play.report(100, "ended")
    play.now += 100_000
    assert play.hang() is None


def test_before_the_first_step_a_pod_that_never_reported_is_waited_for():
    play = Play(ranks=2)
    play.stay(6 * 300 + EVERY, 0, "starting", waiting=(0, 1))
    found = play.hang(never_reported=("demo-worker-2 on node-2",))
    assert found is not None
    assert found.odd == ("demo-worker-2 on node-2",)
    assert found.message == "no step for 30m (step 0): demo-worker-2 on node-2 has not started training"
    play.train(1)
    play.stay(300, 1, waiting=(0, 1))
    assert message(play) == "no step for 5m (step 1): all 2 ranks are waiting"


def dump(function: str, line: int = 7) -> str:
    """What a process says that is in a function of its program."""
    return f"""Thread 0x00007f01 (most recent call first):
  File "/etc/paddlejob/recorder/sender.py", line 9 in _run

Thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/site-packages/paddle/autograd.py", line {line} in backward
  File "/app/train.py", line {line} in {function}
"""


@pytest.mark.parametrize(
    ("functions", "why", "first"),
    [
        (
            ("sync", "sync", "load"),
            "worker-2 on node-2 is at a different place than the others; it is in load (train.py:7)",
            2,
        ),
        (("sync", "sync", "sync"), "all 3 ranks are waiting; they are in sync (train.py:7)", 0),
        (
            ("a", "b", "c"),
            "all 3 ranks are waiting; "
            + ", ".join(f"worker-{index} is in {name} (train.py:7)" for index, name in enumerate("abc")),
            0,
        ),
        (("a", "b", ""), "all 3 ranks are waiting", 0),
    ],
)
def test_what_ranks_are_doing_tells_who_is_not_where_the_others_are(functions, why, first):
    play = Play()
    play.train(100)
    play.stay(300, 100, waiting=(0, 1, 2))
    for rank, function in zip(play.ranks, functions, strict=True):
        rank.position = parse_position(dump(function)) if function else None
    found = play.hang()
    assert found is not None
    assert found.message == f"no step for 5m (step 100): {why}"
    assert found.stacks[0][0] == f"worker-{first}"


def test_of_two_ranks_that_do_not_wait_for_each_other_it_is_said_where_each_is():
    play = Play(ranks=2)
    play.train(10)
    play.stay(300, 10)
    for rank, function in zip(play.ranks, ("log", "load"), strict=True):
        rank.position = parse_position(dump(function))
    assert message(play) == (
        "no step for 5m (step 10): worker-0 is in log (train.py:7), worker-1 is in load (train.py:7)"
    )
    play.ranks[1].position = None
    assert message(play) == "no step for 5m (step 10)"


def test_one_rank_alone_says_where_it_is():
    play = Play(ranks=1)
    play.train(10)
    play.stay(300, 10)
    play.ranks[0].position = parse_position(dump("lock"))
    assert message(play) == "no step for 5m (step 10): it is in lock (train.py:7)"


def test_slow_steps_are_given_longer():
    play = Play()
    play.train(5, each_seconds=200)
    play.stay(999, 5)
    assert play.hang() is None
    play.stay(2, 5)
    assert play.hang() is not None


@pytest.mark.parametrize("phase", ["evaluating", "saving"])
def test_other_phases_have_time_outs_of_their_own(phase: str):
    play = Play()
    play.train(100)
    play.stay(1700, 100, phase)
    assert play.hang() is None
    play.train(100, first=101)
    play.stay(6000, 200, phase)
    assert play.hang() is None
    play.stay(3000, 200, phase)
    assert play.hang() is not None


def test_a_hang_is_over_with_the_next_step():
    play = Play()
    play.train(100)
    play.stay(400, 100)
    assert play.hang() is not None
    play.train(1, first=101)
    assert play.hang() is None


def test_a_new_process_is_not_measured_by_the_end_of_the_old_one():
    play = Play()
    play.train(100)
    play.now += 10_000
    play.report(1)
    assert play.ranks[0].longest_pause("training") == 1.0


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_healthy_histories_raise_no_alarm_and_a_hang_after_them_does(first: int):
    for seed in range(first, first + 50):
        check(seed)


def test_ranks_that_have_ended_are_not_waited_for():
    play = Play()
    play.train(100)
    play.ranks[1].add_report(100, "ended", is_waiting=False, now=play.now)
    play.stay(400, 100, waiting=(0,), silent=(1,))
    assert message(play).endswith(": worker-2 on node-2 does not join the call that the others wait in")


def test_it_is_known_whom_ranks_wait_for_long_before_a_job_hangs():
    play = Play()
    play.train(100)
    play.now += 5
    assert find_awaited(play.ranks, play.now, silent_seconds=15) is None
    play.stay(15, 100, silent=(1,), waiting=(0, 2))
    assert find_awaited(play.ranks, play.now, silent_seconds=15) == "worker-1 on node-1 is not reporting"
    assert play.hang() is None
    play.stay(5, 100, waiting=(0, 2))
    assert find_awaited(play.ranks, play.now, silent_seconds=15) == (
        "worker-1 on node-1 does not join the call that the others wait in"
    )
    play.stay(5, 100, waiting=())
    assert find_awaited(play.ranks, play.now, silent_seconds=15) == ""
    play.stay(5, 100, "ended")
    play.now += 60
    assert find_awaited(play.ranks, play.now, silent_seconds=15) == ""


# --- what becomes of the job

HANG = Hang(0, 100, 300, ("demo-worker-1 (rank 1) on node-b",), "no step for 5m (step 100): it is stuck")


def hanging(**spec) -> SnapshotBuilder:
    builder = snapshot(job().worker(2).spec(**spec).status(phase="Running")).pods_running().config({})
    builder.findings = (HANG,)
    return builder


def test_a_hang_is_the_reason_a_condition_and_in_the_message():
    builder = hanging()
    status = plan(builder.build()).status
    assert (status.phase, status.attempt, status.reason) == (Phase.RUNNING, 0, "Hung")
    assert status.message == "2 workers running; no step for 5m (step 100): it is stuck"
    found = {each.type: (each.status, each.message) for each in status.conditions}
    assert found["Running"] == ("True", status.message)
    assert found["Hung"] == ("True", HANG.message)
    builder.findings, builder.job = (), msgspec.structs.replace(builder.job, status=status)
    status = plan(builder.build()).status
    assert (status.reason, status.message) == ("PodsRunning", "2 workers running")
    assert {each.type: each.status for each in status.conditions}["Hung"] == "False"


def test_a_hang_on_record_is_known_to_the_next_operator():
    status = plan(hanging().build()).status
    restored = restored_hang(status)
    assert restored is not None
    assert (restored.attempt, restored.message, restored.is_learned) == (0, HANG.message, False)
    builder = hanging(hangPolicy="Restart")
    builder.findings, builder.job = (restored,), msgspec.structs.replace(builder.job, status=status)
    again = plan(builder.build()).status
    assert (again.message, again.attempt, again.conditions) == (status.message, 0, status.conditions)
    assert restored_hang(msgspec.structs.replace(status, phase=Phase.RESTARTING)) is None
    assert restored_hang(plan(snapshot(job().worker(1)).build()).status) is None


@pytest.mark.parametrize(
    ("is_new", "seconds", "is_learned"), [(True, 300, True), (False, 300, False), (False, 7200, True)]
)
def test_an_operator_that_has_not_seen_all_pauses_is_not_certain_of_a_hang(is_new, seconds, is_learned):
    play = Play()
    for rank in play.ranks:
        rank.is_new = is_new
    play.train(100)
    play.stay(seconds, 100)
    assert play.hang().is_learned is is_learned


def test_a_job_is_not_restarted_for_a_hang_that_is_not_certain():
    builder = hanging(hangPolicy="Restart")
    builder.findings = (msgspec.structs.replace(HANG, is_learned=False),)
    status = plan(builder.build()).status
    assert (status.phase, status.reason, status.attempt) == (Phase.RUNNING, "Hung", 0)


@pytest.mark.parametrize(("index", "is_said"), [(0, True), (1, False)])
def test_a_rank_that_fails_while_it_waits_says_for_whom(index: int, is_said: bool):
    awaited = "demo-worker-1 (rank 1) on node-b is not reporting"
    builder = snapshot(job().worker(2).status(phase="Running")).pods_running().config({})
    builder.failed("worker", index, code=1, message="gloo timed out").findings = (Awaited(0, awaited),)
    message = plan(builder.build()).status.message
    assert message.endswith(f"gloo timed out; it was waiting: {awaited}") == is_said
    assert f"worker-{index} exited with code 1" in message


def test_a_job_that_asks_for_it_is_restarted_and_the_odd_rank_blamed():
    status = plan(hanging(hangPolicy="Restart").build()).status
    assert (status.phase, status.reason, status.attempt, status.restarts) == (Phase.RESTARTING, "Hung", 1, 1)
    failure = status.last_failure
    assert failure is not None
    assert (failure.pod, failure.reason, failure.counted) == ("demo-worker-1", "Hung", True)


def test_a_job_without_reports_is_not_restarted():
    """It may train, and only not reach the operator."""
    builder = hanging(hangPolicy="Restart")
    builder.findings = (msgspec.structs.replace(HANG, has_reports=False),)
    status = plan(builder.build()).status
    assert (status.phase, status.attempt) == (Phase.RUNNING, 0)
    assert status.message.endswith("no step for 5m (step 100): it is stuck")


def test_a_job_without_restarts_left_is_not_ended_for_a_guess():
    status = plan(hanging(hangPolicy="Restart", backoffLimit=0).build()).status
    assert (status.phase, status.attempt) == (Phase.RUNNING, 0)
