"""Hundreds of histories, each from one seed. `python tests/sim/soak.py SEED` plays one again."""

from __future__ import annotations

import math

import pytest

from sim.scenario import fault_of
from sim.simulation import SEEDS, play

SEEDS_PER_TEST = 5
LONG = [seed for seed in range(SEEDS) if 600 < fault_of(seed).until_seconds < math.inf]
"""Histories with a fault that lasts for hours. They take several times as long as others."""
SHORT = sorted({*range(SEEDS)} - {*LONG})


def batches(seeds: list[int]) -> list[list[int]]:
    return [seeds[at : at + SEEDS_PER_TEST] for at in range(0, len(seeds), SEEDS_PER_TEST)]


@pytest.mark.parametrize(
    "seeds",
    [*batches(SHORT), *(pytest.param(each, marks=pytest.mark.slow) for each in batches(LONG))],
    ids=lambda seeds: f"{seeds[0]} to {seeds[-1]}",
)
@pytest.mark.timeout(600)
def test_histories(seeds):
    for seed in seeds:
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}; play it again with: python tests/sim/soak.py {seed}")
            raise


def test_one_seed_is_one_history():
    first, second = play(7), play(7)
    assert [(w.at_seconds, w.verb, w.name) for w in first.server.log.writes] == [
        (w.at_seconds, w.verb, w.name) for w in second.server.log.writes
    ]
