"""What came of a run: its result and its files."""

from __future__ import annotations

import pytest

from local.jobs import container, job, role, text
from paddlejob.local.input.documents import read
from paddlejob.local.store import outcome, run_directory
from paddlejob.local.store.run_directory import RunRecord

JOB = read(text(job(worker=role(2, containers=[container("true"), container("true", name="side")])))).job


@pytest.fixture
def run(tmp_path):
    made = run_directory.create(tmp_path, "job")
    (made.path / "job.yaml").touch()
    return made


def say(run, content, pod="job-worker-0", container="main"):
    log = run.log(pod, container)
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(content)


def put(run, name, pod="job-worker-0", start=0):
    path = run.files(pod) / f"main-{start}" / "workspace" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def test_the_result_is_the_last_result_line_of_worker_0(run):
    say(run, b"step 1/2 loss 3\ndone auc 0.9 seconds 3\nLAUNCH INFO exit code 0\n")
    say(run, b"done auc 0.1\n", pod="job-worker-1")
    say(run, b"done auc 0.2\n", container="side")
    found = outcome.read(run, JOB)
    assert (found.summary, found.metrics) == ("done auc 0.9 seconds 3", {"auc": 0.9, "seconds": 3.0})


def test_without_a_result_the_summary_is_the_progress(run):
    say(run, b"x\n" * outcome.LOG_BYTES + b"step 1/2 loss nan\n")
    found = outcome.read(run, JOB)
    assert (found.summary, found.metrics) == ("step 1/2 loss nan", {})
    run.write_record(RunRecord(job=JOB, outcome=found))
    assert run.read_record().outcome == found


def test_without_a_log_there_is_no_result(run):
    assert outcome.read(run, JOB).summary == ""


def test_models_come_first_and_the_list_is_limited(run):
    model = put(run, "output/final.pdparams")
    for number in range(outcome.MAX_FILES):
        put(run, f"a{number:02d}.txt")
    put(run, "__pycache__/x.pyc")
    found = outcome.read(run, JOB)
    assert (found.files[0].path, found.files[0].location) == ("output/final.pdparams", str(model))
    assert [each.path for each in found.files[1:3]] == ["a00.txt", "a01.txt"]
    assert (len(found.files), found.has_more_files) == (outcome.MAX_FILES, True)


def test_the_scan_for_files_is_limited(run, monkeypatch):
    monkeypatch.setattr(outcome, "MAX_SCANNED", 3)
    for number in range(5):
        put(run, f"{number}.txt")
    assert len(outcome.written_files(run, 10)) == 3
