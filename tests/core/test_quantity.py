"""Amounts are read, added and written as Kubernetes does it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from paddlejob.core.quantity import Quantity, largest, parse, parse_all, total, write_all

WRITTEN = {
    "a number stays": ("2", "2"),
    "a fraction becomes thousandths": ("0.5", "500m"),
    "thousandths become whole": ("1000m", "1"),
    "more than one in thousandths stays so": ("1500m", "1500m"),
    "thousands get their letter": ("3000M", "3G"),
    "binary amounts stay binary": ("4Gi", "4Gi"),
    "a binary fraction gets the smaller letter": ("0.5Gi", "512Mi"),
    "a binary amount below 1024 is a plain number": ("0.5Ki", "512"),
    "a binary amount without a whole multiple is a plain number": ("1.5Ki", "1536"),
    "1024 is not meant binary": ("1024", "1024"),
    "E is exa": ("1E", "1E"),
    "e and digits are an exponent": ("12e2", "1200"),
    "an exponent may be negative": ("1e-3", "1m"),
    "less than a billionth is rounded up": ("0.1n", "1n"),
    "nothing is nothing": ("0", "0"),
    "a point may come first": (".5", "500m"),
    "a point may come last": ("2.", "2"),
    "signs are kept": ("-2", "-2"),
}


@pytest.mark.parametrize(("given", "canonical"), WRITTEN.values(), ids=WRITTEN)
def test_canonical(given, canonical):
    assert str(parse(given)) == canonical


def test_numbers_of_yaml_are_read_too():
    assert [str(parse(given)) for given in (2, 0.5)] == ["2", "500m"]


@pytest.mark.parametrize("given", ["", "Gi", "1 Gi", "1gi", "1.2.3", "1ee3", "--1", "1Kii"])
def test_what_is_no_amount_is_refused(given):
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(given)


SUMS = {
    "binary and binary": (("1Gi", "512Mi"), "1536Mi"),
    "the first decides how it is counted": (("1Gi", "1G"), "2073741824"),
    "unless it is nothing": (("0", "1Gi"), "1Gi"),
    "thousandths add up to one": (("100m", "900m"), "1"),
    "nothing is lost": (("1n", "1E"), "1000000000000000000000000001n"),
}


@pytest.mark.parametrize(("parts", "written"), SUMS.values(), ids=SUMS)
def test_sums(parts, written):
    assert write_all(total({"x": parse(part)} for part in parts)) == {"x": written}


def test_multiples():
    assert str(parse("1500m") * 4) == "6"


def test_maps_are_added_and_compared_by_resource():
    parts = (parse_all({"cpu": "1", "memory": "1Gi"}), parse_all({"cpu": "500m", "nvidia.com/gpu": 2}))
    assert write_all(total(parts)) == {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
    assert write_all(largest(parts)) == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}


def test_the_order_of_addition_does_not_matter_for_the_amount():
    one, other = parse("1Gi"), parse("300m")
    assert (one + other).amount == (other + one).amount == Fraction(2**30) + Fraction(3, 10)


def test_a_fraction_of_a_binary_amount_is_written_in_decimals():
    assert str(Quantity(Fraction(2049, 2), binary=True)) == "1024500m"
