from __future__ import annotations

import io

import pytest

from paddlejob.plainjob.data.progress import Bar, Lines, for_stream, human


def test_lines_come_every_five_seconds_and_at_the_end():
    now = iter([0.0, 1.0, 5.0, 6.0, 10.0])
    out = io.StringIO()
    lines = Lines(out, clock=lambda: next(now))
    lines.begin("writing", 1000)
    for _ in range(3):
        lines.advance(250)
    lines.end()
    assert out.getvalue() == "writing: 50 % of 1.0 kB, 100 B/s\nwriting: 75 % of 1.0 kB, 75 B/s\n"


def test_a_log_gets_lines_and_a_terminal_a_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert isinstance(for_stream(io.StringIO()), Lines)
    assert isinstance(for_stream(Terminal()), Bar)


def test_a_bar_ends_full():
    out = io.StringIO()
    bar = Bar(out)
    bar.begin("writing", 1000)
    bar.advance(1000)
    bar.end()
    assert "writing" in out.getvalue()
    assert "1.0/1.0 kB" in out.getvalue()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2e9, "2.0 GB"), (3e12, "3.0 TB")]
)
def test_sizes_as_people_say_them(size, text):
    assert human(size) == text
