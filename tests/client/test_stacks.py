"""Where processes are that cannot say so themselves: real ones, asked by the shell that a container has."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.jobs import job, role
from paddlejob.client.errors import ClientError
from paddlejob.client.local_runs import LocalRuns
from paddlejob.client.streams import stacks
from paddlejob.client.streams.stacks import ProcessStack, format_stacks
from tests.recorder.interpreter import SITE
from tests.support.waiting import eventually

MOUNT = ("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")
CAN_MOUNT = os.geteuid() == 0 and not subprocess.run(MOUNT, check=False, capture_output=True).returncode
PROGRAM = """
import ctypes, os, re, subprocess, sys, threading, time

def hold():
    print("up", flush=True)
    re.match("(a+)+$", "a" * 60 + "b")

def deadlock():
    lock = threading.Lock()
    lock.acquire()
    print("up", flush=True)
    lock.acquire()

def fork():
    if os.fork() == 0:
        time.sleep(600)
    deadlock()

def as_another_user():
    os.setgid(65534)
    os.setuid(65534)
    deadlock()

def replace():
    file = next(fd for fd in range(3, 20) if "stacks" in os.readlink(f"/proc/self/fd/{fd}"))
    print("up", flush=True)
    while not os.path.exists("wanted"):
        time.sleep(0.01)
    os.dup2(os.open("precious", os.O_RDONLY), file)
    open("replaced", "w").close()
    time.sleep(600)

def imitate():
    file = next(fd for fd in range(3, 20) if "stacks" in os.readlink(f"/proc/self/fd/{fd}"))
    name = os.readlink(f"/proc/self/fd/{file}")
    ctypes.CDLL(None).unshare(0x20000)  # a mount namespace of its own
    os.mkdir("mount")
    for words in (["--make-rprivate", "/"], ["-t", "tmpfs", "none", "mount"]):
        subprocess.run(["mount", *words], check=True)
    os.chdir("mount")
    with open(f".{name}", "w") as precious:
        precious.write("everything")
    os.dup2(os.open(f".{name}", os.O_RDONLY), file)
    os.chdir("..")
    subprocess.run(["umount", "--lazy", "mount"], check=True)
    assert os.readlink(f"/proc/self/fd/{file}") == name
    print("up", flush=True)
    print(file, flush=True)
    time.sleep(600)

