"""Logs of several containers in order of time."""

from __future__ import annotations

import struct

import pytest

from paddlejob.local.sandbox.supervisor import STAMP_FORMAT
from paddlejob.local.store import run_directory
from paddlejob.local.store.history import History, record_start


@pytest.fixture
def run(tmp_path):
    return run_directory.create(tmp_path, "job")


def write(run, pod, *pieces, unstamped=b""):
    """Write a log and its times: pieces are (time, text)."""
    log = run.log(pod, "main")
    log.parent.mkdir(parents=True, exist_ok=True)
    content, stamps = b"", b""
    for time, text in pieces:
        content += text
        stamps += struct.pack(STAMP_FORMAT, time, len(content))
    log.write_bytes(content + unstamped)
    log.with_suffix(".times").write_bytes(stamps)
    return log


def read(run, *pods, **options):
    return [(piece.time, piece.lines.text) for piece in History(run, pods, **options).read()]


def test_lines_of_all_pods_come_in_order_of_time(run):
    write(run, "a", (1.0, b"one\n"), (4.0, b"four\n"))
    write(run, "b", (2.0, b"two\n"), (3.0, b"three\n"))
    assert [text for _, text in read(run, "a", "b")] == [b"one\n", b"two\n", b"three\n", b"four\n"]


def test_a_line_written_in_pieces_has_the_time_of_its_end(run):
    write(run, "a", (1.0, b"on"), (3.0, b"e\n"))
    write(run, "b", (2.0, b"two\n"))
    assert read(run, "a", "b") == [(2.0, b"two\n"), (3.0, b"one\n")]


def test_only_the_last_lines_of_each_container(run):
    write(run, "a", (1.0, b"1\n2\n"), (3.0, b"3\n"))
    write(run, "b", (2.0, b"4\n"))
    assert [text for _, text in read(run, "a", "b", tail=2)] == [b"2\n", b"4\n", b"3\n"]
    assert read(run, "a", "b", tail=0) == []


def test_output_without_a_recorded_time_is_read(run):
    log = write(run, "a", (1.0, b"1\n"), unstamped=b"2\n")
    assert read(run, "a") == [(1.0, b"1\n"), (log.stat().st_mtime, b"2\n")]


def test_logs_without_times_are_read_too(run):
    log = write(run, "a", unstamped=b"1\n2\n")
    log.with_suffix(".times").unlink()
    assert [text for _, text in read(run, "a")] == [b"1\n2\n"]


def test_previous_reads_the_second_to_last_start(run):
    log = run.log("a", "main")
    log.parent.mkdir(parents=True)
    for number in range(3):
        record_start(log)
        write(run, "a", *((float(each), b"start %d\nend" % each) for each in range(number + 1)))
    history = History(run, ("a",), previous=True)
    assert [(each.time, each.lines.text) for each in history.read()] == [(1.0, b"start 1\n"), (1.0, b"end\n")]
    assert read(run, "a", previous=True, tail=1) == [(1.0, b"end\n")]


@pytest.mark.parametrize("starts", [0, 1])
def test_a_container_that_was_not_restarted_has_no_previous_log(run, starts):
    log = write(run, "a", (1.0, b"1\n"))
    for _ in range(starts):
        record_start(log)
    history = History(run, ("a",), previous=True)
    assert history.is_empty
    assert list(history.read()) == []


def test_an_incomplete_line_is_not_read_yet(run):
    log = write(run, "a", (1.0, b"1\n23"))
    history = History(run, ("a",))
    assert [piece.lines.text for piece in history.read()] == [b"1\n"]
    assert history.ends == {log: 2}
