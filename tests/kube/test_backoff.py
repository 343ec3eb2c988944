from __future__ import annotations

import random

import pytest

from paddlejob.kube import errors
from paddlejob.kube.backoff import Backoff, RetryPolicy, is_safe_to_repeat

DEFAULT = RetryPolicy()
UNAVAILABLE = errors.api_error(errors.Status(503))
UNAVAILABLE_FOR_A_SECOND = errors.api_error(errors.Status(503), retry_after_seconds=1)
SLOW_DOWN = errors.api_error(errors.Status(429))
LOST = errors.TransportError("reset")


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 1), (2, 2), (5, 16), (6, 30), (10**9, 30)], ids=str
)
def test_delays_double_up_to_the_bound(failures, seconds):
    assert Backoff(1.0, 30.0).base_seconds(failures) == seconds


def test_jitter_only_lengthens_a_delay():
    delays = [Backoff(1.0, 30.0).delay_seconds(3, random.Random(seed)) for seed in range(100)]
    assert 4 <= min(delays) < 4.1 < 4.9 < max(delays) <= 5


def delay(error, *, reading=True, tries=1, elapsed_seconds=0.0, policy=DEFAULT, seed=0):
    rng = random.Random(seed)
    return policy.delay_seconds(error, reading=reading, tries=tries, elapsed_seconds=elapsed_seconds, rng=rng)


@pytest.mark.parametrize(
    ("error", "reading", "writing"),
    [
        pytest.param(SLOW_DOWN, True, True, id="429 was refused before it began"),
        pytest.param(
            UNAVAILABLE_FOR_A_SECOND, True, True, id="503 with Retry-After was refused before it began"
        ),
        pytest.param(UNAVAILABLE, True, False, id="503 without Retry-After may have taken effect"),
        pytest.param(LOST, True, False, id="a lost answer may have taken effect"),
        pytest.param(errors.TransportTimeoutError(), True, False, id="a late answer may have taken effect"),
        pytest.param(errors.CredentialsError(), False, False, id="no credentials now, none in a second"),
        pytest.param(errors.ResponseTooLargeError(), False, False, id="too large now, too large in a second"),
        pytest.param(errors.api_error(errors.Status(500)), False, False, id="500 is for the caller"),
        pytest.param(errors.api_error(errors.Status(409)), False, False, id="409 is for the caller"),
        pytest.param(errors.UndecodableError(), False, False, id="an answer that does not decode stays so"),
    ],
)
def test_is_safe_to_repeat(error, reading, writing):
    assert is_safe_to_repeat(error, reading=True) is reading
    assert is_safe_to_repeat(error, reading=False) is writing


@pytest.mark.parametrize("seed", range(20))
def test_never_earlier_than_the_server_asked(seed):
    error = errors.api_error(errors.Status(429), retry_after_seconds=2)
    assert 2 <= delay(error, tries=3, seed=seed) <= 3


@pytest.mark.parametrize("seed", range(20))
def test_the_delay_doubles_up_to_its_bound(seed):
    policy = RetryPolicy(max_tries=20, max_total_seconds=1000)
    for tries, least in [(1, 0.2), (2, 0.4), (3, 0.8), (10, 10.0), (19, 10.0)]:
        assert least <= delay(LOST, tries=tries, policy=policy, seed=seed) <= least * 1.5


def test_retry_after_zero_is_spread_too():
    error = errors.api_error(errors.Status(429), retry_after_seconds=0)
    assert 0 < delay(error) <= 0.1


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"error": LOST, "tries": 5}, id="after the last try"),
        pytest.param({"error": LOST, "elapsed_seconds": 29.9}, id="when the time is over"),
        pytest.param(
            {"error": errors.api_error(errors.Status(429), retry_after_seconds=31)},
            id="when the server asks for more time than there is",
        ),
    ],
)
def test_the_caller_decides(arguments):
    assert delay(**arguments) is None
