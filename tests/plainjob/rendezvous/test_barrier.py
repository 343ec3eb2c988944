from __future__ import annotations

import itertools

import pytest

from paddlejob.plainjob.rendezvous.barrier import (
    Abort,
    AllDone,
    Coordinator,
    Join,
    Left,
    PodStage,
    Rejected,
    ServerReady,
    StartServers,
    StartTrainers,
    TrainerDone,
    join,
    leave,
    receive,
)

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
EMPTY = Coordinator.waiting_for(ADDRESSES)


def coordinator_at(*stages: PodStage) -> Coordinator:
    return Coordinator(ADDRESSES, stages)


def replay(*events) -> list:
    """Feed (trainer, message) pairs, None for a broken connection; return what everybody was told."""
    coordinator, told = Coordinator.waiting_for(ADDRESSES), []
    for trainer, message in events:
        if message is None:
            step = leave(coordinator, trainer, "its connection broke")
        elif isinstance(message, Join):
            step = join(coordinator, message)
        else:
            step = receive(coordinator, trainer, message)
        coordinator, told = step.coordinator, [*told, step.broadcast]
    return [message for message in told if message is not None]


def everybody(message) -> list:
    return [(trainer, message) for trainer in range(3)]


JOINS = [(trainer, Join(trainer, ADDRESSES)) for trainer in range(3)]


def test_a_whole_training():
    assert replay(*JOINS, *everybody(ServerReady()), *everybody(TrainerDone())) == [
        StartServers(),
        StartTrainers(),
        AllDone(),
    ]


@pytest.mark.parametrize("trainer", [-4, -1, 3, 7])
def test_a_trainer_that_is_not_in_the_list_is_rejected(trainer):
    coordinator = Coordinator.waiting_for(ADDRESSES)
    assert join(coordinator, Join(trainer, ADDRESSES)) == Rejected(f"there is no trainer {trainer} among 3")


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        pytest.param(PodStage.JOINED, Join(1, ADDRESSES), id="joining twice does not mean done"),
        pytest.param(PodStage.JOINED, TrainerDone(), id="no trainer is done before it had a server"),
        pytest.param(PodStage.READY, ServerReady(), id="nothing is said twice"),
        pytest.param(PodStage.DONE, ServerReady(), id="nobody goes back"),
    ],
)
def test_what_is_said_out_of_turn_ends_training(stage, message):
    step = receive(coordinator_at(PodStage.READY, stage, PodStage.READY), 1, message)
    kind = type(message).__name__
    assert step.broadcast == Abort(1, f"trainer 1 (10.0.0.2): sent {kind} out of turn")


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_the_order_in_which_pods_come_does_not_matter(order):
    events = [(trainer, Join(trainer, ADDRESSES)) for trainer in order]
    assert replay(*events) == [StartServers()]


def test_nobody_trains_before_all_serve():
    assert replay(*JOINS, (0, ServerReady()), (2, ServerReady())) == [StartServers()]


def test_nobody_leaves_before_all_are_done():
    assert replay(*JOINS, *everybody(ServerReady()), (0, TrainerDone()), (1, TrainerDone())) == [
        StartServers(),
        StartTrainers(),
    ]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        pytest.param((1, None), "trainer 1 (10.0.0.2): its connection broke", id="a broken connection"),
        pytest.param((2, Left("exit code 3")), "trainer 2 (10.0.0.3): exit code 3", id="a failed trainer"),
    ],
)
@pytest.mark.parametrize(
    "before",
    [JOINS, [*JOINS, *everybody(ServerReady())], [*JOINS, *everybody(ServerReady()), (1, TrainerDone())]],
)
def test_one_that_goes_ends_it_for_all(before, event, reason):
    assert replay(*before, event)[-1] == Abort(event[0], reason)


def test_only_the_first_failure_is_told():
    assert replay(*JOINS, (1, None), (2, None), (0, None)) == [
        StartServers(),
        Abort(1, "trainer 1 (10.0.0.2): its connection broke"),
    ]


def test_after_the_end_anybody_may_go():
    told = replay(*JOINS, *everybody(ServerReady()), *everybody(TrainerDone()), (0, None), (1, None))
    assert told == [StartServers(), StartTrainers(), AllDone()]


def test_one_that_goes_before_all_have_come_may_come_again():
    assert replay(JOINS[0], JOINS[1], (1, None), JOINS[1], JOINS[2]) == [StartServers()]


@pytest.mark.parametrize(
    ("coordinator", "message", "reason"),
    [
        pytest.param(
            Coordinator.waiting_for(ADDRESSES),
            Join(0, ADDRESSES[:2]),
            "it has a different list of pods",
            id="fewer pods",
        ),
        pytest.param(
            Coordinator.waiting_for(ADDRESSES),
            Join(0, ADDRESSES[::-1]),
            "it has a different list of pods",
            id="another order",
        ),
        pytest.param(
            coordinator_at(PodStage.JOINED, PodStage.ABSENT, PodStage.ABSENT),
            Join(0, ADDRESSES),
            "trainer 0 has already joined",
            id="twice",
        ),
        pytest.param(
            Coordinator(ADDRESSES, (PodStage.JOINED,) * 3, aborted=Abort(1, "x")),
            Join(0, ADDRESSES),
            "training was aborted: x",
            id="too late",
        ),
    ],
)
def test_refused(coordinator, message, reason):
    assert join(coordinator, message) == Rejected(reason)


def test_the_coordinator_knows_who_is_absent():
    assert coordinator_at(PodStage.JOINED, PodStage.ABSENT, PodStage.ABSENT).absent == (
        "10.0.0.2",
        "10.0.0.3",
    )


def test_pods_with_shards_of_different_splits_do_not_train():
    events = [*JOINS, (0, ServerReady("a")), (1, ServerReady("b"))]
    reason = "trainer 1 (10.0.0.2): its shard belongs to a different split: split the data again"
    assert replay(*events) == [StartServers(), Abort(1, reason)]
    assert replay(*JOINS, *everybody(ServerReady("a"))) == [StartServers(), StartTrainers()]
