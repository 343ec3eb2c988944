from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.run.console import LogTee
from paddlejob.plainjob.run.launch import ProcessSpec
from paddlejob.plainjob.run.process import exit_code, run_process


@pytest.fixture
def run(tmp_path):
    shown, warnings = [], []

    def start(code, *, grace_seconds=30.0, **environment):
        process = ProcessSpec("train", (sys.executable, "-c", code), environment)
        tee = LogTee(tmp_path / "logs" / "train.log", shown.append, "--- header\n", warnings.append)
        return run_process(process, tmp_path, tee, dict(os.environ), grace_seconds)

    start.shown = shown
    start.warnings = warnings
    start.log = tmp_path / "logs" / "train.log"
    return start


async def until_printed(shown, line):
    while line not in shown:
        await asyncio.sleep(0.01)


async def test_output_goes_to_log_and_console(run):
    async with run("import os; print('one'); print(os.environ['X'], end='')", X="two") as child:
        assert await child.wait() == 0
    assert run.shown == [b"one\n", b"two\n"]
    assert run.log.read_bytes() == b"--- header\none\ntwo"


async def test_a_second_run_adds_to_the_log(run):
    for _ in range(2):
        async with run("print('hello')") as child:
            await child.wait()
    assert run.log.read_bytes() == b"--- header\nhello\n" * 2


def full_disk(log):
    log.parent.mkdir()
    log.symlink_to("/dev/full")


def lost_directory(log):
    log.parent.write_text("a file where a directory was")


@pytest.mark.parametrize(
    ("breaks", "reason"), [(full_disk, "No space left on device"), (lost_directory, "File exists")]
)
async def test_a_log_that_cannot_be_written_costs_the_log_only(run, breaks, reason):
    breaks(run.log)
    program = "for line in range(1000): print(line, flush=True)"
    async with run(program) as child:
        assert await child.wait() == 0
    assert run.shown == [b"%d\n" % line for line in range(1000)]
    assert run.warnings == [f"cannot write {run.log}: {reason}; training continues without this log"]


async def test_a_very_long_line_is_whole(run):
    async with run("print('x' * 1_000_000)") as child:
        await child.wait()
    assert run.shown == [b"x" * 1_000_000 + b"\n"]


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3, 3), (-15, 143), (-9, 137)])
def test_exit_codes_are_those_of_a_shell(status, code):
    assert exit_code(status) == code


async def test_leaving_the_block_ends_the_process(run):
    async with run("import signal; print('up', flush=True); signal.pause()") as child:
        await until_printed(run.shown, b"up\n")
    assert await child.wait() == 128 + signal.SIGTERM


async def test_a_process_that_ignores_the_request_is_killed(run):
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    async with run(stubborn, grace_seconds=0.01) as child:
        await until_printed(run.shown, b"up\n")
    assert await child.wait() == 128 + signal.SIGKILL


SAVES = "import signal; signal.signal(15, lambda *_: print('saved')); print('up', flush=True); signal.pause()"


async def test_the_children_of_a_process_that_dies_of_a_signal_get_it_too(run):
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SAVES!r}])"
    async with run(parent) as child:
        await until_printed(run.shown, b"up\n")
        child.send(signal.SIGTERM)
        assert await child.wait() == 128 + signal.SIGTERM
    assert run.shown[-1] == b"saved\n"


async def test_what_a_process_has_started_is_its_own_to_end(run):
    reads_to_the_end = (
        "import signal, subprocess\n"
        "reader = subprocess.Popen('cat', stdin=subprocess.PIPE)\n"
        "signal.signal(signal.SIGTERM, lambda *_: reader.stdin.close())\n"
        "print('up', flush=True)\n"
        "print('the reader ended with', reader.wait())"
    )
    async with run(reads_to_the_end) as child:
        await until_printed(run.shown, b"up\n")
        child.send(signal.SIGTERM)
        assert await child.wait() == 0
    assert run.shown[-1] == b"the reader ended with 0\n"


async def test_nothing_that_a_process_started_outlives_it(run, monkeypatch):
    monkeypatch.setattr("paddlejob.plainjob.run.process.LAST_OUTPUT_SECONDS", 0.1)
    async with run("import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)") as child:
        assert await child.wait() == 0
    while lives(int(run.shown[0])):
        await asyncio.sleep(0.01)


def lives(pid):
    """Tell whether a process runs; one that has ended may wait to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


async def test_a_program_that_is_not_there_is_named(tmp_path):
    tee = LogTee(tmp_path / "train.log", print, "", print)
    with pytest.raises(SettingsError, match="cannot start 'no-such-program': No such file"):
        async with run_process(ProcessSpec("train", ("no-such-program",)), tmp_path, tee, {}, 1):
            pass
