"""Amounts as Kubernetes writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from paddlejob.local.quantity import in_units_of, parse

AMOUNTS = {
    "2": "2",
    "0.5": "0.5",
    "500m": "0.5",
    "4Ki": "4096",
    "1M": "1000000",
    "1e3": "1000",
    "2E": "2e18",
    "100n": "1e-7",
}


@pytest.mark.parametrize(("text", "number"), AMOUNTS.items(), ids=AMOUNTS)
def test_amounts(text, number):
    assert parse(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "two", "4 Gi", "1KiB"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="is not an amount"):
        parse(text)


def test_units_are_rounded_up_and_nothing_is_divided_by_nothing():
    assert in_units_of("1500m", "1") == "2"
    assert in_units_of("3", "0") == "3"
