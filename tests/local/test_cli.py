"""The command as a person or a script uses it, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from local.jobs import container, job, role, text
from local.processes import fresh_mark, marked
from paddlejob.cli.main import main
from paddlejob.local.store import run_directory
from tests.support.waiting import eventually

PADDLEJOB = (str(Path(sys.executable).with_name("paddlejob")),)
FOR_EVER = "echo up; while :; do sleep 60; done"
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"
FORKS = 'sh -c \'trap "" TERM; setsid sleep 60 & setsid sh -c "sleep 60 & sleep 60" & echo up; sleep 60\''


@pytest.fixture
def command(tmp_path):
    """Run `paddlejob`; what it started is found by a mark in its environment."""
    mark = fresh_mark()
    environ = {**os.environ, "PADDLEJOB_RUNS": str(tmp_path / "runs"), "TZ": mark, "COLUMNS": "120"}

    def paddlejob(*arguments, **options):
        words = [*PADDLEJOB, *map(str, arguments)]
        return subprocess.run(words, env=environ, capture_output=True, check=False, text=True, **options)

    paddlejob.environ = environ
    paddlejob.mark = mark
    return paddlejob


@pytest.fixture
def file(tmp_path):
    def write(*documents):
        path = tmp_path / "job.yaml"
        path.write_text(text(*documents))
        return path

    return write


@pytest.fixture
def background(command, tmp_path):
    """Start `paddlejob run`, which writes into a file."""
    with contextlib.ExitStack() as stack:

        def start(path, *options):
            output = stack.enter_context((tmp_path / "output").open("wb"))
            process = subprocess.Popen(
                [*PADDLEJOB, "run", str(path), *options],
                env=command.environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def output(tmp_path):
    return (tmp_path / "output").read_text


def says_up(output, times=1):
    eventually(lambda: output().count("| up") >= times)


RESULTS = {
    "completed is 0": ("true", 0),
    "failed is 1": ("exit 9", 1),
}


@pytest.mark.parametrize(("script", "code"), RESULTS.values(), ids=RESULTS)
def test_the_exit_code_is_the_jobs_result(command, file, script, code):
    assert command("run", file(job(worker=role(1, script)))).returncode == code


GPU = {"limits": {"amd.com/gpu": 1}}
ON_GPU = job(worker=role(1, containers=[container("true", resources=GPU)]))
BAD_INPUT = {
    "a bad job": (text(job(worker=role(0))), (), "paddlejob: spec.worker.replicas: Invalid value: 0"),
    "a file that is no YAML": ("a: [", (), "job.yaml is not valid YAML: line 2"),
    "a bad option": (text(job()), ("--image", "x"), "paddlejob: --image x: write IMAGE=DIR"),
    "logs of no pod": (
        text(job()),
        ("--logs", "7"),
        "--logs 7: there is no such pod; give all, none or one of",
    ),
    "logs of nobody": (text(job()), ("--logs", "foo"), "or one of worker-0, worker-1"),
    "another encoding": ("名字".encode("gbk"), (), "job.yaml is not UTF-8 text; save it as UTF-8"),
    "a binary file": (bytes(range(256)), (), "job.yaml is not UTF-8 text"),
    "a directory that cannot be written": (
        text(job()),
        ("--run-dir", "/proc/runs"),
        "cannot write to /proc/runs: No such file or directory; choose another directory with --run-dir",
    ),
    "too many pods": (text(job(worker=role(5000))), (), "has 5000 pods, but one machine runs at most 4094"),
    "an accelerator with --strict": (text(ON_GPU), ("--strict",), "without --strict it would run on the CPU"),
}


@pytest.mark.parametrize(("written", "options", "sentence"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_2_and_one_sentence(command, tmp_path, written, options, sentence):
    (tmp_path / "job.yaml").write_bytes(written if isinstance(written, bytes) else written.encode())
    done = command("run", tmp_path / "job.yaml", *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").glob("*/job.yaml"))


def test_the_job_may_come_from_a_pipe(command):
    done = command("run", "-", input=text(job(worker=role(1, "echo piped"))))
    assert done.stdout == "worker-0 | piped\n"


def test_pods_speak_on_stdout_and_we_on_stderr(command, file):
    done = command("run", file(job(worker=role(2, "echo I am $PADDLE_TRAINER_ID"))))
    assert sorted(done.stdout.splitlines()) == ["worker-0 | I am 0", "worker-1 | I am 1"]
    assert re.search(r"^job Completed in \d+\.\d s: all 2 workers succeeded$", done.stderr, re.MULTILINE)


def test_one_rank_or_none_may_be_listened_to(command, file):
    path = file(job(worker=role(2, "echo I am $PADDLE_TRAINER_ID")))
    assert command("run", path, "--logs", "1").stdout == "worker-1 | I am 1\n"
    assert command("run", path, "--logs", "none").stdout == ""


def test_a_result_is_told_in_the_last_line(command, file):
    done = command("run", file(job(worker=role(1, "echo 'done auc 0.94 rows/s 20000'; echo bye"))))
    assert done.stderr.splitlines()[-1].endswith(" s: done auc 0.94 rows/s 20000")


def test_a_failure_is_told_with_the_last_words(command, file):
    done = command("run", file(job(worker=role(1, "echo about to fail; exit 3"))), "--logs", "none")
    assert "  worker-0 | about to fail" in done.stderr
    assert "worker-0 exited with code 3: about to fail" in done.stderr
    assert "see `paddlejob logs job-" in done.stderr


def test_machines_get_one_object_a_line(command, file):
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


def test_machines_get_errors_as_objects_too(command, file):
    done = command("run", file(job(worker=role(0))), "-o", "json")
    [line] = map(json.loads, done.stdout.splitlines())
    assert line["type"] == "error"
    assert done.stderr == f"paddlejob: {line['message']}\n"
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


def test_ctrl_c_twice_ends_everything_at_once(background, command, file, output):
    process = background(file(job(worker=role(2, STUBBORN, terminationGracePeriodSeconds=3600))))
    says_up(output, 2)
    process.send_signal(signal.SIGINT)
    eventually(lambda: "stopping, waiting" in output())
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert not marked(command.mark)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "a closed terminal"])
def test_other_ways_to_stop(background, command, file, output, number):
    process = background(file(job(worker=role(1, FOR_EVER))))
    says_up(output)
    process.send_signal(number)
    assert process.wait() == 130
    assert not marked(command.mark)


def test_a_second_hang_up_does_not_cut_the_saving_short(background, command, file, output):
    script = "trap 'echo saving; sleep 1; echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"
    process = background(file(job(worker=role(1, script))))
    says_up(output)
    process.send_signal(signal.SIGHUP)
    eventually(lambda: "| saving" in output())
    process.send_signal(signal.SIGHUP)
    assert process.wait() == 130
    assert "| saved" in output()
    assert not marked(command.mark)


def test_a_reader_that_leaves_does_not_end_the_run(command, file):
    path = file(job(worker=role(1, "seq 1 100000; sleep 0.5; echo done")))
    words = ["bash", "-c", f"{' '.join(PADDLEJOB)} run {path} | head -1; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(words, env=command.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "worker-0 | 1\n")
    assert "Completed in" in done.stderr
    assert "Completed" in command("runs").stdout


def test_nothing_survives_when_the_runner_is_killed(background, command, file, output):
    process = background(file(job(worker=role(3, FORKS))))
    says_up(output, 3)
    process.kill()
    process.wait()
    eventually(lambda: not marked(command.mark))
    assert "Lost" in command("runs").stdout


def test_a_flood_reaches_the_reader_whole(command, file, tmp_path):
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


def test_a_line_without_end_and_binary_junk_do_no_harm(command, file):
    script = "head -c 20000000 /dev/zero | tr '\\0' x; head -c 1000000 /dev/urandom"
    done = subprocess.run(
        [*PADDLEJOB, "run", str(file(job(worker=role(1, script))))],
        env=command.environ,
        capture_output=True,
        check=True,
    )
    assert done.stdout.count(b"x") >= 20_000_000


def test_a_live_run_obeys_from_another_terminal(background, command, file, output):
    process = background(file(job(worker=role(1, FOR_EVER))))
    says_up(output)
    assert "scaling to 2 workers" in command("scale", "job", 2).stdout
    eventually(lambda: "2 workers running" in output())
    assert "suspending" in command("suspend").stdout
    eventually(lambda: "Suspended" in command("runs").stdout)
    assert "resuming" in command("resume").stdout
    eventually(lambda: output().count("2 workers running") == 2)
    refused = command("rm", "job")
    assert (refused.returncode, "is running; stop it first" in refused.stderr) == (2, True)
    assert "stopping; logs and files are kept" in command("stop", "job").stdout
    assert process.wait() == 130
    assert "is not running" in command("stop", "job").stderr
    assert "removed" in command("rm", "job").stdout
    assert "there are no runs" in command("runs").stderr


REMOVALS = {
    "by name": (("one", "two"), ["one", "two"]),
    "one that does not exist keeps the others": (("one", "nope"), []),
    "the beginning of a name": (("on",), []),
    "an empty name": (("",), []),
    "nothing named": ((), []),
    "all": (("--all-finished",), ["one", "two"]),
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


def test_old_runs_are_removed(tmp_path):
    for name, age_seconds in {"old": 8 * 86400, "new": 6 * 86400}.items():
        job_file = run_directory.create(tmp_path, name).path / "job.yaml"
        job_file.touch()
        os.utime(job_file, (time.time() - age_seconds,) * 2)
    CliRunner().invoke(main, ["rm", "--older-than", "7d", "--run-dir", str(tmp_path)])
    assert [path.name.rpartition("-")[0] for path in tmp_path.iterdir()] == ["new"]


def test_what_a_program_wrote_is_named_and_can_be_copied(command, file, tmp_path):
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
        "worker-0:none": "wrote no none",
        "worker-0:../x": "without '..'",
        "9:output": "9 is not one pod of",
        "output": "write POD:PATH",
    }.items():
        refused = command("cp", "job", source, target)
        assert refused.returncode == 2
        assert sentence in refused.stderr


def test_a_missing_paddle_is_told_with_the_way_out(command, file):
    script = "echo \"ModuleNotFoundError: No module named 'paddle'\"; exit 1"
    done = command("run", file(job(worker=role(1, script), backoffLimit=0)), "--python", sys.executable)
    assert f"python is {sys.executable} (--python), which has no Paddle; choose another with" in done.stderr


def test_a_run_is_looked_at_afterwards(command, file):
    command("run", file(job(worker=role(2, "echo I am $PADDLE_TRAINER_ID"))))
    assert sorted(command("logs").stdout.splitlines()) == ["worker-0 | I am 0", "worker-1 | I am 1"]
    assert command("logs", "job", "--rank", "1").stdout == "I am 1\n"
    assert "PADDLE_TRAINER_ID=1\n" in command("env", "job", "--rank", "1").stdout


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
def test_runs_are_listed_with_what_came_of_them(command, file, document, state, workers, restarts, result):
    command("run", file(document))
    headings, row = (re.split(r"  +", line) for line in command("runs").stdout.splitlines())
    assert headings == ["RUN", "STATE", "WORKERS", "RESTARTS", "AGE", "TOOK", "RESULT"]
    assert row[1:4] == [state, workers, restarts]
    assert row[6:] == ([result] if result else [])


def test_runs_are_listed_for_programs(command, file):
    for name in ("one", "two"):
        command("run", file(job(name=name, worker=role(1, "echo done auc 0.9"))))
    told = json.loads(command("runs", "-o", "json", "one").stdout)
    assert (told["state"], told["outcome"]["metrics"]) == ("Completed", {"auc": 0.9})
    wide = command("runs", "-o", "wide").stdout.splitlines()
    assert "MODE" in wide[0]
    assert "Single" in wide[1]
    [two] = command("runs", "-o", "name", "--limit", "1").stdout.split()
    assert two.startswith("two-")
    documents = list(yaml.safe_load_all(command("runs", "-o", "yaml").stdout))
    assert [each["run"] for each in documents] == [two, told["run"]]
    assert "there is no run three" in command("runs", "three").stderr


def test_a_list_of_runs_does_not_wrap_at_a_terminal(command, file):
    command("run", file(job(worker=role(1, f"echo done acc 0.9 {'x' * 300}"))))
    shown = in_terminal(command, "runs", columns=80).splitlines()
    assert [len(line) for line in shown[1:]] == [80]
    assert shown[1].endswith("x…")


def test_a_stopped_run_is_listed_as_such(background, command, file, output):
    process = background(file(job(worker=role(2, f"echo step 1/9 loss 2; {FOR_EVER}"))))
    says_up(output, 2)
    eventually(lambda: re.search(r"Running +2/2 .* step 1/9 loss 2", command("runs").stdout))
    process.send_signal(signal.SIGINT)
    process.wait()
    assert re.search(r"Interrupted +2 stopped .* step 1/9 loss 2", command("runs").stdout)


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
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z second\n", stamped)
    nothing = command("logs", "--since", "0s")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "has no output to show" in nothing.stderr
    assert "--since soon: write a number" in command("logs", "--since", "soon").stderr


QUESTIONS = {
    "no such run": (("logs", "nope"), "there is no run nope"),
    "no such rank": (("logs", "job", "--rank", "9"), "has no rank 9; it has job-worker-0"),
    "no such environment": (("env", "job", "--rank", "ps-0"), "has no rank ps-0"),
    "several environments": (
        ("env", "job", "--rank", "worker"),
        "worker means 2 pods; give one of job-worker-0",
    ),
    "nobody to suspend": (("suspend", "job"), "is not running"),
}


@pytest.mark.parametrize(("arguments", "sentence"), QUESTIONS.values(), ids=QUESTIONS)
def test_wrong_questions_get_a_sentence(command, file, arguments, sentence):
    command("run", file(job(worker=role(2))))
    done = command(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_reader_that_has_had_enough_is_no_error(command, file):
    path = file(job(worker=role(1, "seq 1 100000")))
    command("run", path)
    words = ["bash", "-c", f"{' '.join(PADDLEJOB)} logs | head -1"]
    done = subprocess.run(words, env=command.environ, capture_output=True, text=True, check=True)
    assert done.stdout == "worker-0 | 1\n"
    assert "Traceback" not in done.stderr


def test_a_person_at_a_terminal_sees_the_pods_move(command, file):
    script = "for i in 1 2 3; do echo epoch 1 step $i/3 loss 0.$i; sleep 0.3; done; echo done acc 0.9"
    shown = in_terminal(command, "run", file(job(ps=role(1, FOR_EVER), worker=role(2, script))))
    assert "epoch 1 step 3/3 loss 0.3" in shown
    for words in ("ps-0", "worker-1", "Running", "Completed", "LAST LINE", "100%", "Ctrl-C stops it"):
        assert words in shown
    assert re.search(r"job Completed in \d+\.\d s: done acc 0.9", shown.splitlines()[-2])


def test_a_person_sees_the_output_of_worker_0_above_the_view(command, file):
    shown = in_terminal(command, "run", file(job(worker=role(2, "echo hello; echo there; sleep 0.5"))))
    assert "worker-0 | hello\nworker-0 | there\n" in shown
    assert "worker-1 | hello" not in shown
    assert "logs: paddlejob logs job-" in shown


def test_a_person_may_read_all_logs_above_the_view(command, file):
    shown = in_terminal(command, "run", file(job(worker=role(2, "echo hello; sleep 0.5"))), "--logs", "all")
    assert "worker-0 | hello" in shown
    assert "worker-1 | hello" in shown


def test_a_misspelt_verb_is_told_the_right_one():
    assert "did you mean run?" in CliRunner().invoke(main, ["rnu"]).output


def in_terminal(command, *arguments, columns=120):
    """Run the command at a terminal and return what it showed, without colours and movements."""
    master, slave = pty.openpty()
    environ = {**command.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    words = [*PADDLEJOB, *map(str, arguments)]
    process = subprocess.Popen(words, env=environ, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError), process:
        while chunk := os.read(master, 65536):
            shown += chunk
    os.close(master)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace")).replace("\r", "")


@pytest.mark.parametrize(
    "verb", ["run", "runs", "logs", "env", "scale", "suspend", "resume", "stop", "rm", "cp"]
)
def test_every_verb_explains_itself(verb):
    shown = CliRunner().invoke(main, [verb, "--help"])
    assert shown.exit_code == 0
    assert "Usage:" in shown.output


def test_help_is_quick_because_it_imports_nothing(command):
    code = (
        "import sys; from paddlejob.cli import main; print('asyncio' in sys.modules or 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert Path(sys.executable).exists()
