from __future__ import annotations

from itertools import pairwise

import pytest

from paddlejob.plainjob.data.layout import (
    Cut,
    Piece,
    Range,
    Source,
    check_enough,
    check_filled,
    cuts,
    merge,
    ranges,
    targets,
)
from paddlejob.plainjob.errors import DataError


def source(name: str, size: int) -> Source:
    return Source(name=name, origin=f"/data/{name}", size=size, modified_ns=1)


@pytest.mark.parametrize(
    ("total", "shards", "expected"),
    [
        pytest.param(9, 3, (0, 3, 6, 9), id="what divides evenly is cut evenly"),
        pytest.param(10, 3, (0, 4, 7, 10), id="the first shards take the remainder"),
        pytest.param(11, 3, (0, 4, 8, 11), id="no shard is more than one longer than another"),
        pytest.param(3, 3, (0, 1, 2, 3), id="as many lines as shards give one each"),
        pytest.param(7, 1, (0, 7), id="one shard is everything"),
    ],
)
def test_targets(total, shards, expected):
    assert targets(total, shards) == expected


@pytest.mark.parametrize("total", range(5, 40))
def test_parts_differ_by_one_at_most(total):
    borders = targets(total, 5)
    sizes = {last - first for first, last in pairwise(borders)}
    assert max(sizes) - min(sizes) <= 1
    assert borders[-1] == total


@pytest.mark.parametrize(
    ("totals", "shards", "expected"),
    [
        pytest.param([9], 3, [(0, 0), (0, 3), (0, 6), (0, 9)], id="one file is cut inside"),
        pytest.param([3, 3, 3], 3, [(0, 0), (1, 0), (2, 0), (2, 3)], id="equal files are not cut at all"),
        pytest.param(
            [4, 4], 3, [(0, 0), (0, 3), (1, 2), (1, 4)], id="a border falls where the run of lines says"
        ),
        pytest.param([0, 4, 0], 2, [(1, 0), (1, 2), (2, 0)], id="empty files have no border inside"),
    ],
)
def test_cuts(totals, shards, expected):
    assert cuts(totals, shards) == tuple(Cut(*pair) for pair in expected)


@pytest.mark.parametrize(
    ("totals", "shards", "expected"),
    [
        pytest.param(
            [9], 3, [[(0, 0, 3)], [(0, 3, 6)], [(0, 6, 9)]], id="one file gives a range to each shard"
        ),
        pytest.param(
            [4, 4], 3, [[(0, 0, 3)], [(0, 3, 4), (1, 0, 2)], [(1, 2, 4)]], id="a shard may span files"
        ),
        pytest.param([2, 0, 2], 2, [[(0, 0, 2)], [(2, 0, 2)]], id="an empty file is in no shard"),
    ],
)
def test_ranges(totals, shards, expected):
    found = ranges(totals, cuts(totals, shards))
    assert found == tuple(tuple(Range(*part) for part in shard) for shard in expected)


def test_groups_are_merged_shard_by_shard():
    a, b = Piece(source("a", 2), 0, 1), Piece(source("b", 2), 0, 1)
    assert merge([[(a,), ()], [(b,), (b,)]]) == ((a, b), (b,))


def test_more_shards_than_lines_is_refused():
    with pytest.raises(
        DataError, match=r"SPLIT_COUNT is 3, but train.txt has only 2 lines: lower SPLIT_COUNT to 2"
    ):
        check_enough(2, 3, "train.txt")


def test_an_empty_shard_is_refused():
    with pytest.raises(DataError, match=r"shard 1 of train.txt would be empty"):
        check_filled([(Piece(source("a", 2), 0, 2),), ()], "train.txt")
