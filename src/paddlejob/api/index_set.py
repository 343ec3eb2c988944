"""Encodes the index sets in a status as compact text such as `0-2,5`, and moved ranks such as `1:4`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping


def parse(text: str, below: int) -> frozenset[int]:
    """Return the indexes in a text that are below a bound; ignore invalid parts."""
    return frozenset(itertools.chain.from_iterable(_span(part, below) for part in text.split(",")))


def compact(indexes: Iterable[int]) -> str:
    return ",".join(_spans(sorted(set(indexes))))


def parse_moves(text: str) -> dict[int, int]:
    """Return the pods that hold moved ranks, by rank; empty if the text is invalid."""
    pairs = [part.split(":") for part in text.split(",") if part]
    numbers = [number for pair in pairs for number in pair]
    is_valid = all(len(pair) == 2 for pair in pairs)
    if not is_valid or not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in numbers):
        return {}
    return {int(rank): int(pod) for rank, pod in pairs}


def format_moves(moves: Mapping[int, int]) -> str:
    return ",".join(f"{rank}:{pod}" for rank, pod in sorted(moves.items()) if rank != pod)


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
