from __future__ import annotations

import pytest

from paddlejob.api.index_set import compact, parse

SETS = {"": set(), "0": {0}, "0-2,5": {0, 1, 2, 5}, "1,3,5-6": {1, 3, 5, 6}}


@pytest.mark.parametrize(("text", "indexes"), SETS.items())
def test_a_set_is_written_and_read_back(text, indexes):
    assert compact(indexes) == text
    assert parse(text, 10) == indexes


@pytest.mark.parametrize("text", ["x", "-", "3-1", "-2", "1-x", "\u0663", "99999999999", ",,"])
def test_invalid_indexes_are_ignored(text):
    assert parse(text, 10) == frozenset()


def test_no_index_beyond_the_bound_is_even_looked_at():
    assert parse("1-999999999", 4) == {1, 2, 3}
