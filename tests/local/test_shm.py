"""Directories in memory: removed with their run, or by a later run when the runner was killed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paddlejob.local.store import run_directory

CLAIM = """
import sys
from pathlib import Path
from paddlejob.local.store import run_directory
from paddlejob.local.store.run_directory import RunDirectory
with run_directory.claim_memory(RunDirectory(Path(sys.argv[1])), Path(sys.argv[2])):
    print("claimed", flush=True)
    input()
"""


@pytest.fixture
def space(tmp_path):
    place = tmp_path / "shm"
    place.mkdir()
    return place


@pytest.fixture
def run(tmp_path):
    return run_directory.create(tmp_path / "runs", "job")


def test_a_directory_goes_with_its_run(run, space):
    with run_directory.claim_memory(run, space) as place:
        (place / "file").touch()
    assert not list(space.iterdir())


def test_a_live_run_keeps_its_directory_and_a_killed_one_does_not(run, space):
    words = [sys.executable, "-c", CLAIM, str(run.path), str(space)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"claimed\n"
        # As seen from another container: the run directory is not there, the memory is.
        run.path.rename(run.path.with_name("elsewhere"))
        run_directory.sweep_memory(space)
        assert len(list(space.iterdir())) == 1
        holder.kill()
    run_directory.sweep_memory(space)
    assert not list(space.iterdir())


def without_a_lock(place):
    (place / "file").touch()


def with_a_fifo(place):
    os.mkfifo(place / ".lock")


def with_a_link(place):
    target = place.parent.parent / "unlocked"
    target.touch()
    (place / ".lock").symlink_to(target)


STRANGERS = {"no lock": without_a_lock, "a FIFO": with_a_fifo, "a link": with_a_link}


@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS)
def test_directories_of_other_users_are_kept(space, make):
    stranger = space / "paddlejob-stranger"
    stranger.mkdir()
    make(stranger)
    run_directory.sweep_memory(space)
    assert stranger.exists()


def test_without_shared_memory_the_disk_is_used(run, tmp_path):
    with run_directory.claim_memory(run, tmp_path / "nowhere") as place:
        assert place.parent == run.path
