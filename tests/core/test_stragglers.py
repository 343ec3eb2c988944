from __future__ import annotations

import pytest

from paddlejob.core.recording.stragglers import WINDOW_STEPS, StepTime, StepTimer, find_stragglers


def named(*pairs: tuple[float, float]) -> list[str]:
    ranks = [(f"worker-{index}", StepTime(*pair)) for index, pair in enumerate(pairs)]
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


def test_times_are_averaged_over_windows():
    timer = StepTimer()
    for step in range(0, 3 * WINDOW_STEPS, 10):
        timer.hear(step, step * 0.1, step * 0.3)
    assert timer.windows == 2
    assert timer.last is not None
    assert (timer.last.own, timer.last.waiting) == (pytest.approx(0.1), pytest.approx(0.3))
    timer.hear(1, 0.0, 0.0)
    assert (timer.last, timer.windows) == (None, 0)
