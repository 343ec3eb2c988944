"""Resuming a log: every line once, whatever the order of times and wherever the stream was cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddlejob.client.logs.window import Window

START = datetime(2026, 1, 1, tzinfo=UTC)


def line(seconds: float, text: str = "x") -> bytes:
    return f"{START + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%f}000Z {text}\n".encode()


def since(log: list[bytes], begin: str) -> list[bytes]:
    """Return what the API server sends from a whole second on."""
    return [each for each in log if not begin or each[:19] >= begin[:19].encode()]


times = st.lists(st.integers(0, 40), max_size=60)


@example(times=[0, 0, 0, 0, 0, 0, 0, 0, 2, 0], cuts=[9], block=1)
@given(times=times, cuts=st.lists(st.integers(0, 60), max_size=4), block=st.integers(1, 9))
def test_every_line_is_delivered_once_however_often_the_stream_is_cut(times, cuts, block):
    # A tenth of a second apart on average, going back by up to four tenths, many of them equal.
    log = [line(number / 10 + offset % 5 / 10, f"{offset % 2}") for number, offset in enumerate(times)]
    window, delivered = Window(), []
    for cut in [*sorted(cuts), len(log)]:
        window.resume()
        sent = since(log[:cut], window.resume_from)
        for start in range(0, len(sent), block):
            delivered += window.take(b"".join(sent[start : start + block])).splitlines(keepends=True)
    assert delivered == log


def test_lines_of_one_second_beyond_the_limit_are_told_apart_by_time():
    log = [line(number / 1000, "y" * 100) for number in range(900)]
    window = Window(limit_bytes=10_000)
    delivered = [window.take(each) for each in log]
    window.resume()
    delivered += [window.take(each) for each in since([*log, line(0.95)], window.resume_from)]
    assert b"".join(delivered) == b"".join([*log, line(0.95)])


def test_a_log_that_was_rotated_meanwhile_goes_on_with_what_is_left():
    window = Window()
    window.take(line(1, "a") + line(1.1, "b"))
    window.resume()
    assert window.take(line(1.1, "b") + line(1.2, "c")) == line(1.2, "c")
    window.resume()
    assert window.take(line(9, "d")) == line(9, "d")


def test_a_pod_whose_node_has_an_earlier_clock_loses_nothing():
    window = Window()
    window.take(line(100, "old pod"))
    window.resume(same_clock=False)
    assert window.take(line(5, "new pod")) == line(5, "new pod")


def test_other_time_zones_are_understood():
    window = Window()
    window.take(b"2026-01-01T08:00:01.5+08:00 a\n")
    assert window.resume_from == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "said",
    [
        b"unable to retrieve container logs\n",
        b"\n",
        b"2026-99-99T99:99:99Z is no time\n",
        b"9999-12-31T23:59:59-23:59 is no time\n",
    ],
)
def test_lines_without_a_time_pass(said):
    window = Window()
    assert window.take(line(1)) == line(1)
    assert window.take(said) == said
    assert window.resume_from == "2026-01-01T00:00:00Z"
