"""`history` and `postmortem`: jobs that exist, jobs that are gone, runs on this machine."""

from __future__ import annotations

import json
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from local.jobs import job as local_job
from local.jobs import role
from paddlejob.api.v1 import Failure
from paddlejob.client.local_runs import LocalRuns
from paddlejob.history.record import (
    RECORD_KEY,
    AttemptRecord,
    RankEnd,
    Record,
    Summary,
    manifest,
    object_key,
    pack,
)
from paddlejob.kube.resource import CONFIG_MAPS
from simkube.build import job
from simkube.kubelet.outcomes import Exit

GONE = Summary(
    "gone",
    "default",
    "0123456789",
    result="Failed",
    message="worker-1 exited with code 1",
    created=datetime(2020, 1, 1, tzinfo=UTC),
    ended=datetime(2020, 1, 1, 0, 5, tzinfo=UTC),
    attempt=2,
    failure=Failure(attempt=2, pod="gone-worker-1", message="worker-1 exited with code 1"),
)


@pytest.fixture
def keep(cluster):
    """Store a record as the operator does, or with another one inside, as anybody can."""

    def store(summary: Summary, *ranks: RankEnd, inside: Summary | None = None) -> None:
        attempts = (AttemptRecord(2, "Failed", ranks=ranks),)
        body = manifest(Record(summary, attempts=attempts))
        if inside:
            body["binaryData"][RECORD_KEY] = pack(Record(inside, attempts=attempts))
        cluster.do(lambda scene: scene.client.create(CONFIG_MAPS, summary.namespace, body))

    return store


def test_jobs_that_exist_and_jobs_that_are_gone_are_listed_newest_first(cluster, pdj, file, keep):
    keep(GONE)
    cluster.scene.fates.set("demo-worker-0", Exit(1, 1, message="boom"))
    pdj("submit", file(job().worker(1)))
    pdj("wait", "demo", "--timeout", "60s")
    headings, first, second = pdj("history").stdout.splitlines()
    assert headings.split() == ["NAME", "RESULT", "AGE", "DURATION", "ATTEMPTS", "FIRST", "FAILURE"]
    assert first.split()[:2] == ["demo", "Failed"]
    assert first.endswith("worker-0 exited with code 1: boom")
    assert second.split()[:2] == ["gone", "Failed"]
    assert second.split()[3:5] == ["5m", "3"]
    (only,) = json.loads(pdj("history", "gone", "-o", "json").stdout)
    assert only["message"] == GONE.message
    (newest,) = json.loads(pdj("history", "@latest", "-o", "json").stdout)
    assert newest["name"] == "demo"
    assert object_key(GONE).name in pdj("history", "-o", "wide").stdout
    assert pdj("history", "-A").stdout.startswith("NAMESPACE")
    record = json.loads(pdj("postmortem", "demo", "-o", "json").stdout)
    assert record["attempts"][0]["ranks"][0]["text"] == "boom"


@pytest.mark.parametrize(
    "arguments",
    [("logs",), ("logs", "--first-error"), ("explain",), ("describe",), ("retry",), ("wait",), ("top",)],
    ids=" ".join,
)
def test_a_verb_on_a_deleted_job_points_to_its_record(pdj, keep, arguments):
    keep(GONE)
    result = pdj(*arguments, "gone")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: PaddleJob gone in namespace default was deleted; its record says "
        "Failed: worker-1 exited with code 1; `kubectl pdj postmortem gone` shows the rest\n"
    )


def test_without_the_right_to_read_records_a_job_is_unknown(cluster, pdj, keep):
    keep(GONE)
    cluster.front.denied.add(("list", "configmaps"))
    assert pdj("logs", "gone").stderr == "error: there is no PaddleJob gone in namespace default\n"


