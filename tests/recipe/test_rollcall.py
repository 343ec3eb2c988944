from __future__ import annotations

import itertools

import pytest

from paddlejob.recipe.rollcall import (
    Abort,
    Done,
    Gone,
    Hello,
    Hub,
    Over,
    Refused,
    Serve,
    Serving,
    Stage,
    Train,
    admit,
    hear,
    lose,
)

ROSTER = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def hub_at(*stages: Stage) -> Hub:
    return Hub(ROSTER, stages)


def replay(*events) -> list:
    """Feed (member, message) pairs, None for a broken connection; return what everybody was told."""
    hub, told = Hub.waiting_for(ROSTER), []
    for member, message in events:
        if message is None:
            step = lose(hub, member, "its connection broke")
        elif isinstance(message, Hello):
            step = admit(hub, message)
        else:
            step = hear(hub, member, message)
        hub, told = step.hub, [*told, step.tell_all]
    return [message for message in told if message is not None]


def everybody(message) -> list:
    return [(member, message) for member in range(3)]


HELLOS = [(member, Hello(member, ROSTER)) for member in range(3)]


def test_a_whole_training():
    assert replay(*HELLOS, *everybody(Serving()), *everybody(Done())) == [Serve(), Train(), Over()]


@pytest.mark.parametrize("member", [-4, -1, 3, 7])
def test_a_member_that_is_not_of_the_roster_is_refused(member):
    hub = Hub.waiting_for(ROSTER)
    assert admit(hub, Hello(member, ROSTER)) == Refused(f"there is no trainer {member} among 3")


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        pytest.param(Stage.HERE, Hello(1, ROSTER), id="a second greeting does not mean that it is done"),
        pytest.param(Stage.HERE, Done(), id="no trainer is done before it had a server"),
        pytest.param(Stage.SERVING, Serving(), id="nothing is said twice"),
        pytest.param(Stage.DONE, Serving(), id="nobody goes back"),
    ],
)
def test_what_is_said_out_of_turn_ends_training(stage, message):
    step = hear(hub_at(Stage.SERVING, stage, Stage.SERVING), 1, message)
    kind = type(message).__name__
    assert step.tell_all == Abort(1, f"trainer 1 (10.0.0.2): sent {kind} out of turn")


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_the_order_in_which_pods_come_does_not_matter(order):
    events = [(member, Hello(member, ROSTER)) for member in order]
    assert replay(*events) == [Serve()]


def test_nobody_trains_before_all_serve():
    assert replay(*HELLOS, (0, Serving()), (2, Serving())) == [Serve()]


def test_nobody_leaves_before_all_are_done():
    assert replay(*HELLOS, *everybody(Serving()), (0, Done()), (1, Done())) == [Serve(), Train()]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        pytest.param((1, None), "trainer 1 (10.0.0.2): its connection broke", id="a broken connection"),
        pytest.param((2, Gone("exit code 3")), "trainer 2 (10.0.0.3): exit code 3", id="a failed trainer"),
    ],
)
@pytest.mark.parametrize(
    "before", [HELLOS, [*HELLOS, *everybody(Serving())], [*HELLOS, *everybody(Serving()), (1, Done())]]
)
def test_one_that_goes_ends_it_for_all(before, event, reason):
    assert replay(*before, event)[-1] == Abort(event[0], reason)


def test_only_the_first_failure_is_told():
    assert replay(*HELLOS, (1, None), (2, None), (0, None)) == [
        Serve(),
        Abort(1, "trainer 1 (10.0.0.2): its connection broke"),
    ]


def test_after_the_end_anybody_may_go():
    told = replay(*HELLOS, *everybody(Serving()), *everybody(Done()), (0, None), (1, None))
    assert told == [Serve(), Train(), Over()]


def test_one_that_goes_before_all_have_come_may_come_again():
    assert replay(HELLOS[0], HELLOS[1], (1, None), HELLOS[1], HELLOS[2]) == [Serve()]


@pytest.mark.parametrize(
    ("hub", "hello", "reason"),
    [
        pytest.param(Hub.waiting_for(ROSTER), Hello(0, ROSTER[:2]), "another list of pods", id="fewer pods"),
        pytest.param(
            Hub.waiting_for(ROSTER), Hello(0, ROSTER[::-1]), "another list of pods", id="another order"
        ),
        pytest.param(
            hub_at(Stage.HERE, Stage.ABSENT, Stage.ABSENT),
            Hello(0, ROSTER),
            "trainer 0 is here already",
            id="twice",
        ),
        pytest.param(
            Hub(ROSTER, (Stage.HERE,) * 3, Abort(1, "x")),
            Hello(0, ROSTER),
            "training was given up: x",
            id="too late",
        ),
    ],
)
def test_refused(hub, hello, reason):
    assert admit(hub, hello) == Refused(reason)


def test_the_hub_knows_who_is_absent():
    assert hub_at(Stage.HERE, Stage.ABSENT, Stage.ABSENT).absent == ("10.0.0.2", "10.0.0.3")
