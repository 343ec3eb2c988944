from __future__ import annotations

import os

import pytest

from paddlejob.plainjob.data import scan
from paddlejob.plainjob.data.layout import Source
from paddlejob.plainjob.data.scan import blocks, count_lines, next_line_start
from paddlejob.plainjob.errors import DataError
from plainjob.line_files import lines, write

CONTENTS = [
    pytest.param(b"", 0, id="an empty file has no lines"),
    pytest.param(b"one\n", 1, id="a line end ends a line"),
    pytest.param(b"one", 1, id="a last line without an end is a line"),
    pytest.param(b"\n\n", 2, id="empty lines count"),
    pytest.param(b"a\r\nb\r\n", 2, id="a carriage return belongs to its line"),
    pytest.param(b"x" * 700 + b"\ny\n", 2, id="a line longer than a block is one line"),
    pytest.param(lines(1000), 1000, id="many lines over many blocks"),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Make small files long: every block border is met."""
    monkeypatch.setattr(scan, "BLOCK", 256)
    monkeypatch.setattr(scan, "MAX_MARKS", 8)


def source_of(path) -> Source:
    return Source(path.name, str(path), path.stat().st_size, path.stat().st_mtime_ns)


def ignore(_size):
    pass


@pytest.mark.parametrize(("content", "count"), CONTENTS)
def test_lines_are_counted(tmp_path, content, count):
    assert count_lines(source_of(write(tmp_path / "f", content)), ignore).lines == count


@pytest.mark.parametrize(("content", "count"), CONTENTS)
def test_every_line_is_found_where_it_begins(tmp_path, content, count):
    index = count_lines(source_of(write(tmp_path / "f", content)), ignore)
    starts = [0, *(at + 1 for at in range(len(content)) if content[at : at + 1] == b"\n")][:count]
    assert [index.offset_of(line) for line in range(count)] == starts
    assert index.offset_of(count) == len(content)


def test_the_index_has_the_same_length_for_a_file_of_any_size(tmp_path):
    index = count_lines(source_of(write(tmp_path / "f", lines(5000))), ignore)
    assert len(index._marks) <= 8


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(0, 0, id="the beginning is a line start"),
        pytest.param(3, 3, id="a line start is its own"),
        pytest.param(1, 3, id="inside a line the next one counts"),
        pytest.param(4, 6, id="inside the last line it is the end of the file"),
        pytest.param(6, 6, id="the end stays the end"),
    ],
)
def test_next_line_start(tmp_path, offset, expected):
    assert next_line_start(source_of(write(tmp_path / "f", b"ab\ncd\n")), offset) == expected


def test_progress_adds_up_to_the_size(tmp_path):
    seen = []
    source = source_of(write(tmp_path / "f", lines(1000)))
    count_lines(source, seen.append)
    assert sum(seen) == source.size


def test_a_file_that_shrinks_is_noticed(tmp_path):
    source = source_of(write(tmp_path / "f", lines(100)))
    os.truncate(source.origin, 10)
    with pytest.raises(DataError, match="changed while it was read"):
        list(blocks(source, 0, source.size))


def test_a_file_that_vanished_is_named(tmp_path):
    source = source_of(write(tmp_path / "f", b"x\n"))
    (tmp_path / "f").unlink()
    with pytest.raises(DataError, match=r"cannot read .*/f: No such file"):
        list(blocks(source, 0, source.size))
