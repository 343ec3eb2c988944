"""Durations are parsed as they are formatted."""

from __future__ import annotations

import pytest

from paddlejob.text import duration, parse_duration


@pytest.mark.parametrize("seconds", [0, 45, 200, 720, 7500, 28800, 273600])
def test_a_formatted_duration_is_parsed(seconds):
    assert parse_duration(duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("1.5h", 5400), ("1h30m", 5400), ("1w", 604800)]
)
def test_all_units_are_parsed(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "5x", "m", "1m ", "-1s"])
def test_other_texts_are_rejected(text):
    with pytest.raises(ValueError):
        parse_duration(text)
