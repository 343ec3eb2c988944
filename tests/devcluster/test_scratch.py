from __future__ import annotations

import dataclasses
import os

import pytest

from devcluster.control_plane.scratch import OWNER_RECORD, keep, make_scratch
from devcluster.processes import Record, write_records


@pytest.fixture(autouse=True)
def temporary_root(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def abandoned():
    """A scratch directory whose owner has ended."""
    directory = make_scratch()
    dead = dataclasses.replace(Record.of("owner", os.getpid()), start_ticks=1)
    write_records(directory / OWNER_RECORD, [dead])
    return directory


def test_a_scratch_directory_is_private():
    assert make_scratch().stat().st_mode & 0o077 == 0


def test_the_directory_of_a_dead_owner_is_removed_by_the_next_start(abandoned):
    make_scratch()
    assert not abandoned.exists()


def test_the_directory_of_a_living_owner_stays():
    mine = make_scratch()
    make_scratch()
    assert mine.exists()


def test_a_directory_that_was_kept_stays(abandoned):
    keep(abandoned)
    make_scratch()
    assert abandoned.exists()


def test_a_link_is_not_followed(abandoned, temporary_root, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_records(elsewhere / OWNER_RECORD, [dataclasses.replace(Record.of("o", os.getpid()), start_ticks=1)])
    (temporary_root / "devcluster-link").symlink_to(elsewhere)
    make_scratch()
    assert (elsewhere / OWNER_RECORD).exists()


def test_a_directory_of_another_user_is_left_alone(abandoned, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 12345)
    make_scratch()
    assert abandoned.exists()
