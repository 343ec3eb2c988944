"""Verbs take the same names and flags and report the same errors on this machine and on a cluster."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.cli.catalog import ALIASES, FIRST_VERBS, ONLY_PADDLEJOB, VERBS
from paddlejob.cli.main import main
from paddlejob.client.cluster import Cluster
from paddlejob.local.store import run_directory
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord
from simkube.build import job
from simkube.kubelet.outcomes import Exit

SHOWING = ("logs", "describe", "explain", "events", "top")
"""Verbs that can be tried on a run that is not live."""
CHANGING = ("scale", "suspend", "resume", "retry", "stop", "cp", "exec", "port-forward")


def recorded(runs: Path, name: str = "demo", result: str = "Completed", **status: object) -> RunDirectory:
    """Make the directory of a run that is over."""
    run = run_directory.create(runs, name)
    (run.path / "job.yaml").write_text("{}")
    body = {**job(name).worker(1).manifest, "status": {"phase": result, "worker": {"ready": "1/1"}, **status}}
    run.write_record(RunRecord(job=msgspec.convert(body, PaddleJob), result=result))
    log = run.log(f"{name}-worker-0", "paddle")
    log.parent.mkdir()
    log.write_text("epoch 1/1 step 3/4 loss 0.5\n")
    return run


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return recorded(tmp_path / "runs")


@pytest.fixture(params=["this machine", "a cluster"])
def program(request, pdj, paddlejob, run, file):
    """Run a program that has a job called demo."""
    if request.param == "this machine":
        return paddlejob
    pdj("submit", file(job().worker(1)))
    return pdj


@pytest.fixture(params=["this machine", "a cluster"])
def two_jobs(request, cluster, pdj, paddlejob, file, tmp_path):
    """Run a program that has the jobs demo and newer, of which each writes its name."""
    if request.param == "this machine":
        for name in ("demo", "newer"):
            run = recorded(tmp_path / "runs", name)
            run.log(f"{name}-worker-0", "paddle").write_text(f"{name} writes\n")
            run.append_event(b'{"type": "Normal", "reason": "Started"}')
        return paddlejob
    for name in ("demo", "newer"):
        pdj("submit", file(job(name).worker(1)))
        cluster.write(f"{name}-worker-0", f"{name} writes")
    return pdj


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [((), "newer", "demo"), (("@latest",), "newer", "demo"), (("demo",), "demo", "newer")],
    ids=["no name", "@latest", "the job"],
)
@pytest.mark.parametrize("verb", SHOWING)
def test_a_verb_that_shows_takes_the_newest_job(two_jobs, verb, name, shown, hidden):
    once = ("--once",) if verb == "top" else ()
    result = two_jobs(verb, *name, *once)
    assert result.exit_code == 0, result.output
    assert shown in result.output
    # `top` without a name lists all jobs.
    assert (hidden in result.output) is (verb == "top" and not name)


@pytest.mark.parametrize("verb", CHANGING)
def test_a_verb_that_changes_needs_a_name(program, verb):
    result = program(verb)
    assert result.exit_code == 2
    assert "error: Missing argument 'JOB" in result.stderr


@pytest.mark.parametrize("verb", [*SHOWING, "wait", "suspend", "delete"])
def test_an_unknown_name_is_one_error(program, verb):
    result = program(verb, "nothing")
    assert result.exit_code == 2
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith("error: there is no ")


@pytest.mark.parametrize("text", ["3600", "3600s", "60m", "1h", "1d", "1w", "1h30m"])
def test_a_duration_has_the_same_forms(program, text):
    result = program("logs", "demo", "--since", text)
    assert "is not a duration" not in result.stderr
    assert result.exit_code == 0, result.output


WRONG = {
    "an option that does not exist": (("get", "--bad"), "error: No such option '--bad'."),
    "no duration": (("logs", "--since", "soon"), "'soon' is not a duration; write 90s, 5m, 1h30m or 7d"),
    "two numbers of workers": (
        ("scale", "demo", "2", "--replicas", "3"),
        "error: give the number of workers once",
    ),
    "follow and previous": (("logs", "-f", "-p"), "error: -f does not work with --previous or --first-error"),
    "no such rank": (("logs", "-r", "7"), "error: demo has no rank 7; choose all or one of worker-0"),
    "nothing to delete": (("delete",), "error: give the name of a JOB, --all-finished or --older-than"),
    "no such phase": (("get", "--phase", "x"), "error: --phase: x is not a phase; choose among Pending"),
}


@pytest.mark.parametrize(("arguments", "error"), WRONG.values(), ids=WRONG)
def test_a_wrong_command_line_is_one_error(program, arguments, error):
    result = program(*arguments)
    assert result.exit_code == 2
    assert error in result.stderr
    assert "Error:" not in result.stderr


@pytest.mark.parametrize(("alias", "verb"), ALIASES.items())
def test_an_alias_does_the_same(paddlejob, run, alias, verb):
    assert paddlejob(alias, run.name, "-o", "x").exit_code == 2
    assert paddlejob(alias, run.name, *(("-y",) if alias == "rm" else ())).exit_code == 0
    assert run.path.exists() is (verb == "get")


def test_get_top_and_describe_show_the_progress_of_a_run(paddlejob, run):
    headings, row = (line.split("  ") for line in paddlejob("get", "-o", "wide").stdout.splitlines())
    cells = [cell.strip() for cell in row if cell.strip()]
    assert [name.strip() for name in headings if name.strip()][8] == "RESULT"
    assert {"Completed", "100%", "0.5"} <= {*cells}
    training = "epoch 1/1, step 3/4, 100%, loss 0.5"
    assert training in paddlejob("top", "demo", "--once").stdout
    assert training in paddlejob("describe").stdout


@pytest.mark.parametrize(
    ("result", "phase"), [("Stopped", "Stopped"), ("Interrupted", "Interrupted"), ("", "Lost")]
)
def test_a_run_that_ended_before_its_job_has_its_phase_in_every_verb(paddlejob, tmp_path, result, phase):
    run = recorded(tmp_path / "runs", result=result, phase="Running")
    assert paddlejob("get").stdout.splitlines()[1].split()[:2] == [run.name, phase]
    assert paddlejob("get", "--phase", phase.lower(), "-o", "name").stdout == f"{run.name}\n"
    assert paddlejob("history").stdout.splitlines()[1].split()[:2] == [run.name, phase]
    assert f"{run.name} is {phase}: " in paddlejob("top", run.name, "--once").stdout
    assert ["Status:", phase] in [line.split() for line in paddlejob("describe").stdout.splitlines()]
    assert paddlejob("explain").stdout.startswith(f"{run.name}: {phase}: ")
    waited = paddlejob("wait")
    assert (waited.exit_code, waited.stdout.startswith(f"{run.name} {phase}: ")) == (1, True)


def test_finished_jobs_of_an_age_are_deleted_on_a_cluster_too(cluster, pdj, file):
    cluster.scene.fates.set("over-worker-0", Exit(0, 0.2))
    pdj("submit", file(job("live").worker(1), job("over").worker(1)))
    assert pdj("wait", "over", "--timeout=60s").exit_code == 0
    assert pdj("delete", "--older-than", "1h").stdout == ""
    refused = pdj("delete", "--all-finished")
    expected = "error: this would delete over; pass --yes to delete without a question\n"
    assert (refused.exit_code, refused.stderr) == (2, expected)
    assert (
        pdj("delete", "over", "over", "--all-finished", "--yes").stdout
        == "paddlejob.batch.paddlepaddle.org/over deleted\n"
    )
    assert pdj("get", "-o", "name").stdout == "paddlejob.batch.paddlepaddle.org/live\n"


def test_no_list_of_jobs_is_needed_to_delete_one_by_name(cluster, pdj, file, monkeypatch):
    pdj("submit", file(job("one").worker(1)))
    monkeypatch.setattr(Cluster, "list", None)
    assert pdj("delete", "paddlejob/one").exit_code == 0


def test_a_job_is_as_old_as_its_end(paddlejob, tmp_path):
    long_ago, now = "2020-01-01T00:00:00Z", datetime.now(UTC).isoformat()
    just_ended = recorded(tmp_path / "runs", "long", startTime=long_ago, completionTime=now)
    os.utime(just_ended.path / "job.yaml", (0, 0))
    old = recorded(tmp_path / "runs", "old", completionTime=long_ago)
    deleted = paddlejob("delete", "--older-than", "1h", old.name, "--yes")
    assert deleted.stdout == f"{old.name} deleted\n"
    assert just_ended.path.exists()


@pytest.mark.parametrize("name", ["demo", "paddlejob/demo"])
def test_the_name_of_a_job_with_several_runs_is_not_deleted(paddlejob, run, tmp_path, name):
    newer = recorded(tmp_path / "runs")
    refused = paddlejob("delete", name)
    expected = f"error: demo has 2 runs: {newer.name}, {run.name}; give the name of one\n"
    assert (refused.exit_code, refused.stderr) == (2, expected)
    assert run.path.exists()
    assert newer.path.exists()


@pytest.mark.parametrize("verb", ["stop", "suspend", "resume", "scale"])
def test_a_change_by_the_name_of_a_job_is_for_its_only_live_run(paddlejob, run, tmp_path, verb):
    newer = recorded(tmp_path / "runs")
    rest = ("2",) if verb == "scale" else ()
    assert f"{newer.name} is not running" in paddlejob(verb, "demo", *rest).stderr
    locks = [run.lock()]
    # The run has no control socket, and its record is the last one.
    found = paddlejob(verb, run.name, *rest)
    assert found.output.replace(run.name, newer.name) != found.output
    by_job = paddlejob(verb, "demo", *rest)
    assert (by_job.exit_code, by_job.output) == (found.exit_code, found.output)
    locks.append(newer.lock())
    expected = f"error: demo has 2 live runs: {newer.name}, {run.name}; give the name of one\n"
    for refused in (paddlejob(verb, "paddlejob/demo", *rest), paddlejob("attach", "demo")):
        assert (refused.exit_code, refused.stderr) == (2, expected)
    for lock in locks:
        os.close(lock)


def test_another_directory_of_runs(paddlejob, pdj, tmp_path):
    run = recorded(tmp_path / "others")
    assert paddlejob("get", "-o", "name", "--run-dir", tmp_path / "others").stdout == f"{run.name}\n"
    assert paddlejob("logs", "--run-dir", tmp_path / "others").exit_code == 0
    for refused in (pdj("get", "--run-dir", "x"), paddlejob("get", "-A", "--run-dir", "x")):
        assert (refused.exit_code, "--run-dir is for runs on this machine" in refused.stderr) == (2, True)
    assert "--run-dir" in paddlejob("get", "--help").stdout
    hint = f"paddlejob logs {run.name} --run-dir {tmp_path / 'others'}"
    assert hint in paddlejob("attach", "--run-dir", tmp_path / "others").stderr
    assert "--run-dir" not in pdj("get", "--help").stdout


def test_a_relative_directory_of_runs(paddlejob, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["sh", "-c", "touch final.pdparams"]
    done = paddlejob("run", file(job().worker(1, command=command)), "--run-dir", "here")
    [run] = (tmp_path / "here").iterdir()
    assert (
        f"copy with `paddlejob cp {run.name} worker-0:final.pdparams . --run-dir {run.parent}`" in done.stderr
    )
    again = paddlejob("retry", run.name, "--run-dir", "here").stdout.strip()
    assert again.endswith(f" --run-dir {run.parent}`")
    assert paddlejob("wait", again.split()[0], "--run-dir", "here", "--timeout=60s").exit_code == 0
    detached = paddlejob("run", tmp_path / "job.yaml", "-d", "--run-dir", "here")
    name = detached.stdout.strip()
    assert f"stop it with `paddlejob stop {name} --run-dir {run.parent}`" in detached.stderr
    assert paddlejob("wait", name, "--run-dir", "here", "--timeout=60s").exit_code == 0


def test_the_hint_to_start_a_run_is_not_printed_with_a_filter(paddlejob):
    assert "start one with `paddlejob run FILE`" in paddlejob("get").stderr
    assert "start one" not in paddlejob("get", "--phase", "failed").stderr


def test_progress_without_an_epoch_or_a_step_is_a_dash(paddlejob, tmp_path):
    run = recorded(tmp_path / "runs", result="Failed")
    run.log("demo-worker-0", "paddle").write_text("loss: 0.5\n")
    headings, row = (re.split(" {2,}", line) for line in paddlejob("get", "-o", "wide").stdout.splitlines())
    assert (row[headings.index("PROGRESS")], row[headings.index("LOSS")]) == ("-", "0.5")


def test_json_of_a_run_is_that_of_a_job(paddlejob, run):
    record = msgspec.structs.replace(run.read_record(), python="3.11", outcome=Outcome(metrics={"acc": 1}))
    run.write_record(record)
    told = json.loads(paddlejob("get", "demo", "-o", "json").stdout)
    assert (told["kind"], told["status"]["progress"]["percent"]) == ("PaddleJob", 100)
    assert told["metadata"]["name"] == run.name
    expected = {
        "job": "demo",
        "directory": str(run.path),
        "python": "3.11",
        "outcome": {"metrics": {"acc": 1}},
    }
    assert told["run"] == expected
    [listed] = json.loads(paddlejob("runs", "-o", "json").stdout)["items"]
    assert listed == told
    assert paddlejob("runs", "-o", "text").stdout == paddlejob("runs").stdout


def test_json_of_a_new_run_has_its_name(paddlejob, file, tmp_path):
    submitted = paddlejob("submit", file(job().worker(1, command=["true"])), "-o", "json")
    started = json.loads(submitted.stdout)
    assert paddlejob("wait", started["metadata"]["name"], "--timeout=60s").exit_code == 0
    again = json.loads(paddlejob("retry", started["metadata"]["name"], "-o", "json").stdout)
    assert paddlejob("wait", again["metadata"]["name"], "--timeout=60s").exit_code == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        started["metadata"]["name"],
        again["metadata"]["name"],
    }


def test_ranks_that_were_scaled_away_can_be_read(paddlejob, run, tmp_path):
    log = run.log("demo-worker-3", "paddle")
    log.parent.mkdir()
    log.write_text("removed\n")
    run.write_env("demo-worker-3", {"A": "1"})
    model = run.files("demo-worker-3") / "paddle-0" / "workspace" / "model"
    model.parent.mkdir(parents=True)
    model.write_text("weights")
    assert paddlejob("logs", "-r", "3").stdout.endswith("removed\n")
    assert paddlejob("env", "-r", "worker-3").stdout == "A=1\n"
    assert paddlejob("cp", "demo", "3:/workspace/model", tmp_path / "copy").exit_code == 0
    assert (tmp_path / "copy").read_text() == "weights"


def test_values_with_line_breaks_are_shown_whole(paddlejob, run):
    values = {"A": "1\n\nB=2\n", "C": '"quoted"', "D": "back\\nslash", "E": "", "F": "é\u2028=\x0c"}
    run.write_env("demo-worker-0", values)
    assert run.read_env("demo-worker-0") == values
    shown = paddlejob("env", "-r", "worker-0").stdout
    assert shown.startswith('A=1\n\nB=2\n\nC="quoted"\nD=back\\nslash\nE=\n')


def test_restarts_of_containers_are_counted(paddlejob, tmp_path):
    run = recorded(tmp_path / "runs", restarts=1)
    record = run.read_record()
    counts = ({"name": "paddle", "restartCount": count} for count in (3, 2))
    pods = tuple(
        msgspec.convert({"metadata": {}, "status": {"containerStatuses": [each]}}, Pod) for each in counts
    )
    run.write_record(msgspec.structs.replace(record, pods=pods))
    headings, row = (re.split(" {2,}", line) for line in paddlejob("get", "-o", "wide").stdout.splitlines())
    assert row[headings.index("RESTARTS")] == "4"


def test_without_arguments_a_newcomer_sees_the_first_verbs():
    shown = CliRunner().invoke(main, [])
    assert shown.exit_code == 0
    verbs = [line.split()[0] for line in shown.stdout.splitlines() if line.startswith("  ")][1:]
    assert tuple(verbs) == FIRST_VERBS
    assert "`paddlejob --help` lists all commands" in shown.stdout


def test_help_lists_every_verb_once_and_no_alias(pdj):
    for shown, verbs in (
        (CliRunner().invoke(main, ["--help"]), {*VERBS}),
        (pdj("--help"), {*VERBS} - ONLY_PADDLEJOB),
    ):
        listed = [line.split()[0] for line in shown.stdout.splitlines() if line.startswith("  ")]
        assert {verb for verb in VERBS if verb in listed} == verbs
        assert all(listed.count(verb) == 1 for verb in verbs)
        assert not {*ALIASES} & {*listed}
