"""Hundreds of histories, each from one seed. `python tests/sim/soak.py SEED` plays one again."""

from __future__ import annotations

import pytest

from sim.simulation import SEEDS, play

SEEDS_PER_TEST = 5


@pytest.mark.parametrize("batch", range(SEEDS // SEEDS_PER_TEST))
@pytest.mark.timeout(600)
def test_histories(batch):
    for seed in range(batch * SEEDS_PER_TEST, (batch + 1) * SEEDS_PER_TEST):
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
