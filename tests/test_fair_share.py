from __future__ import annotations

import pytest

from paddlejob.fair_share import FairRate, FairShare


def taken(share: FairShare, group: str) -> int:
    """Return how many slots the group gets."""
    count = 0
    while share.take(group):
        count += 1
    return count


@pytest.mark.parametrize("size", [1, 2, 3, 8, 32, 33, 1500])
def test_a_group_alone_gets_half_of_the_slots(size):
    assert taken(FairShare(size), "a") == (size + 1) // 2


def test_each_group_gets_half_of_the_slots_that_are_free():
    share = FairShare(32)
    assert [taken(share, group) for group in "abcdefg"] == [16, 8, 4, 2, 1, 1, 0]


def test_a_slot_that_is_given_back_can_be_taken_again():
    share = FairShare(4)
    assert (taken(share, "a"), taken(share, "b")) == (2, 1)
    share.give_back("a")
    assert share.free == 2
    assert (taken(share, "b"), share.free) == (1, 1)


def test_a_rate_is_one_of_all_groups_and_of_each():
    rate = FairRate(8, seconds=2.0)
    assert [rate.take("a", 10.0) for _ in range(6)] == [True] * 4 + [False] * 2
    assert [rate.take("b", 11.0) for _ in range(3)] == [True] * 2 + [False]
    assert not rate.take("a", 11.9)
    assert [rate.take("a", 12.0) for _ in range(4)] == [True] * 3 + [False]
