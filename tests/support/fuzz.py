"""What parsers are fed that nobody would write: values of any shape, and good texts with accidents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

WORDS = st.sampled_from(
    [
        *("", " ", "a", "0", "-1", "1.5", "1e400", "9" * 5000, "٣", "²", "nan", "inf", "true", "null", "~"),
        *("\x00", "\n", "\r\n", "\t", "\ud800", "\x85", "\u2028", "﻿", "轮", "\x1b[31m", "a" * 300),
        *("/", "..", "../..", ".", "=", ",", ":", "::", "[::1]", "http://", "http://[", "@", "%", "%zz", "$"),
        *("${", "${a:-", "{", "[", "'", '"', "\\", "#", "- ", "&a", "*a", "<<", "|", ">", "!!int x", "---\n"),
    ]
)
TEXT = st.text(max_size=30) | WORDS
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
"""What JSON and YAML can say."""


@st.composite
def mangled(draw: st.DrawFn, *originals: str) -> str:
    """Draw a text that was good before pieces of it were lost, doubled or replaced."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 20)))
        piece = draw(TEXT | st.just(text[start:end] * 2) | st.just("[" * 3000))
        text = text[:start] + piece + text[end:]
    return text


@st.composite
def changed(draw: st.DrawFn, original: Any) -> Any:
    """Draw an object that was good before some of its fields, at any depth, were replaced."""
    if draw(st.integers(0, 12)) == 0:
        return draw(VALUES)
    if isinstance(original, dict):
        made = {key: draw(changed(value)) for key, value in original.items()}
        if draw(st.integers(0, 6)) == 0:
            made[draw(TEXT)] = draw(VALUES)
        return made
    if isinstance(original, list):
        return [draw(changed(value)) for value in original]
    return original


def refusal(call: Callable[[], object], *documented: type[BaseException]) -> str:
    """Return what a documented error says, empty where there is none; any other error is raised."""
    try:
        call()
    except documented as error:
        return str(error) or type(error).__name__
    return ""


def encodable(text: str) -> bytes:
    """Return bytes that may be in a file or on a wire, whatever the text has in it."""
    return text.encode("utf-8", "surrogatepass")
