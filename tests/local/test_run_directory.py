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


def test_a_run_to_look_at_is_of_that_job_before_one_whose_name_begins_so(make, tmp_path):
    run, longer = make("resnet"), make("resnet50")
    assert run_directory.find(tmp_path, "resnet").path == run.path
    assert run_directory.find(tmp_path, "resnet5").path == longer.path


ACTED_ON = {
    "the full name": ("{old}", False, "old"),
    "the only run of a job": ("other", False, "other"),
    "the beginning of a name": ("oth", False, "there is no run oth"),
    "a job with several runs": ("job", False, "several runs match: {new}, {old}; give the full name"),
    "no name": ("", False, "several runs match: {other}, {new}, {old}; give the full name"),
    "the only live run of a job": ("job", True, "new"),
    "the only live run of all": ("", True, "new"),
    "a job without a live run": ("other", True, "other is not running"),
}


@pytest.mark.parametrize(("name", "live", "found"), ACTED_ON.values(), ids=ACTED_ON)
def test_a_run_to_act_on_is_named_exactly_or_the_only_one(make, tmp_path, name, live, found):
    runs = {"old": make("job"), "new": make("job"), "other": make("other")}
    texts = {key: run.name for key, run in runs.items()}
    lock = runs["new"].lock()
    try:
        if found in runs:
            assert run_directory.choose(tmp_path, name.format(**texts), live=live).path == runs[found].path
        else:
            with pytest.raises(InputError, match=found.format(**texts)):
                run_directory.choose(tmp_path, name.format(**texts), live=live)
    finally:
        os.close(lock)


def test_before_the_first_run_that_is_said(tmp_path):
    with pytest.raises(InputError, match=r"there are no runs in .* yet"):
        run_directory.find(tmp_path)


def test_a_run_that_does_not_exist_is_refused_with_those_that_do(make, tmp_path):
    run = make("job")
    with pytest.raises(InputError, match=f"there is no run none; the newest are {run.name}"):
        run_directory.find(tmp_path, "none")
    with pytest.raises(InputError, match="there are no runs"):
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


def test_what_the_kernel_keeps_of_an_overlay_is_removed_with_the_run(home_of_an_ordinary_user):
    run = run_directory.create(home_of_an_ordinary_user, "job")
    work = run.files("worker-0") / "main-0" / "workspace.work" / "work"
    work.mkdir(parents=True)
    work.chmod(0)
    run.remove()
    assert list(home_of_an_ordinary_user.iterdir()) == []


def test_a_run_that_cannot_be_removed_is_told_in_a_sentence(home_of_an_ordinary_user):
    run = run_directory.create(home_of_an_ordinary_user, "job")
    home_of_an_ordinary_user.chmod(0o500)
    with pytest.raises(InputError, match=r"^cannot remove .*job-\w+: Permission denied$"):
        run.remove()
    home_of_an_ordinary_user.chmod(0o700)
