"""What is known of runs afterwards: lists, logs, files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest
import yaml
from click.testing import CliRunner

from local.commands import FOREVER, PADDLEJOB, in_terminal, says_up
from local.jobs import container, job, role
from paddlejob.cli.main import main
from paddlejob.local.store import run_directory
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

REMOVALS = {
    "by name": (("one", "two"), ["one", "two"]),
    "without a question": (("one", "--yes"), ["one"]),
    "one that does not exist keeps the others": (("one", "nope"), []),
    "the beginning of a name": (("on",), []),
    "an empty name": (("",), []),
    "nothing named": ((), []),
    "all": (("--all-finished", "--yes"), ["one", "two"]),
    "all without a question": (("--all-finished",), []),
    "all, and one by name": (("one", "--all-finished", "--yes"), ["one", "two"]),
    "young ones stay": (("--older-than", "1h"), []),
    "an age that is none": (("--older-than", "old"), []),
}


@pytest.mark.parametrize(("arguments", "removed"), REMOVALS.values(), ids=REMOVALS)
def test_finished_runs_are_removed(tmp_path, arguments, removed):
    for name in ("one", "two"):
        (run_directory.create(tmp_path, name).path / "job.yaml").touch()
    done = CliRunner().invoke(main, ["rm", *arguments, "--run-dir", str(tmp_path)])
    left = {path.name.rpartition("-")[0] for path in tmp_path.iterdir()}
    assert left == {"one", "two"} - set(removed)
    assert (done.exit_code == 0) is (bool(removed) or "1h" in arguments)


def run_with_a_model(tmp_path):
    run = run_directory.create(tmp_path, "one")
    (run.path / "job.yaml").touch()
    model = run.files("one-worker-0") / "main-0" / "workspace" / "final.pdparams"
    model.parent.mkdir(parents=True)
    model.touch()
    return run


def test_written_files_are_not_removed_without_confirmation(tmp_path):
    run = run_with_a_model(tmp_path)
    refused = CliRunner().invoke(main, ["rm", "one", "--run-dir", str(tmp_path)])
    assert refused.exit_code == 2
    assert f"{run.name} has files such as final.pdparams; pass --yes to delete them" in refused.output
    assert run.path.exists()
    assert CliRunner().invoke(main, ["rm", "one", "--yes", "--run-dir", str(tmp_path)]).exit_code == 0
    assert not run.path.exists()


@pytest.mark.parametrize(("answer", "code"), {"n": 1, "y": 0}.items())
def test_rm_asks_before_it_deletes(command, tmp_path, answer, code):
    run = run_with_a_model(tmp_path / "runs")
    shown = in_terminal(command, "rm", "one", code=code, react=("[y/N]", lambda at: at.sendline(answer)))
    assert f"{run.name} has files such as final.pdparams" in shown
    assert f"Delete {run.name} from this machine, with all logs and files? [y/N]" in shown
    assert run.path.exists() is (code == 1)
    assert ("nothing was deleted" in shown) is (code == 1)


def test_old_runs_are_removed(tmp_path):
    for name, age_seconds in {"old": 8 * 86400, "new": 6 * 86400}.items():
        job_file = run_directory.create(tmp_path, name).path / "job.yaml"
        job_file.touch()
        os.utime(job_file, (time.time() - age_seconds,) * 2)
    CliRunner().invoke(main, ["rm", "--older-than", "7d", "--yes", "--run-dir", str(tmp_path)])
    assert [path.name.rpartition("-")[0] for path in tmp_path.iterdir()] == ["new"]


def test_written_files_are_listed_and_can_be_copied(command, file, tmp_path):
    script = "mkdir output; echo weights > output/final.pdparams; echo x > log.txt"
    done = command("run", file(job(worker=role(1, script))))
    assert "wrote output/final.pdparams (worker-0)" in done.stderr
    [run] = (path.name for path in (tmp_path / "runs").iterdir())
    assert f"copy with `paddlejob cp {run} worker-0:" in done.stderr
    assert not (tmp_path / "output").exists()
    target = tmp_path / "out"
    target.mkdir()
    assert command("cp", run, "worker-0:output", target).returncode == 0
    assert (target / "output" / "final.pdparams").read_text() == "weights\n"
    assert command("cp", "job", "0:/workspace/log.txt", target / "renamed").returncode == 0
    assert (target / "renamed").read_text() == "x\n"
    for source, sentence in {
        "worker-0:none": "did not write none",
        "worker-0:../x": "without '..'",
        "9:output": "has no rank 9; it has worker-0",
        "output": "must be RANK:PATH",
    }.items():
        refused = command("cp", "job", source, target)
        assert refused.returncode == 2
        assert sentence in refused.stderr


def test_a_finished_run_can_be_inspected(command, file):
    command("run", file(job(worker=role(2, "echo I am $PADDLE_TRAINER_ID"))))
    assert sorted(command("logs").stdout.splitlines()) == ["worker-0 | I am 0", "worker-1 | I am 1"]
    assert command("logs", "job", "--rank", "1").stdout == "I am 1\n"
    variables = command("env", "job", "--rank", "1").stdout.splitlines()
    assert "PADDLE_TRAINER_ID=1" in variables
    assert [each for each in variables if "ATTEMPT" in each] == ["PADDLEJOB_ATTEMPT=0"]


ENDINGS = {
    "a result": (job(worker=role(2, "echo done auc 0.9")), "Completed", "2 done", "0", "done auc 0.9"),
    "no result": (job(worker=role(1)), "Completed", "1 done", "0", ""),
    "how far it came": (
        job(worker=role(1, "echo step 3/9 loss 2")),
        "Completed",
        "1 done",
        "0",
        "step 3/9 loss 2",
    ),
    "a reason": (
        job(worker=role(1, "echo oh; exit 3"), backoffLimit=0),
        "Failed",
        "1 failed",
        "0",
        "worker-0 exited with code 3: oh",
    ),
    "a restart": (
        job(
            worker=role(2, "test $PADDLEJOB_ATTEMPT = 1 || sh -c 'kill -9 $PPID'"),
            restartPolicy={"delaySeconds": 0, "maxDelaySeconds": 0},
        ),
        "Completed",
        "2 done",
        "1",
        "",
    ),
}


@pytest.mark.parametrize(
    ("document", "state", "workers", "restarts", "result"), ENDINGS.values(), ids=ENDINGS
)
def test_runs_are_listed_with_their_results(command, file, document, state, workers, restarts, result):
    command("run", file(document))
    headings, row = (re.split(r"  +", line) for line in command("get", "-o", "wide").stdout.splitlines())
    found = dict(zip(headings, row, strict=True))
    assert (found["STATUS"], found["WORKER"], found["RESTARTS"]) == (state, workers, restarts)
    assert found["RESULT"] == (result or "-")


def test_runs_are_listed_for_programs(command, file):
    for name in ("one", "two"):
        command("run", file(job(name=name, worker=role(1, "echo done auc 0.9"))))
    told = json.loads(command("get", "-o", "json", "one").stdout)
    assert told["status"]["phase"] == "Completed"
    [two] = command("runs", "-o", "name", "--limit", "1").stdout.split()
    assert two.startswith("two-")
    items = yaml.safe_load(command("get", "-o", "yaml").stdout)["items"]
    assert [each["run"]["job"] for each in items] == ["two", "one"]
    assert items[0]["metadata"]["name"] == two
    assert items[0]["run"]["outcome"]["metrics"] == {"auc": 0.9}
    assert "there is no run three" in command("get", "three").stderr


def test_a_list_of_runs_does_not_wrap_at_a_terminal(command, file):
    command("run", file(job(worker=role(1, f"echo done acc 0.9 {'x' * 300}"))))
    shown = in_terminal(command, "get", columns=80).splitlines()
    assert [len(line) for line in shown[1:]] == [80]
    assert shown[1].endswith("…")


def test_a_stopped_run_is_listed_as_such(background, command, file, output):
    process = background(file(job(worker=role(2, f"echo step 1/9 loss 2; {FOREVER}"))))
    says_up(output, 2)
    eventually(lambda: re.search(r"Running .* 2/2 +11% .* step 1/9 loss 2", command("runs").stdout))
    process.send_signal(signal.SIGINT)
    process.wait()
    assert re.search(r"Interrupted .* 0/2 +11% .* step 1/9 loss 2", command("runs").stdout)


def test_logs_are_followed_while_a_run_lasts(background, command, file, output):
    background(file(job(worker=role(1, "echo up; sleep 1; echo end"))))
    says_up(output)
    assert command("logs", "-f").stdout == "worker-0 | up\nworker-0 | end\n"


def test_logs_come_in_order_of_time_and_may_be_cut(command, file):
    script = (
        "if test $PADDLE_TRAINER_ID = 0; then echo first; sleep 0.6; echo third; printf last;"
        " else sleep 0.3; echo second; sleep 0.6; fi"
    )
    command("run", file(job(worker=role(2, script))))
    expected = ["worker-0 | first", "worker-1 | second", "worker-0 | third", "worker-0 | last"]
    assert command("logs").stdout.splitlines() == expected
    assert command("logs", "--tail", "1").stdout.splitlines() == [expected[1], expected[2], expected[3]]
    assert command("logs", "--since", "1h").stdout.splitlines() == expected
    stamped = command("logs", "--timestamps", "-r", "1").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z second\n", stamped)
    nothing = command("logs", "--since", "0s")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "has no output to show" in nothing.stderr
    assert "'soon' is not a duration" in command("logs", "--since", "soon").stderr
    assert command("logs", "--since", "3600").stdout.splitlines() == expected


def test_one_container_of_each_pod(command, file, tmp_path):
    helped = tmp_path / "helped"
    helped.mkdir()
    # A job ends with its training containers, and stops the others.
    training = f"until test $(ls {helped} | wc -l) = 2; do sleep 0.05; done; echo trains"
    helping = f"echo helps; mktemp --quiet --tmpdir={helped} > /dev/null"
    both = [container(training), container(helping, name="helper")]
    command("run", file(job(worker=role(2, containers=both))))
    assert len(command("logs").stdout.splitlines()) == 2
    assert len(command("logs", "--all-containers").stdout.splitlines()) == 4
    assert command("logs", "-c", "main", "-r", "0").stdout == "trains\n"
    lines = command("logs", "--container", "helper", "-f").stdout.splitlines()
    assert [line.partition(" | ")[2] for line in lines] == ["helps", "helps"]
    refused = command("logs", "-c", "mian")
    assert refused.returncode == 2
    assert "has no container mian; it has helper, main" in refused.stderr


def test_logs_of_the_previous_start(command, file):
    script = (
        "echo attempt $PADDLEJOB_ATTEMPT; printf end; test $PADDLEJOB_ATTEMPT = 1 || sh -c 'kill -9 $PPID'"
    )
    command("run", file(job(worker=role(2, script), restartPolicy={"delaySeconds": 0, "maxDelaySeconds": 0})))
    assert command("logs", "--previous", "-r", "0").stdout == "attempt 0\nend\n"
    last_lines = command("logs", "-p", "--tail", "1").stdout.splitlines()
    assert "worker-0 | end" in last_lines
    assert {line.partition(" | ")[2] for line in last_lines} == {"end"}
    assert "-f does not work with --previous" in command("logs", "-p", "-f").stderr


def test_a_run_whose_program_did_not_start_says_why_it_has_no_output(command, file):
    missing = {"name": "main", "image": "x", "command": ["no-such-program"]}
    command("run", file(job(worker=role(1, containers=[missing]), backoffLimit=0)))
    assert "has no output to show: worker-0 exited with code 128 (StartError)" in command("logs").stderr


QUESTIONS = {
    "nothing was restarted": (("logs", "job", "-p"), "has no previous logs: no container was restarted"),
    "no such run": (("logs", "nope"), "there is no run nope"),
    "no such rank": (
        ("logs", "job", "--rank", "9"),
        "has no rank 9; choose all or one of worker-0, worker-1",
    ),
    "no such environment": (("env", "job", "--rank", "ps-0"), "has no rank ps-0"),
    "several environments": (
        ("env", "job", "--rank", "worker"),
        "worker means 2 pods of job; choose one of worker-0, worker-1",
    ),
    "nobody to suspend": (("suspend", "job"), "is not running"),
}


@pytest.mark.parametrize(("arguments", "sentence"), QUESTIONS.values(), ids=QUESTIONS)
def test_invalid_queries_get_one_sentence(command, file, arguments, sentence):
    command("run", file(job(worker=role(2))))
    done = command(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_closed_pipe_is_not_an_error(command, file):
    path = file(job(worker=role(1, "seq 1 100000")))
    command("run", path)
    words = ["bash", "-c", f"{' '.join(PADDLEJOB)} logs | head -1"]
    done = subprocess.run(words, env=command.environ, capture_output=True, text=True, check=True)
    assert done.stdout == "worker-0 | 1\n"
    assert "Traceback" not in done.stderr
