"""Amounts are read, added and written as Kubernetes does it."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlejob.api.quantity import (
    MAX_LENGTH,
    Quantity,
    in_units_of,
    largest,
    parse,
    parse_all,
    total,
    write_all,
)

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
    "less than a billionth below zero is rounded away from zero": ("-0.1n", "-1n"),
    "a digit beyond nano is rounded up": ("1.0000000001", "1000000001n"),
    "a binary amount is capped as Kubernetes caps it": ("8Ei", "9223372036854775807"),
    "below zero too": ("-9Ei", "-9223372036854775807"),
    "a decimal amount is not capped": ("9223372036854775808", "9223372036854775808"),
    "a large exponent is the largest suffix": ("1e21", "1000E"),
    "the largest exponent": ("1e99", f"1{'0' * 81}E"),
    "the smallest exponent": ("1e-99", "1n"),
    "blanks around it do not count": (" 1Gi ", "1Gi"),
}


@pytest.mark.parametrize(("text", "canonical"), WRITTEN.values(), ids=WRITTEN)
def test_canonical(text, canonical):
    assert str(parse(text)) == canonical


def test_numbers_of_yaml_are_read_too():
    assert [str(parse(number)) for number in (2, 0.5)] == ["2", "500m"]


def test_null_is_nothing():
    assert parse(None) == parse("0")


NOT_QUANTITIES = {
    **{text or "empty": text for text in ("", "Gi", "1 Gi", "1gi", "1.2.3", "1ee3", "--1", "1Kii", ".", "+")},
    **{text: text for text in ("1e100", "1e-100", "1e999999999", "1E+999999999", "nan", "inf", "١", "1_000")},
    "many digits": "9" * 65,
    "a megabyte of digits": "9" * 2**20,
    "a megabyte of blanks inside": f"1{' ' * 2**20}Gi",
    "a number of many digits": 10**5000,
    "a great float": 1e300,
    "not a number": float("nan"),
    "a truth": True,
    "a list": ["1"],
    "an object": {"cpu": "1"},
}


@pytest.mark.parametrize("written", NOT_QUANTITIES.values(), ids=NOT_QUANTITIES)
def test_an_invalid_quantity_is_rejected(written):
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(written)


@settings(max_examples=5 * settings().max_examples)
@given(st.text() | st.from_regex(r"[+-]?[0-9.]*[eEinumkKMGTP]*[+-]?[0-9]*", fullmatch=True))
def test_any_text_is_a_quantity_or_a_value_error_quickly(text):
    with suppress(ValueError):
        assert str(parse(text))


@given(st.integers(MAX_LENGTH, 10**6), st.sampled_from("0123456789.eE+-kGi"))
def test_a_too_long_text_is_rejected(length, character):
    with pytest.raises(ValueError, match="is not a quantity"):
        parse("1" + character * length)


@given(
    st.fractions(min_value=-(10**15), max_value=10**15, max_denominator=1000),
    st.sampled_from(["", "Ki", "k"]),
)
def test_a_formatted_quantity_parses_to_the_same_value(number, suffix):
    amount = parse(f"{float(number):.3f}{suffix}")
    assert parse(str(amount)).amount == amount.amount


def test_units_are_rounded_up_and_nothing_is_divided_by_nothing():
    assert in_units_of("1500m", "1") == "2"
    assert in_units_of("3", "0") == "3"
    assert in_units_of("4Gi", "1Mi") == "4096"


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
