from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Snapshot
from paddlejob.training.findings import Slowdown
from paddlejob.training.stragglers import WINDOW_STEPS, StepTime, StepTimer, find_stragglers
from simkube.build import JobBuilder, job, snapshot


def named(*times: tuple[float, float] | tuple[float, float, int]) -> list[str]:
    ranks = [(f"worker-{index}", StepTime(*time)) for index, time in enumerate(times)]
    return [straggler.name for straggler in find_stragglers(ranks)]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        pytest.param([(0.046, 0.214), (0.193, 0.069)], ["worker-1"], id="two ranks, as measured with Paddle"),
        pytest.param([(0.05, 0.25), (0.06, 0.24)], [], id="two that are alike"),
        pytest.param([(0.05, 0.25)] * 3 + [(0.15, 0.15)], ["worker-3"], id="one of four"),
        pytest.param([(0.05, 0.25)] * 2 + [(0.15, 0.15)] * 2, ["worker-2", "worker-3"], id="two of four"),
        pytest.param([(0.05, 0.25)], [], id="one alone"),
        pytest.param([], [], id="nobody"),
        pytest.param([(0.05, 0.05), (0.09, 0.30)], [], id="one that waits as well"),
        pytest.param([(0.001, 0.9), (0.003, 0.898)], [], id="three times next to nothing"),
        pytest.param([(0.1, 0.02), (0.1, 0.02), (0.3, 0.01)], [], id="three that do not wait for each other"),
        pytest.param([(0.1, 0.02), (0.3, 0.01)], [], id="two that do not wait for each other"),
        pytest.param([(0.1, 0.2), (0.1, 0.22), (0.3, 0.05)], ["worker-2"], id="windows of other steps"),
        pytest.param([(0.05, 0.25, 0), (0.2, 0.1, 1)], [], id="two stages of a pipeline"),
        pytest.param(
            [(0.05, 0.25, 0)] * 2 + [(0.2, 0.1, 1)] * 2, [], id="a stage with more layers, two ranks each"
        ),
        pytest.param(
            [(0.05, 0.25, 0), (0.1, 0.2, 0), (0.2, 0.1, 1), (0.2, 0.1, 1)], ["worker-1"], id="within a stage"
        ),
    ],
)
def test_who_works_longest_and_waits_least_is_the_straggler(pairs: list, expected: list):
    assert named(*pairs) == expected


def test_the_sentence_has_both_times():
    [straggler] = find_stragglers([("a", StepTime(0.05, 0.25)), ("b on node-2", StepTime(0.2, 0.1))])
    assert (
        str(straggler)
        == "b on node-2 computes for 0.2s per step, most other ranks for 0.05s: they wait for it"
    )


def test_the_sentence_names_the_stage_of_a_pipeline():
    times = StepTime(0.05, 0.25, 1), StepTime(0.2, 0.1, 1), StepTime(0.1, 0.2, 0)
    [straggler] = find_stragglers(zip("abc", times, strict=True))
    assert str(straggler).endswith("most other ranks of stage 1 for 0.05s: they wait for it")


def test_times_are_averaged_over_the_last_steps():
    timer = StepTimer()
    own = 0.0
    for step in range(0, 3 * WINDOW_STEPS, 5):
        timer.add_report(step, own, step * 0.3, stage=1)
        timer.add_report(step, own, step * 0.3 + 9.9, stage=1)
        assert (timer.last is None) == (step < WINDOW_STEPS)
        own += 5 * (0.1 if step < WINDOW_STEPS else 0.4)
    assert timer.last is not None
    assert timer.last == StepTime(pytest.approx(0.4), pytest.approx(0.3), 1)
    timer.add_report(1, 0.0, 0.0)
    assert timer.last is None


