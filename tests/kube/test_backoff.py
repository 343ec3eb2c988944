from __future__ import annotations

import random

import pytest

from paddlejob.kube.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 1), (2, 2), (5, 16), (6, 30), (10**9, 30)], ids=str
)
def test_delays_double_up_to_the_bound(failures, seconds):
    assert Backoff(1.0, 30.0).base_seconds(failures) == seconds


def test_jitter_only_lengthens_a_delay():
    delays = [Backoff(1.0, 30.0).delay_seconds(3, random.Random(seed)) for seed in range(100)]
    assert 4 <= min(delays) < 4.1 < 4.9 < max(delays) <= 5
