from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from devcluster.processes import Child, Record, ended, parse_stat, read_records, write_records

ROOT = Path(__file__).parents[2]
STARTER = """
import sys
from pathlib import Path
from devcluster.processes import Child
directory = Path(sys.argv[1])
command = ["/bin/sh", "-c", "echo ready; exec sleep 600"]
child = Child("sleeper", command, log=directory / "log", directory=directory)
print(child.record.pid, flush=True)
sys.stdin.read()
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield Record.of("sleeper", process.pid)
        process.kill()


def start(tmp_path, *command):
    return Child("child", list(command), log=tmp_path / "log", directory=tmp_path)


def await_ready(log):
    """Wait until the launcher has become the command: only then is the kernel's promise in place."""
    deadline = time.monotonic() + 30
    while log.read_text() != "ready\n":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_name_with_spaces_and_parentheses_does_not_confuse():
    fields = " ".join(str(number) for number in range(4, 53))
    assert parse_stat(f"12 (a ) (b) S {fields}") == ("S", 22)


def test_a_running_process_is_alive_until_it_is_ended(sleeper):
    assert sleeper.alive()
    assert sleeper.end()
    assert not sleeper.alive()
    assert not sleeper.end()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"start_ticks": 1}, id="the number now belongs to a younger process"),
        pytest.param({"boot_id": "another"}, id="the machine was started again"),
    ],
)
def test_an_unrelated_process_with_the_same_number_is_never_ended(sleeper, change):
    stranger = dataclasses.replace(sleeper, **change)
    assert not stranger.alive()
    assert not stranger.end()
    assert sleeper.alive()


def test_a_process_that_ignores_the_request_is_killed_after_its_grace():
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        assert Record.of("stubborn", process.pid).end(grace_seconds=0.05)
        assert process.wait() == -signal.SIGKILL


def test_a_process_with_grace_ends_in_its_own_way():
    with subprocess.Popen(["sleep", "600"]) as process:
        assert Record.of("sleeper", process.pid).end(grace_seconds=30)
        assert process.wait() == -signal.SIGTERM


def test_records_survive_a_file(tmp_path, sleeper):
    write_records(tmp_path / "records", [sleeper])
    assert read_records(tmp_path / "records") == [sleeper]
    assert read_records(tmp_path / "absent") == []


def test_a_child_dies_with_a_starter_that_is_killed(tmp_path):
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        handle = os.pidfd_open(int(starter.stdout.readline()))
        await_ready(tmp_path / "log")
        starter.kill()
    assert ended(handle, 30)
    os.close(handle)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path):
    children = []

    def start_and_await():
        children.append(start(tmp_path, "/bin/sh", "-c", "echo ready; exec sleep 600"))
        await_ready(tmp_path / "log")

    thread = threading.Thread(target=start_and_await)
    thread.start()
    thread.join()
    handle = children[0].record.open()
    assert not ended(handle, 0.2)
    children[0].kill()
    assert ended(handle, 0)
    os.close(handle)


def test_a_child_sees_nothing_of_the_callers_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("ETCD_NAME", "stray")
    child = start(tmp_path, "/usr/bin/env")
    assert child._process.wait() == 0
    names = {line.partition("=")[0] for line in child.log.read_text().splitlines()}
    assert {"PATH", "HOME", "TMPDIR"} <= names
    assert "ETCD_NAME" not in names


def test_a_child_that_cannot_run_says_why_in_its_log(tmp_path):
    child = start(tmp_path, "/no/such/program")
    assert child._process.wait() == 1
    assert not child.running()
    assert "No such file" in child.log_tail()


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_what_a_waited_program_starts_is_what_is_recorded_and_killed(tmp_path):
    command = ["/bin/sh", "-c", "sleep 600 & wait"]
    child = Child("child", command, log=tmp_path / "log", directory=tmp_path, waited=True)
    assert parent_of(child.record.pid) != os.getpid()
    child.kill()
    assert not child.record.alive()
    assert not child.running()


def test_a_waited_program_that_ends_without_a_child_is_recorded_itself(tmp_path):
    child = Child("child", ["/bin/true"], log=tmp_path / "log", directory=tmp_path, waited=True)
    assert child.exit_code() == 0
    assert not child.record.alive()
