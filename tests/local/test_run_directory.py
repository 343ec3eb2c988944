"""The traces of runs, and how they are found again."""

from __future__ import annotations

import os

import pytest

from local.jobs import job, text
from paddlejob.local import run_directory
from paddlejob.local.documents import read
from paddlejob.local.errors import InputError
from paddlejob.local.run_directory import Record, RunDirectory


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
    record = Record(job=read(text(job())).job, pids={"job-worker-0": 7}, base_port=20000, result="Completed")
    run.write_record(record)
    assert run.read_record() == record


def test_a_record_that_is_cut_is_none(make):
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


def test_runs_are_found_by_name_by_job_and_by_age(make, tmp_path):
    old, new, other = make("job"), make("job"), make("other")
    assert run_directory.find(tmp_path, old.name).path == old.path
    assert run_directory.find(tmp_path, "job").path == new.path
    assert run_directory.find(tmp_path).path == other.path


def test_a_run_that_does_not_exist_is_refused_with_those_that_do(make, tmp_path):
    run = make("job")
    with pytest.raises(InputError, match=f"there is no run none; the newest are {run.name}"):
        run_directory.find(tmp_path, "none")
    with pytest.raises(InputError, match="is empty"):
        run_directory.find(tmp_path / "nowhere")


PLACES = {
    "chosen": ({"PADDLEJOB_RUNS": "/chosen"}, "/chosen"),
    "the desktop's": ({"XDG_STATE_HOME": "/state"}, "/state/paddlejob/runs"),
}


@pytest.mark.parametrize(("environ", "place"), PLACES.values(), ids=PLACES)
def test_where_runs_are(environ, place):
    assert str(run_directory.state_directory(environ)) == place


def test_what_is_not_a_lock_file_says_nothing_and_keeps_nobody_waiting(make):
    run = make("job")
    os.mkfifo(run.path / ".lock")
    assert not run.is_alive
