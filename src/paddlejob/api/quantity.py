"""Amounts of resources as Kubernetes writes them: read, added exactly, and written in canonical form.

The grammar, the precision and the cap are those of Kubernetes' `resource.ParseQuantity`:

- an amount is rounded up to the next nano (10^-9), away from zero;
- one with a binary suffix is capped at 2^63-1, silently; a decimal one is not capped.

Kubernetes limits neither the number of digits nor, up to 32 bits, the exponent, so that a text of a few bytes
can stand for a number of gigabytes. Here a text has at most 64 characters and an exponent at most two digits,
which makes every amount smaller than 10^163: whatever the text, reading it takes microseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

MAX_LENGTH = 64
PATTERN = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
"""How Kubernetes writes amounts: 2, 0.5, 500m, 4Gi, 1e3. Valid in Python and in OpenAPI."""

_TEXT = re.compile(PATTERN)
_DECIMAL = {
    suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)
}
_BINARY = {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_FINEST = _DECIMAL["n"]
_BINARY_CAP = Fraction(2**63 - 1)


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
        amount = self.amount
        binary = self.binary and amount.denominator == 1 and abs(amount) >= 1024
        table = _BINARY if binary else _DECIMAL
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
    """Return what a text or number such as 2, 0.5, 500m, 4Gi or 1e3 means; null is nothing, as in Kubernetes.

    Raises ValueError for everything else, with a sentence for its author.
    """
    if written is None:
        return ZERO
    sign, number, suffix = _split(_text(written))
    binary = suffix in _BINARY
    amount = min(number * _BINARY[suffix], _BINARY_CAP) if binary else number * _decimal_unit(suffix)
    return Quantity(sign * math.ceil(amount / _FINEST) * _FINEST, binary)


def in_units_of(amount: object, divisor: object) -> str:
    """Return an amount in units of another one, rounded up, as the kubelet hands it to a container.

    Raises ValueError.
    """
    unit = parse(divisor).amount or Fraction(1)
    return str(math.ceil(parse(amount).amount / unit))


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


def _text(written: object) -> str:
    """Return an amount as text. Its length is checked before anything is computed from it."""
    match written:
        case str():
            text = written.strip()
        case int() | float() if not isinstance(written, bool) and abs(written) < 10**MAX_LENGTH:
            text = str(written)
        case _:
            raise ValueError("is not a quantity; write a text or number such as 2, 500m or 4Gi")
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"is not a quantity: it has {len(text)} characters, at most {MAX_LENGTH} are allowed"
        )
    return text


def _split(text: str) -> tuple[int, Fraction, str]:
    """Return sign, number and suffix."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity; write one such as 2, 500m or 4Gi")
    return -1 if text.startswith("-") else 1, Fraction(found[1]), found[3] or ""


def _decimal_unit(suffix: str) -> Fraction:
    return _DECIMAL[suffix] if suffix in _DECIMAL else Fraction(10) ** int(suffix[1:])