def test_a_job_that_has_not_ended_is_not_history(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    assert pdj("history").stderr == "There is no record of any job.\n"
    assert json.loads(pdj("postmortem", "demo", "-o", "json").stdout)["summary"]["result"] == "Running"


def test_nothing_to_list_is_said(pdj):
    result = pdj("history", "nothing")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "There is no record of nothing.\n"


def test_a_post_mortem_is_one_file_or_goes_to_standard_output(pdj, keep, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keep(GONE, RankEnd("worker-1", "failed", 1, text="Traceback"))
    assert pdj("postmortem", "gone").stdout == "wrote gone.html\n"
    page = (tmp_path / "gone.html").read_text()
    assert "Traceback" in page
    assert pdj("postmortem", object_key(GONE).name, "--to", "-").stdout == page
    result = pdj("postmortem", "gone", "--to", str(tmp_path / "none" / "page.html"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: cannot write ")


def test_a_page_is_private_and_does_not_follow_a_link(pdj, keep, tmp_path, monkeypatch):
    keep(GONE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "gone.html").symlink_to(tmp_path / "precious")
    assert pdj("postmortem", "gone").stdout == "wrote gone.html\n"
    assert (tmp_path / "precious").read_text() == "precious"
    page = (tmp_path / "gone.html").lstat()
    assert (stat.S_ISREG(page.st_mode), stat.S_IMODE(page.st_mode)) == (True, 0o600)
    assert sorted(each.name for each in tmp_path.iterdir() if "gone" in each.name) == ["gone.html"]
    assert pdj("postmortem", "gone", "--to", "/dev/null").stdout == "wrote /dev/null\n"
    assert Path("/dev/null").is_char_device()


def test_a_post_mortem_is_written_under_the_name_that_was_asked_for(pdj, keep, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    keep(GONE, inside=replace(GONE, name="../index", result="Completed"))
    assert pdj("postmortem", "gone").stdout == "wrote gone.html\n"
    assert not (tmp_path / "index.html").exists()
    assert json.loads(pdj("postmortem", "gone", "-o", "json").stdout)["summary"]["result"] == "Failed"


def test_a_record_does_not_hide_one_of_another_namespace(pdj, keep):
    keep(GONE)
    keep(replace(GONE, namespace="zoo", name="forged"))
    listed = [line.split()[:2] for line in pdj("history", "-A").stdout.splitlines()[1:]]
    assert sorted(listed) == [["default", "gone"], ["zoo", "forged"]]


def test_a_job_that_nobody_knows_is_told_so(pdj):
    result = pdj("postmortem", "nobody")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: there is no PaddleJob nobody in namespace default, and no record of one; "
        "`kubectl pdj history` lists what there is\n"
    )


async def test_runs_on_this_machine_have_the_same(tmp_path):
    script = (
        "echo epoch 1 step 1/2 loss 0.5; sleep 1.1; echo epoch 1 step 2/2 loss 0.25; echo boom >&2; exit 3"
    )
    runs = LocalRuns(tmp_path / "runs")
    started = await runs.submit(local_job(worker=role(1, script)))
    await started.wait(timeout_seconds=60)
    (summary,) = await runs.history()
    assert (summary.name, summary.result) == (started.name, "Failed")
    assert "exited with code 3" in summary.message
    assert await runs.history(name="another") == ()
    for name in (started.name, "job", "@latest"):
        record = await runs.record(name)
        assert record.summary == summary
    (attempt,) = record.attempts
    (rank,) = attempt.ranks
    assert (rank.rank, rank.exit_code, rank.from_log) == ("worker-0", 3, True)
    assert rank.text.splitlines()[-1] == "boom"
    assert [(each.step, each.loss) for each in record.curve] == [(1, "0.5"), (2, "0.25")]


async def test_a_restart_on_this_machine_is_an_attempt_of_the_record(tmp_path):
    script = 'echo attempt $PADDLEJOB_ATTEMPT; [ "$PADDLEJOB_ATTEMPT" = 1 ] || exit 137'
    runs = LocalRuns(tmp_path / "runs")
    body = local_job(worker=role(1, script))
    body["spec"]["restartPolicy"] = {"delaySeconds": 0}
    started = await runs.submit(body)
    assert (await started.wait(timeout_seconds=60)).status.phase == "Completed"
    record = await runs.record(started.name)
    assert [(each.attempt, each.result) for each in record.attempts] == [(0, "Restarting"), (1, "Completed")]
    assert "137" in record.attempts[0].message


def test_a_description_says_where_the_time_went(cluster, pdj, file):
    cluster.scene.fates.set("demo-worker-0", Exit(0, 3))
    pdj("submit", file(job().worker(1)))
    pdj("wait", "demo", "--timeout", "60s")
    (told,) = [line for line in pdj("describe", "demo").stdout.splitlines() if line.startswith("Time:")]
    assert re.fullmatch(r"Time: +\S.* \(\d+% training\)", told)
