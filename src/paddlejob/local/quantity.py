"""Amounts as Kubernetes writes them: 2, 500m, 4Gi, 1e3."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")


def parse(text: str) -> Decimal:
    """Return an amount as a number. Raises ValueError."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not an amount")
    number, suffix = found[1], found[2] or ""
    if suffix[:1] in ("e", "E") and suffix[1:]:
        return Decimal(number + suffix)
    return Decimal(number) * _FACTORS[suffix]


def in_units_of(amount: str, divisor: str) -> str:
    """Return an amount in units of another one, rounded up, as the kubelet hands it to a container."""
    unit = parse(divisor)
    return str(math.ceil(parse(amount) / (unit or Decimal(1))))
