"""The command as a person or a script uses it, in a process of its own."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess

import pytest

from local.commands import FOREVER, PADDLEJOB, in_terminal, says_up
from local.jobs import job, role
from local.processes import marked
from paddlejob.local.command import file_limit, run
from paddlejob.local.errors import InputError
from paddlejob.local.session import Options
from paddlejob.local.ui.plain import PlainOutput
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"


FORKS = 'sh -c \'trap "" TERM; setsid sleep 60 & setsid sh -c "sleep 60 & sleep 60" & echo up; sleep 60\''


RESULTS = {
    "completed is 0": ("true", 0),
    "failed is 1": ("exit 9", 1),
}


@pytest.mark.parametrize(("script", "code"), RESULTS.values(), ids=RESULTS)
def test_the_exit_code_is_the_jobs_result(command, file, script, code):
    assert command("run", file(job(worker=role(1, script)))).returncode == code


def test_pod_output_goes_to_stdout_and_messages_to_stderr(command, file):
    done = command("run", file(job(worker=role(2, "echo I am $PADDLE_TRAINER_ID"))))
    assert sorted(done.stdout.splitlines()) == ["worker-0 | I am 0", "worker-1 | I am 1"]
    assert re.search(r"^job Completed in \d+\.\d s: all 2 workers succeeded$", done.stderr, re.MULTILINE)


def test_the_last_line_shows_the_result(command, file):
    done = command("run", file(job(worker=role(1, "echo 'done auc 0.94 rows/s 20000'; echo bye"))))
    assert done.stderr.splitlines()[-1].endswith(" s: done auc 0.94 rows/s 20000")


def test_a_failure_shows_the_last_lines_of_the_log(command, file):
    done = command("run", file(job(worker=role(1, "echo about to fail; exit 3"))), "--logs", "none")
    assert "  worker-0 | about to fail" in done.stderr
    assert "worker-0 exited with code 3: about to fail" in done.stderr
    assert "see `paddlejob logs job-" in done.stderr


def test_json_output_is_one_object_per_line(command, file):
    script = "echo hello; echo done auc 0.9"
    done = command("run", file(job(worker=role(1, script))), "--output", "json", "--logs", "all")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["type"] for line in lines]
    assert (kinds[0], kinds[-1]) == ("run", "result")
    assert {"job", "pod", "event", "log"} <= set(kinds)
    assert [line["line"] for line in lines if line["type"] == "log"] == ["hello", "done auc 0.9"]
    assert [line["exitCode"] for line in lines if line.get("state") == "Completed"] == [0]
    assert (lines[-1]["result"], lines[-1]["exitCode"]) == ("Completed", 0)
    assert (lines[-1]["summary"], lines[-1]["metrics"]) == ("done auc 0.9", {"auc": 0.9})


def test_json_output_includes_errors(command, file):
    done = command("run", file(job(worker=role(0))), "-o", "json")
    [line] = map(json.loads, done.stdout.splitlines())
    assert line["type"] == "error"
    assert done.stderr == f"error: {line['message']}\n"
    assert done.returncode == 2


def test_ctrl_c_lets_the_pods_save_their_work(background, command, file, output):
    script = "trap 'echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"
    process = background(file(job(worker=role(2, script))))
    says_up(output, 2)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert output().count("| saved") == 2
    assert "stopping, waiting for pods to save their work" in output()
    assert not marked(command.mark)


def test_a_second_ctrl_c_kills_all_pods(background, command, file, output):
    process = background(file(job(worker=role(2, STUBBORN, terminationGracePeriodSeconds=3600))))
    says_up(output, 2)
    process.send_signal(signal.SIGINT)
    eventually(lambda: "stopping, waiting" in output())
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert not marked(command.mark)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "a closed terminal"])
def test_other_signals_stop_the_run(background, command, file, output, number):
    process = background(file(job(worker=role(1, FOREVER))))
    says_up(output)
    process.send_signal(number)
    assert process.wait() == 130
    assert not marked(command.mark)


def test_a_second_sighup_does_not_shorten_the_grace_period(background, command, file, output):
    script = "trap 'echo saving; sleep 1; echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"
    process = background(file(job(worker=role(1, script))))
    says_up(output)
    process.send_signal(signal.SIGHUP)
    eventually(lambda: "| saving" in output())
    process.send_signal(signal.SIGHUP)
    assert process.wait() == 130
    assert "| saved" in output()
    assert not marked(command.mark)


def test_a_closed_stdout_does_not_end_the_run(command, file):
    path = file(job(worker=role(1, "seq 1 100000; sleep 0.5; echo done")))
    words = ["bash", "-c", f"{' '.join(PADDLEJOB)} run {path} | head -1; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(words, env=command.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "worker-0 | 1\n")
    assert "Completed in" in done.stderr
    assert "Completed" in command("runs").stdout


def test_no_process_survives_a_killed_runner(background, command, file, output):
    process = background(file(job(worker=role(3, FORKS))))
    says_up(output, 3)
    process.kill()
    process.wait()
    eventually(lambda: not marked(command.mark))
    assert "Lost" in command("runs").stdout


def test_a_flood_of_output_is_complete(command, file, tmp_path):
    lines = 13_000_000
    with (tmp_path / "flood").open("wb") as flood:
        subprocess.run(
            [*PADDLEJOB, "run", str(file(job(worker=role(1, f"seq 1 {lines}"))))],
            env=command.environ,
            stdout=flood,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    whole = subprocess.run(["seq", "1", str(lines)], capture_output=True, check=True).stdout
    shown = (tmp_path / "flood").read_bytes()
    assert shown.count(b"worker-0 | ") == lines
    assert shown.replace(b"worker-0 | ", b"") == whole
    [log] = (tmp_path / "runs").glob("*/logs/*/main.log")
    assert log.read_bytes() == whole


def test_endless_lines_and_binary_output_are_harmless(command, file):
    script = "head -c 20000000 /dev/zero | tr '\\0' x; head -c 1000000 /dev/urandom"
    done = subprocess.run(
        [*PADDLEJOB, "run", str(file(job(worker=role(1, script))))],
        env=command.environ,
        capture_output=True,
        check=True,
    )
    assert done.stdout.count(b"x") >= 20_000_000


def test_a_live_run_is_controlled_from_another_terminal(background, command, file, output):
    process = background(file(job(worker=role(1, FOREVER))))
    says_up(output)
    assert "scaling to 2 workers" in command("scale", "job", 2).stdout
    eventually(lambda: "2 workers running" in output())
    assert "suspending" in command("suspend", "job").stdout
    eventually(lambda: "Suspended" in command("runs").stdout)
    assert "resuming" in command("resume", "job").stdout
    eventually(lambda: output().count("2 workers running") == 2)
    refused = command("rm", "job")
    assert (refused.returncode, "is running; stop it first" in refused.stderr) == (2, True)
    assert "stopping; logs and files are kept" in command("stop", "job").stdout
    assert process.wait() == 130
    assert "is not running" in command("stop", "job").stderr
    assert "deleted" in command("rm", "job").stdout
    assert "No PaddleJobs found" in command("runs").stderr


def test_the_live_view_shows_progress(command, file):
    script = "for i in 1 2 3; do echo epoch 1/1 step $i/3 loss 0.$i; sleep 0.3; done; echo done acc 0.9"
    shown = in_terminal(command, "run", file(job(ps=role(1, FOREVER), worker=role(2, script))))
    assert "epoch 1/1 step 3/3 loss 0.3" in shown
    for words in ("ps-0", "worker-1", "Running", "Completed", "LAST LINE", "100%", "Ctrl-C stops it"):
        assert words in shown
    assert re.search(r"job Completed in \d+\.\d s: done acc 0.9", shown.splitlines()[-2])


def test_the_live_view_shows_the_output_of_worker_0(command, file):
    shown = in_terminal(command, "run", file(job(worker=role(2, "echo hello; echo there; sleep 0.5"))))
    assert "worker-0 | hello\nworker-0 | there\n" in shown
    assert "worker-1 | hello" not in shown
    assert "logs: paddlejob logs job-" in shown


def test_the_live_view_can_show_all_logs(command, file):
    shown = in_terminal(command, "run", file(job(worker=role(2, "echo hello; sleep 0.5"))), "--logs", "all")
    assert "worker-0 | hello" in shown
    assert "worker-1 | hello" in shown


def test_a_run_may_open_more_files_than_the_soft_limit(command, file):
    def lower_limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 4096))

    done = command("run", file(job(worker=role(24))), preexec_fn=lower_limit)
    assert (done.returncode, "Too many open files" in done.stderr) == (0, False), done.stderr


UNLIMITED = resource.RLIM_INFINITY
FILE_LIMITS = {
    "to the hard limit": (1024, 4096, 4096),
    "to a moderate limit": (1024, 1 << 30, 65536),
    "to a moderate limit if there is none": (256, UNLIMITED, 65536),
    "not below the present limit": (100_000, 1 << 30, 100_000),
    "not if there is no limit": (UNLIMITED, UNLIMITED, UNLIMITED),
}


@pytest.mark.parametrize(("soft", "hard", "expected"), FILE_LIMITS.values(), ids=FILE_LIMITS)
def test_the_limit_of_open_files_is_raised(soft, hard, expected):
    assert file_limit(soft, hard) == expected


@pytest.mark.parametrize("refusal", [ValueError, OSError])
async def test_a_run_starts_if_the_system_refuses_the_limit(monkeypatch, tmp_path, refusal):
    def refuse(*_) -> None:
        raise refusal

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(InputError, match="PaddleJob"):
        await run(Options(text="", runs=tmp_path), PlainOutput("all"))


def test_a_live_run_is_not_deleted_and_no_question_is_asked(command, file, background, output, tmp_path):
    background(file(job(worker=role(1, FOREVER))))
    says_up(output)
    [run] = (tmp_path / "runs").iterdir()
    shown = in_terminal(command, "delete", run.name, code=2)
    assert f"{run.name} is running; stop it first with `paddlejob stop {run.name}`" in shown
    assert "[y/N]" not in shown
