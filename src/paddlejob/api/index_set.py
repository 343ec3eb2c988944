"""Encodes the index sets in a status as compact text such as `0-2,5`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator


def parse(text: str, below: int) -> frozenset[int]:
    """Return the indexes in a text that are below a bound; ignore invalid parts."""
    return frozenset(itertools.chain.from_iterable(_span(part, below) for part in text.split(",")))


def compact(indexes: Iterable[int]) -> str:
    return ",".join(_spans(sorted(set(indexes))))


def _span(part: str, below: int) -> range:
    first, _, last = part.partition("-")
    bounds = (first, last or first)
    if not all(bound.isascii() and bound.isdecimal() and len(bound) < 10 for bound in bounds):
        return range(0)
    return range(int(bounds[0]), min(int(bounds[1]) + 1, below))


def _spans(ordered: list[int]) -> Iterator[str]:
    for _, run in itertools.groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        members = [index for _, index in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"
