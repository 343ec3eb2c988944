"""Logs while they grow: no line lost, none torn."""

from __future__ import annotations

import pytest

from paddlejob.local.store import run_directory
from paddlejob.local.store.logs import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    Follower,
    LogLines,
    chosen_pods,
    log_label,
)
from paddlejob.text import Prefixes, tame


@pytest.fixture
def run(tmp_path):
    return run_directory.create(tmp_path, "job")


@pytest.fixture
def write(run):
    def append(content, pod="job-worker-0", container="main"):
        path = run.log(pod, container)
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as log:
            log.write(content)

    return append


@pytest.fixture
def follower(run):
    following = Follower(run)
    yield following
    following.close()


def texts(lines):
    return [each.text for each in lines]


def test_only_complete_lines_are_shown(follower, write):
    write(b"one\ntw")
    assert texts(follower.poll()) == [b"one\n"]
    write(b"o\n")
    assert texts(follower.poll()) == [b"two\n"]
    assert texts(follower.poll()) == []


def test_an_incomplete_last_line_is_shown_at_the_end(follower, write):
    write(b"one\ntwo")
    assert b"".join(texts(follower.rest())) == b"one\ntwo\n"


def test_a_flood_is_read_completely_in_pieces(follower, write):
    flood = b"".join(b"line %d\n" % number for number in range(400_000))
    assert len(flood) > 3 * CHUNK_BYTES
    write(flood)
    pieces = texts(follower.rest())
    assert b"".join(pieces) == flood
    assert all(piece.endswith(b"\n") for piece in pieces)


def test_an_endless_line_is_split(follower, write):
    write(b"x" * (3 * CHUNK_BYTES))
    pieces = texts(follower.rest())
    assert b"".join(pieces).replace(b"\n", b"") == b"x" * (3 * CHUNK_BYTES)
    assert max(map(len, pieces)) <= CHUNK_BYTES + MAX_LINE_BYTES + 1


def test_a_view_may_skip_to_the_end_of_a_flood(follower, write):
    write(b"".join(b"line %07d\n" % number for number in range(300_000)))
    [lines] = follower.poll(may_skip=True)
    assert lines.skipped > CHUNK_BYTES
    assert lines.text.startswith(b"line ")
    assert lines.text.endswith(b"line 0299999\n")


def test_pods_that_start_later_are_followed(follower, write):
    write(b"one\n")
    assert [lines.pod for lines in follower.poll()] == ["job-worker-0"]
    write(b"two\n", pod="job-worker-1", container="other")
    assert [(lines.pod, lines.container) for lines in follower.poll()] == [("job-worker-1", "other")]


def test_logs_are_followed_from_an_offset(run, write):
    write(b"one\ntwo\n")
    follower = Follower(run, {run.log("job-worker-0", "main"): 4})
    assert texts(follower.rest()) == [b"two\n"]
    follower.close()


def test_every_line_has_a_label():
    prefixes = Prefixes(colours=False)
    assert prefixes.apply(b"one\ntwo\n", "worker-0") == b"worker-0 | one\nworker-0 | two\n"


def test_labels_are_aligned():
    prefixes = Prefixes(colours=False)
    prefixes.apply(b"x\n", "worker-10")
    assert prefixes.apply(b"x\n", "ps-0") == b"ps-0      | x\n"


def test_other_containers_are_part_of_the_label():
    lines = LogLines("job-ps-0", "side", b"x\n")
    assert log_label("job", lines, is_training=True) == "ps-0"
    assert log_label("job", lines, is_training=False) == "ps-0/side"


def test_colours_differ_from_rank_to_rank():
    prefixes = Prefixes(colours=True)
    marks = {prefixes.apply(b"x\n", f"worker-{rank}").partition(b"m")[0] for rank in range(12)}
    assert len(marks) == 12


TAMED = {
    "colours stay": (b"\x1b[31mred\x1b[0m\n", b"\x1b[31mred\x1b[0m\n"),
    "cursor movements do not": (b"\x1b[2Jx\n", b"?[2Jx\n"),
    "bells do not": (b"a\x07b\n", b"a?b\n"),
    "sequences in one character do not": ("a\x9b2Jx\n".encode(), b"a?2Jx\n"),
    "nor in one byte": (b"a\x9b2Jx \xff\x9bm\n", b"a?2Jx \xff?m\n"),
    "other bytes that are no text stay": (b"\xe9\xff\n", b"\xe9\xff\n"),
    "letters with bytes of that range stay": ("世 𝛛\n".encode(), "世 𝛛\n".encode()),
    "letters beyond ASCII stay": ("步骤 é\n".encode(), "步骤 é\n".encode()),
    "tabs stay": (b"a\tb\n", b"a\tb\n"),
    "a progress bar is shown in its last state": (b"1%\b\b\r2%\r\nx\r\n", b"2%\nx\n"),
}


@pytest.mark.parametrize(("raw", "shown"), TAMED.values(), ids=TAMED)
def test_control_characters_are_removed(raw, shown):
    assert tame(raw) == shown


PODS = ["job-ps-0", "job-ps-1", "job-worker-0", "job-worker-1"]
SELECTIONS = {
    "all": ("all", PODS),
    "none": ("none", []),
    "a rank": ("1", ["job-worker-1"]),
    "a short name": ("ps-1", ["job-ps-1"]),
    "a pod's whole name": ("job-ps-0", ["job-ps-0"]),
    "a role": ("ps", ["job-ps-0", "job-ps-1"]),
    "nobody": ("7", []),
}


@pytest.mark.parametrize(("selection", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_selection_of_pods(selection, expected):
    assert sorted(chosen_pods("job", selection, PODS)) == expected
