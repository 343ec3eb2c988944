"""Amounts of resources as Kubernetes writes them: read, added exactly, and written back its way."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

_TEXT = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
)
_DECIMAL = {suffix: Fraction(1000) ** power for power, suffix in enumerate(("", *"kMGTPE"))}
_BELOW_ONE = {"m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
_BINARY = {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_FINEST = _BELOW_ONE["n"]


class Quantity(msgspec.Struct, frozen=True):
    """An exact amount, and whether its author counted in powers of 1024."""

    amount: Fraction
    binary: bool = False

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.amount + other.amount, self._counts_as(other))

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.amount * times, self.binary)

    def __str__(self) -> str:
        """Return the canonical text: no fraction, and the largest suffix that allows for that."""
        steps = math.ceil(self.amount / _FINEST)
        amount = steps * _FINEST
        binary = self.binary and amount.denominator == 1 and abs(amount) >= 1024
        table = _BINARY if binary else {**_DECIMAL, **_BELOW_ONE}
        for suffix, unit in sorted(table.items(), key=lambda entry: entry[1], reverse=True):
            if amount and (amount / unit).denominator == 1:
                return f"{amount / unit}{suffix}"
        return str(amount.numerator)

    def larger(self, other: Quantity) -> Quantity:
        """Return the larger of two amounts."""
        return self if self.amount >= other.amount else other

    def _counts_as(self, other: Quantity) -> bool:
        return self.binary if self.amount else other.binary


ZERO = Quantity(Fraction(0))

Resources = Mapping[str, Quantity]


def parse(written: object) -> Quantity:
    """Return what a text or number such as 2, 0.5, 500m, 4Gi or 1e3 means.

    Raises ValueError when it means nothing.
    """
    found = _TEXT.fullmatch(str(written).strip())
    if found is None:
        raise ValueError(f"{written!r} is not a quantity; write one such as 2, 500m or 4Gi")
    number, suffix = Fraction(found["number"]), found["suffix"] or ""
    if suffix in _BINARY:
        return Quantity(number * _BINARY[suffix], binary=True)
    if suffix[1:]:
        return Quantity(number * Fraction(10) ** int(suffix[1:]))
    return Quantity(number * {**_DECIMAL, **_BELOW_ONE, "E": _DECIMAL["E"]}[suffix])


def parse_all(written: Mapping[str, object]) -> dict[str, Quantity]:
    """Return a map of amounts. Raises ValueError."""
    return {resource: parse(amount) for resource, amount in written.items()}


def total(parts: Iterable[Resources]) -> dict[str, Quantity]:
    """Return the sum of several maps of amounts."""
    summed: dict[str, Quantity] = {}
    for part in parts:
        for resource, amount in part.items():
            summed[resource] = summed.get(resource, ZERO) + amount
    return summed


def largest(parts: Iterable[Resources]) -> dict[str, Quantity]:
    """Return the largest amount of each resource."""
    found: dict[str, Quantity] = {}
    for part in parts:
        for resource, amount in part.items():
            found[resource] = found[resource].larger(amount) if resource in found else amount
    return found


def write_all(resources: Resources) -> dict[str, str]:
    """Return a map of amounts as Kubernetes writes it, in the order of the names."""
    return {resource: str(resources[resource]) for resource in sorted(resources)}
