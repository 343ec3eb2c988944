"""Parses Kubernetes quantities, adds them exactly, and formats them in canonical form.

Grammar, precision and cap match Kubernetes' `resource.ParseQuantity`:

- a quantity is rounded up to the next nano (10^-9), away from zero;
- a quantity with a binary suffix is silently capped at 2^63-1; a decimal one is not capped.

Kubernetes does not limit the number of digits, and limits the exponent only to 32 bits, so a short text can
denote a number with gigabytes of digits. Here a text has at most 64 characters and an exponent at most two
digits. Every amount is therefore below 10^163, and parsing takes microseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

MAX_LENGTH = 64
PATTERN = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
"""The grammar of quantities such as 2, 0.5, 500m, 4Gi and 1e3; valid in Python and in OpenAPI."""

_TEXT = re.compile(PATTERN)
_DECIMAL = {
    suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)
}
_BINARY = {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_FINEST = _DECIMAL["n"]
_BINARY_CAP = Fraction(2**63 - 1)


class Quantity(msgspec.Struct, frozen=True):
    """An exact amount, and whether it was written with a binary suffix."""

    amount: Fraction
    binary: bool = False

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.amount + other.amount, self.binary if self.amount else other.binary)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.amount * times, self.binary)

    def __str__(self) -> str:
        """Return the canonical text: the largest suffix without a fraction."""
        amount = self.amount
        binary = self.binary and amount.denominator == 1 and abs(amount) >= 1024
        table = _BINARY if binary else _DECIMAL
        for suffix, unit in sorted(table.items(), key=lambda entry: entry[1], reverse=True):
            if amount and (amount / unit).denominator == 1:
                return f"{amount / unit}{suffix}"
        return str(amount.numerator)

    def larger(self, other: Quantity) -> Quantity:
        return self if self.amount >= other.amount else other


ZERO = Quantity(Fraction(0))

Resources = Mapping[str, Quantity]


def parse(written: object) -> Quantity:
    """Parse a text or number such as 2, 0.5, 500m, 4Gi or 1e3; None is zero, as in Kubernetes.

    Raises ValueError with a message for the user.
    """
    if written is None:
        return ZERO
    sign, number, suffix = _split(_text(written))
    binary = suffix in _BINARY
    amount = min(number * _BINARY[suffix], _BINARY_CAP) if binary else number * _decimal_unit(suffix)
    return Quantity(sign * math.ceil(amount / _FINEST) * _FINEST, binary)


def in_units_of(amount: object, divisor: object) -> str:
    """Divide an amount by a divisor and round up, as the kubelet does for a resourceFieldRef.

    Raises ValueError.
    """
    unit = parse(divisor).amount or Fraction(1)
    return str(math.ceil(parse(amount).amount / unit))


def parse_all(written: Mapping[str, object]) -> dict[str, Quantity]:
    """Parse a map of quantities. Raises ValueError."""
    return {resource: parse(amount) for resource, amount in written.items()}


def total(parts: Iterable[Resources]) -> dict[str, Quantity]:
    """Return the sum of each resource."""
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
    """Format a map of quantities, sorted by name."""
    return {resource: str(resources[resource]) for resource in sorted(resources)}


def _text(written: object) -> str:
    """Return a quantity as text; check its length before any computation."""
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
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity; write one such as 2, 500m or 4Gi")
    return -1 if text.startswith("-") else 1, Fraction(found[1]), found[3] or ""


def _decimal_unit(suffix: str) -> Fraction:
    return _DECIMAL[suffix] if suffix in _DECIMAL else Fraction(10) ** int(suffix[1:])
