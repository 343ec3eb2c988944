from __future__ import annotations

import pytest

from paddlejob.core.network import choose_base_port


def test_a_base_port_is_stable_for_a_job():
    assert choose_base_port("u1", (35000, 65000), set()) == choose_base_port("u1", (35000, 65000), set())


def test_blocks_never_overlap_until_the_range_is_used_up():
    taken: set[int] = set()
    while (port := choose_base_port(f"u{len(taken)}", (40000, 40099), taken)) is not None:
        assert 40000 <= port <= 40080
        taken.add(port)
    assert sorted(taken) == [40000, 40020, 40040, 40060, 40080]


def test_a_foreign_block_that_is_not_aligned_is_respected():
    assert choose_base_port("u", (40000, 40039), {40010}) is None


@pytest.mark.parametrize("declared", [40000, 40019])
def test_a_block_with_a_port_of_a_sidecar_is_passed_over(declared):
    assert choose_base_port("u", (40000, 40039), set(), {declared}) == 40020


def test_a_sidecar_in_every_block_leaves_none():
    assert choose_base_port("u", (40000, 40039), set(), {40005, 40025}) is None


def test_a_range_smaller_than_a_block_gives_none():
    assert choose_base_port("u", (40000, 40010), set()) is None
