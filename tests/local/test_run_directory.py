"""The directories of runs, and how runs are found in them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from local.jobs import job, text
from paddlejob.local.errors import InputError
from paddlejob.local.input.documents import read
from paddlejob.local.store import run_directory
from paddlejob.local.store.run_directory import RunDirectory, RunRecord

NOBODY = 65534


@pytest.fixture
def make(tmp_path):
    def create(name):
        run = run_directory.create(tmp_path, name)
        job_file = run.path / "job.yaml"
        job_file.write_text("")
        os.utime(job_file, (make.clock, make.clock))
        make.clock += 1
        return run

    make.clock = 1_000_000
    return create


make.clock = 0


def test_a_record_is_read_as_it_was_written(make):
    run = make("job")
    record = RunRecord(
        job=read(text(job())).job, pids={"job-worker-0": 7}, base_port=20000, result="Completed"
    )
    run.write_record(record)
    assert run.read_record() == record


def test_an_incomplete_record_is_ignored(make):
    run = make("job")
    assert run.read_record() is None
    (run.path / "status.json").write_text('{"job":')
    assert run.read_record() is None


def test_only_the_owner_may_read_a_run(make):
    assert make("job").path.stat().st_mode & 0o077 == 0


def test_a_run_is_alive_while_its_lock_is_held(make):
    run = make("job")
    assert not run.is_alive
    lock = run.lock()
    assert RunDirectory(run.path).is_alive
    os.close(lock)
    assert not run.is_alive


def test_runs_are_listed_newest_first(make, tmp_path):
    old, new = make("job"), make("other")
    assert [run.path for run in run_directory.all_runs(tmp_path)] == [new.path, old.path]
    assert run_directory.all_runs(tmp_path / "nowhere") == []


PLACES = {
    "chosen": ({"PADDLEJOB_RUNS": "/chosen"}, "/chosen"),
    "the desktop's": ({"XDG_STATE_HOME": "/state"}, "/state/paddlejob/runs"),
}


@pytest.mark.parametrize(("environ", "place"), PLACES.values(), ids=PLACES)
def test_the_directory_of_runs(environ, place):
    assert str(run_directory.state_directory(environ)) == place


def test_other_files_are_not_locks_and_do_not_block(make):
    run = make("job")
    os.mkfifo(run.path / ".lock")
    assert not run.is_alive


@pytest.fixture
def home_of_an_ordinary_user():
    """A directory of a user without root's rights, who is this process's user meanwhile."""
    with tempfile.TemporaryDirectory() as home:
        if os.geteuid() != 0:
            yield Path(home)
            return
        os.chown(home, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(home)
        finally:
            os.seteuid(0)


def test_overlay_work_directories_are_removed_with_the_run(home_of_an_ordinary_user):
    run = run_directory.create(home_of_an_ordinary_user, "job")
    work = run.files("worker-0") / "main-0" / "workspace.work" / "work"
    work.mkdir(parents=True)
    work.chmod(0)
    run.remove()
    assert list(home_of_an_ordinary_user.iterdir()) == []


def test_a_failed_removal_is_one_sentence(home_of_an_ordinary_user):
    run = run_directory.create(home_of_an_ordinary_user, "job")
    home_of_an_ordinary_user.chmod(0o500)
    with pytest.raises(InputError, match=r"^cannot remove .*job-\w+: Permission denied$"):
        run.remove()
    home_of_an_ordinary_user.chmod(0o700)
