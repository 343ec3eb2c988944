"""The processes of a pod: the real scripts read files as Paddle's launcher and the recorder write them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from paddlejob.api.meta import ObjectMeta
from paddlejob.api.pod import Pod
from paddlejob.client.errors import ClientError
from paddlejob.client.logs.process_log import NO_FILE
from paddlejob.client.logs.process_log import SCRIPT as READ_LOG
from paddlejob.client.streams.pod_scripts import ask_each
from paddlejob.client.streams.processes import ENVIRONMENT, STATES, parse_environment, parse_states
from tests.support.waiting import eventually


def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", script, "sh", *arguments]
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def states(directory: Path, first_rank: int = 4) -> list:
    done = run(STATES, str(directory))
    assert (done.returncode, done.stderr) == (0, "")
    return list(parse_states("worker-1", done.stdout, first_rank))


def test_each_process_has_its_rank_card_progress_and_last_line(tmp_path):
    for number in range(2):
        (tmp_path / f"workerlog.{number}").write_text(f"process {number}\nloading\n\x1b[31mstep {number}\n")
        rank, card = number + 8, number + 2
        variables = f"FLAGS_selected_gpus={card}\nPADDLE_TRAINER_ID={rank}\nPATH=/bin\n"
        (tmp_path / f"envlog.{number}").write_text(variables)
        report = {"rank": rank, "phase": "training", "step": 120, "total": 500, "loss": 0.41234567}
        (tmp_path / f"progress.{number}").write_text(json.dumps(report) + "\n")
    first, second = states(tmp_path)
    assert (first.rank, first.device, first.last_line) == (8, "gpu 2", "step 0")
    assert (second.pod, second.rank, second.device) == ("worker-1", 9, "gpu 3")
    assert (second.phase, second.step, second.total, second.loss) == ("training", 120, 500, "0.4123")


def test_a_process_without_the_recorder_shows_the_progress_in_its_log(tmp_path):
    (tmp_path / "workerlog.0").write_text("")
    (tmp_path / "workerlog.1").write_text("step 30/100 loss 2.5\nno newline at the end")
    (tmp_path / "progress.1").write_text("{")
    empty, found = states(tmp_path)
    assert (empty.rank, empty.step, empty.last_line) == (4, 0, "")
    assert (found.rank, found.step, found.total, found.loss) == (5, 30, 100, "2.5")
    assert found.last_line == "no newline at the end"


def test_files_that_the_launcher_did_not_write_are_harmless(tmp_path):
    (tmp_path / "workerlog.1").write_text("up\n")
    (tmp_path / "workerlog.1.bak").write_text("old\n")
    (tmp_path / "envlog.1").write_text(f"PADDLE_TRAINER_ID={'9' * 5000}\n")
    os.mkfifo(tmp_path / "progress.1")
    (found,) = states(tmp_path)
    assert (found.rank, found.last_line) == (5, "up")


def test_a_pod_that_does_not_answer_has_a_time_limit():
    async def ask(pod: Pod) -> str:
        return await asyncio.get_running_loop().create_future() if pod is hung else "up"

    hung, well = Pod(ObjectMeta("hung")), Pod(ObjectMeta("well"))
    answers = asyncio.run(ask_each([hung, well], ask, timeout_seconds=0.01))
    assert [(each.output, each.trouble) for each in answers] == [
        ("", "did not answer within 0.01 seconds"),
        ("up", ""),
    ]


def test_a_pod_without_files_has_no_processes(tmp_path):
    assert states(tmp_path) == []
    assert states(tmp_path / "missing") == []


def test_files_are_found_by_the_variable_and_by_default(tmp_path):
    (tmp_path / "workerlog.0").write_text("hello\n")
    assert " hello" in run(STATES, PADDLE_LOG_DIR=str(tmp_path)).stdout


def test_the_environment_of_a_process_is_the_last_one_that_the_launcher_wrote(tmp_path):
    (tmp_path / "envlog.1").write_text("A=1\nB=x\ny=z\n\nlast line\nA=2\n")
    found = parse_environment(run(ENVIRONMENT, str(tmp_path), "1").stdout, "worker-1", 1)
    assert found == {"A": "2", "B": "x", "y": "z\n\nlast line"}
    with pytest.raises(ClientError, match="--rank worker-1 shows the environment of its container"):
        parse_environment(run(ENVIRONMENT, str(tmp_path), "2").stdout, "worker-1", 2)


@pytest.mark.parametrize(
    ("offset", "tail", "start", "text"),
    [
        ("0", "", 0, "one\ntwo\nthree\n"),
        ("4", "", 4, "two\nthree\n"),
        ("0", "1", 8, "three\n"),
        ("0", "0", 14, ""),
        ("99", "", 0, "one\ntwo\nthree\n"),
    ],
    ids=["all", "from an offset", "the last line", "no line", "a file that was written again"],
)
def test_a_log_is_read_from_an_offset_or_its_last_lines(tmp_path, offset, tail, start, text):
    (tmp_path / "workerlog.1").write_text("one\ntwo\nthree\n")
    os.utime(tmp_path / "workerlog.1", (1000, 1000))
    done = run(READ_LOG, str(tmp_path), "1", offset, tail, "")
    assert (done.returncode, done.stdout) == (0, f"{start} 14 1000\n{text}")


def test_a_missing_log_is_an_error_unless_it_is_followed(tmp_path):
    assert run(READ_LOG, str(tmp_path), "1", "0", "", "").returncode == NO_FILE


def test_following_waits_for_the_file_and_ends_with_its_client(tmp_path):
    words = ["sh", "-c", READ_LOG, "sh", str(tmp_path), "1", "0", "", "-f"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        log = tmp_path / "workerlog.1"
        log.write_text("one\n")
        assert shell.stdout.readline().startswith(b"0 4 ")
        assert shell.stdout.readline() == b"one\n"
        with log.open("a") as file:
            file.write("two\n")
        assert shell.stdout.readline() == b"two\n"
        shell.stdin.close()
        shell.wait(timeout=60)
        # The program that follows the file is gone too, so that nothing is left in the container.
        eventually(lambda: not _group(shell.pid))


def _group(leader: int) -> list[str]:
    done = subprocess.run(
        ["ps", "-o", "pid=", "-g", str(leader)], capture_output=True, text=True, check=False
    )
    return done.stdout.split()
