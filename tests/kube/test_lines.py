from __future__ import annotations

import random

import pytest

from paddlejob.kube.decoding import LineSplitter, split_lines
from paddlejob.kube.errors import ResponseTooLargeError


async def chunks_of(*chunks, error=None):
    for chunk in chunks:
        yield chunk
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], id="two lines in a chunk"),
        pytest.param([b"a", b"b", b"c\n"], [b"abc"], id="a line in three chunks"),
        pytest.param([b"a\nb", b"c\nd"], [b"a", b"bc", b"d"], id="a last line without an end"),
        pytest.param([b"a\r\nb\r", b"\nc"], [b"a", b"b", b"c"], id="CRLF, also across chunks"),
        pytest.param([b"a\rb\n"], [b"a\rb"], id="a CR inside a line stays"),
        pytest.param([b"\n\na\n"], [b"", b"", b"a"], id="empty lines"),
        pytest.param([b"", b"a\n", b""], [b"a"], id="empty chunks"),
        pytest.param([], [], id="nothing at all"),
    ],
)
async def test_split_lines(chunks, lines):
    assert [line async for line in split_lines(chunks_of(*chunks))] == lines


async def test_a_line_cut_by_an_error_is_not_yielded():
    lines = split_lines(chunks_of(b"whole\nhal", error=ConnectionError()))
    assert await anext(lines) == b"whole"
    with pytest.raises(ConnectionError):
        await anext(lines)


@pytest.mark.parametrize("seed", range(50))
def test_any_chunking_gives_the_same_lines(seed):
    rng = random.Random(seed)
    text = bytes(rng.choice(b"ab\r\n") for _ in range(rng.randrange(200)))
    splitter, lines, position = LineSplitter(), [], 0
    while position < len(text):
        size = rng.randrange(1, 20)
        lines += splitter.feed(text[position : position + size])
        position += size
    expected = [line.removesuffix(b"\r") for line in text.split(b"\n")]
    assert [*lines, splitter.finish()] == expected


def test_a_line_of_50_megabytes_costs_one_copy():
    """The splitter keeps the chunks it was given and joins them once: no byte is moved twice."""
    splitter = LineSplitter()
    chunk = b"x" * 65536
    for _ in range(800):
        assert splitter.feed(chunk) == []
    assert all(kept is chunk for kept in splitter._unfinished)
    (line,) = splitter.feed(b"\n")
    assert len(line) == 800 * 65536


def test_a_line_beyond_the_maximum_is_refused_while_it_grows():
    splitter = LineSplitter(1000)
    assert splitter.feed(b"x" * 999 + b"\n" + b"y" * 999) == [b"x" * 999]
    assert splitter.feed(b"\n" + b"z" * 600) == [b"y" * 999]
    with pytest.raises(ResponseTooLargeError, match="the server sent a line of more than"):
        splitter.feed(b"z" * 600)