def test_a_rank_that_becomes_slow_is_named_within_30_steps():
    timers, spent = {"worker-0": StepTimer(), "worker-1": StepTimer()}, {"worker-0": 0.0, "worker-1": 0.0}
    found: dict[str, int] = {}
    for step in range(200):
        for name, timer in timers.items():
            spent[name] += 0.4 if (name, step >= 100) == ("worker-1", True) else 0.1
            if step % 8 == 0:
                timer.add_report(step, spent[name], step * 0.5 - spent[name])
        if step % 8 == 0 and all(timer.last for timer in timers.values()):
            for each in find_stragglers([(name, timer.last) for name, timer in timers.items()]):
                found.setdefault(each.name, step)
    assert found.keys() == {"worker-1"}
    assert found["worker-1"] < 130


def test_a_known_straggler_is_one_until_it_is_clearly_not():
    def names_of(own: float, known: set[str]) -> list[str]:
        ranks = [("a", StepTime(0.1, 0.2)), ("b", StepTime(own, 0.3 - own))]
        return [each.name for each in find_stragglers(ranks, known)]

    assert (names_of(0.14, set()), names_of(0.14, {"b"})) == ([], ["b"])
    assert names_of(0.11, {"b"}) == []


# --- what becomes of the job

SLOW = Slowdown(0, "demo-worker-1", "demo-worker-1 (rank 1) on node-b works 0.4s a step by itself", True)


def slowed(of: JobBuilder, slow: Slowdown = SLOW) -> Snapshot:
    """A running job whose worker-1 is on node-b, and slow."""
    builder = snapshot(of.status(phase="Running")).pods_running().config({})
    builder.findings = (slow,)
    built = builder.build()
    pods = (
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="node-b"))
        if pod.metadata.name == "demo-worker-1"
        else pod
        for pod in built.pods
    )
    return msgspec.structs.replace(built, pods=tuple(pods))


def test_a_straggler_is_in_the_message_and_changes_nothing_else():
    status = plan(slowed(job().worker(2))).status
    assert (status.phase, status.attempt) == (Phase.RUNNING, 0)
    assert status.message == f"2 workers running; {SLOW.message}"


def test_a_job_that_asks_for_it_is_restarted_away_from_the_node_of_the_straggler():
    status = plan(slowed(job().worker(2).spec(stragglerPolicy="Replace"))).status
    assert (status.phase, status.reason, status.attempt) == (Phase.RESTARTING, "Straggler", 1)
    failure = status.last_failure
    assert failure is not None
    assert (failure.pod, failure.reason, failure.counted) == ("demo-worker-1", "Straggler", True)
    assert status.suspect_nodes == ("node-b",)


def test_a_worker_that_no_other_depends_on_is_replaced_alone():
    decided = plan(slowed(job().ps(1).worker(2).spec(withGloo=0, stragglerPolicy="Replace")))
    assert decided.status.reason == "Straggler"
    assert [action.name for stage in decided.stages for action in stage] == ["demo-worker-1"]


@pytest.mark.parametrize(
    ("slow", "status", "spec"),
    [
        pytest.param(msgspec.structs.replace(SLOW, is_lasting=False), {}, {}, id="not for long"),
        pytest.param(SLOW, {}, {"backoffLimit": 0}, id="no restarts left"),
        pytest.param(
            SLOW,
            {"lastFailure": {"attempt": 0, "pod": "demo-worker-1", "reason": "Straggler"}},
            {},
            id="slow again after it was replaced",
        ),
        pytest.param(SLOW, {"suspectNodes": ["node-b"]}, {}, id="on a node that it was to avoid"),
        pytest.param(msgspec.structs.replace(SLOW, pod="demo-worker-7"), {}, {}, id="a pod that is gone"),
    ],
)
def test_a_straggler_is_not_replaced_where_that_is_no_help(slow, status, spec):
    decided = plan(
        slowed(job().worker(2).spec(stragglerPolicy="Replace", **spec).status(**status), slow)
    ).status
    assert (decided.phase, decided.attempt) == (Phase.RUNNING, 0)