globals()[sys.argv[1]]()
"""
WAITING_GREP = """#!/bin/sh
touch "{0}/wanted"
until [ -e "{0}/replaced" ]; do sleep 0.01; done
exec /bin/grep "$@"
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator:
    """Starts processes with the recorder, in a group of their own that is ended with the test."""
    with contextlib.ExitStack() as stack:

        def begin(where: str, rank: int, *options: str) -> subprocess.Popen[bytes]:
            variables = {
                "PYTHONPATH": str(SITE),
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLEJOB_PROGRESS_FILE": str(tmp_path / "progress"),
            }
            process = subprocess.Popen(
                [sys.executable, *options, "-c", PROGRAM, where],
                env=variables,
                stdout=subprocess.PIPE,
                start_new_session=True,
                cwd=tmp_path,
            )
            stack.enter_context(process)
            stack.callback(_end, process)
            process.stdout.readline()
            return process

        yield begin


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def ask(file: Path, **variables: str) -> list[ProcessStack]:
    done = subprocess.run(
        ["sh", "-c", stacks.SCRIPT, "sh", str(file)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    )
    assert done.stderr == ""
    return list(stacks._parse("worker-0", done.stdout))


def test_processes_that_run_no_python_code_show_where_they_are(start, tmp_path):
    processes = [start("hold", 0), start("deadlock", 1), start("fork", 2)]
    found = {each.name: each for each in ask(tmp_path / "progress")}
    assert sorted(found) == ["worker-0 rank 0", "worker-0 rank 1", "worker-0 rank 2"]
    for rank, function in enumerate(("hold", "deadlock", "fork")):
        assert f"in {function}\n" in found[f"worker-0 rank {rank}"].dump
    assert [process.poll() for process in processes] == [None, None, None]
    again = ask(tmp_path / "progress")
    assert [each.dump.count("most recent call first") for each in again] == [1, 1, 1]


def test_a_process_that_is_stopped_is_said_to_be(start, tmp_path):
    start("deadlock", 0)
    stopped = start("deadlock", 1)
    stopped.send_signal(signal.SIGSTOP)
    eventually(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    first, second = sorted(ask(tmp_path / "progress"), key=lambda each: each.name)
    assert "in deadlock" in first.dump
    assert second.trouble == (
        f"is stopped by a signal or a debugger; `kill -CONT {stopped.pid}` there continues it"
    )


def test_only_processes_with_the_recorder_are_sent_the_signal(start, tmp_path):
    """By default it ends a process."""
    without = start("deadlock", 0, "-I")
    [found] = ask(tmp_path / "progress")
    assert found.trouble in (stacks.NO_RECORDER, stacks.NO_PROCESS)
    assert without.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")
def test_processes_of_other_users_are_not_asked(start, tmp_path):
    """Another user may run a process that looks like one of this run."""
    process = start("as_another_user", 0)
    [found] = ask(tmp_path / "progress")
    assert found.trouble in (stacks.NO_RECORDER, stacks.NO_PROCESS)
    assert process.poll() is None


def test_a_file_that_takes_the_place_of_the_stacks_is_not_emptied(start, tmp_path):
    precious, programs = tmp_path / "precious", tmp_path / "bin"
    precious.write_text("everything")
    programs.mkdir()
    (programs / "grep").write_text(WAITING_GREP.format(tmp_path))
    (programs / "grep").chmod(0o755)
    start("replace", 0)
    [found] = ask(tmp_path / "progress", PATH=f"{programs}:{os.environ['PATH']}")
    assert found.trouble in (stacks.NO_RECORDER, stacks.NO_PROCESS)
    assert precious.read_text() == "everything"


@pytest.mark.skipif(not CAN_MOUNT, reason="only root may mount a file system, and not in every container")
def test_a_file_with_the_name_of_the_stacks_is_not_emptied(start, tmp_path):
    """The path of a file in an unmounted file system begins at the root of that file system."""
    process = start("imitate", 0)
    file = Path(f"/proc/{process.pid}/fd/{int(process.stdout.readline())}")
    [found] = ask(tmp_path / "progress")
    assert found.trouble in (stacks.NO_RECORDER, stacks.NO_PROCESS)
    assert file.read_text() == "everything"


def test_the_launcher_is_not_asked(tmp_path, start):
    start("deadlock", 3)
    launcher = "import time\nprint('up', flush=True)\ntime.sleep(600)"
    variables = {"PYTHONPATH": str(SITE), "PADDLEJOB_PROGRESS_FILE": str(tmp_path / "progress")}
    command = [sys.executable, "-c", launcher, "-m", "paddle.distributed.launch"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        [found] = ask(tmp_path / "progress")
        assert process.poll() is None
        process.kill()
    assert found.name == "worker-0"


FRAME = 'Thread 0x0{0} (most recent call first):\n  File "/app/train.py", line {0} in step\n'


def test_ranks_at_the_same_place_are_shown_once():
    two_threads = FRAME.format(9) + "\n" + FRAME.format(1)
    found = [
        ProcessStack("worker-0", FRAME.format(2)),
        ProcessStack("worker-1", two_threads),
        ProcessStack("worker-2", FRAME.format(1)),
        ProcessStack("worker-3", trouble="is stopped"),
    ]
    assert format_stacks(found).splitlines() == [
        "worker-1, worker-2:",
        '  File "/app/train.py", line 1 in step',
        "worker-0:",
        '  File "/app/train.py", line 2 in step',
        "worker-3 is stopped",
    ]
    assert "worker-1, another thread:\n" in format_stacks(found, all_threads=True)


def test_one_of_several_ranks_of_a_pod_is_shown():
    output = "paddlejob-stack 70 4 S\nfour\npaddlejob-stack 71 5 S\nfive\n"
    assert list(stacks._parse("worker-1", output, "5")) == [ProcessStack("worker-1 rank 5", "five")]
    assert list(stacks._parse("worker-1", output, "6")) == [
        ProcessStack("worker-1", trouble=stacks.NO_PROCESS)
    ]


async def test_the_ranks_of_a_local_run_show_where_they_are(tmp_path):
    program = "import time\ndef sleep():\n  print(1, flush=True)\n  time.sleep(600)\nsleep()"
    runs = LocalRuns(tmp_path / "runs")
    script = f"if [ $PADDLE_TRAINER_ID = 2 ]; then exec sleep 600; fi; exec {sys.executable} -c '{program}'"
    demo = await runs.submit(job(worker=role(3, script)))
    try:
        await demo.wait("running", timeout_seconds=60)

        async def found() -> str:
            return format_stacks(await demo.stacks())

        text = ""
        while "worker-0, worker-1:" not in text:
            text = await found()
        assert text.splitlines()[1] == '  File "<string>", line 4 in sleep'
        assert f"worker-2 {stacks.NO_PROCESS}" in text
        with pytest.raises(ClientError, match="has no rank 7"):
            await demo.stacks("7")
    finally:
        await demo.stop()
        await demo.wait(timeout_seconds=60)
    with pytest.raises(ClientError, match=r"no pod of .* runs now: it is Failed"):
        await demo.stacks()
