"""A supervisor that lacks processes, and programs that leave something behind or look for it."""

from __future__ import annotations

import os
import signal

import pytest

from paddlejob.recorder.attend import Attend
from tests.recorder.test_supervisor import HANDLES, PARKS, WAITS
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.timeout(120)

FORKS_ONCE = """
fork = os.fork
def fork_once():
    os.fork = fail
    return fork()
def fail():
    raise BlockingIOError("too many processes")
os.fork = fork_once
"""


async def test_without_a_process_to_park_the_program_still_gets_its_signals(operator, run):
    pod = run(HANDLES, changes=PARKS + FORKS_ONCE, PADDLEJOB_PARKED="1")
    await pod.says("begins")
    before = os.times().elapsed
    await eventually_async(lambda: os.times().elapsed > before + 2)
    os.kill(pod.first, signal.SIGTERM)
    assert await pod.exit_code() == 7
    assert "supervisor is off" not in pod.log


async def test_a_look_up_that_cannot_be_started_leaves_no_file_open(operator, run):
    pod = run(WAITS, url=operator.url.replace("127.0.0.1", "localhost"), changes=FORKS_ONCE)
    await pod.says("begins 3")
    files = pod.root("proc/1/fd")
    before, count = os.times().elapsed, len(list(files.iterdir()))
    await eventually_async(lambda: os.times().elapsed > before + 4)
    assert len(list(files.iterdir())) <= count + 1


WAITS_FOR_SIGNAL = """
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
waits = threading.Thread(target=lambda: print("got", signal.sigwait({signal.SIGUSR1}).name))
waits.start()
print("begins")
waits.join()
"""


async def test_a_signal_reaches_a_thread_that_waits_for_it(operator, run):
    pod = run(WAITS_FOR_SIGNAL)
    await pod.says("begins")
    os.kill(pod.first, signal.SIGUSR1)
    await pod.says("got SIGUSR1")
    assert await pod.exit_code() == 0


CHANGES_OUTPUT = """
import os, sys
print(os.get_blocking(1), os.get_blocking(2))
os.set_blocking(1, False)
sys.exit(3)
"""


async def test_an_output_that_does_not_wait_is_not_passed_to_the_next_program(operator, run):
    pod = run(CHANGES_OUTPUT)
    await operator.sees(attempt=3, state="down", code=3)
    operator.order(run=4, env={})
    await operator.sees(attempt=4, state="down", code=3)
    assert pod.log.splitlines() == ["True True", "paddlejob: attempt 4 starts in place", "True True"]


SANDBOX = """
import subprocess, sys
command = ["unshare", "--pid", "--fork", sys.executable, "-c", "import os; print(os.getpid()); os._exit(1)"]
print("sandbox", subprocess.run(command, stdin=subprocess.DEVNULL).returncode)
"""


async def test_a_process_in_a_sandbox_of_the_program_does_not_supervise(operator, run):
    pod = run(SANDBOX)
    assert await pod.exit_code() == 0
    assert pod.log.splitlines() == ["1", "sandbox 1"]


@pytest.mark.parametrize(
    ("host", "is_supervised"),
    [("10.0.0.2", False), ("10.0.0.1", True), ("demo-worker-1.team", True)],
    ids=["another worker", "the pod itself", "a service"],
)
async def test_a_command_with_the_address_of_another_worker_is_not_supervised(
    operator, run, host, is_supervised
):
    hosts = f"10.0.0.1,{host}"
    pod = run(["-c", WAITS, f"--ips={hosts}"], PADDLE_TRAINERS=hosts, POD_IP="10.0.0.1")
    await pod.says("begins 3")
    assert len(pod.processes) == 1 + is_supervised


@pytest.mark.parametrize(("away", "longest"), [(50.0, 1.3), (70.0, 6.1)])
def test_an_operator_that_is_away_for_long_is_asked_less_often(tmp_path, away, longest):
    (tmp_path / "token").write_text("a")
    line = Attend("https://127.0.0.1:9/v1/attend", str(tmp_path))
    line.answered_at -= away
    pauses = []
    for _ in range(8):
        line.withdraw()
        while line.seconds() == 0.0 or line.fds != ([], []):
            line.advance({"attempt": 0, "state": "running"})
        pauses.append(line.seconds())
    assert longest / 2 < max(pauses) < longest
    assert (min(pauses) < 0.2) is (away < 60)


async def test_an_operator_that_refuses_for_long_is_asked_less_often(operator, run):
    run(WAITS, changes="from . import attend\nattend.AWAY_SECONDS = 0.0\nattend.AWAY_RETRY_SECONDS = 3.0")
    for _ in range(50):
        operator.order(status=401)
    await eventually_async(lambda: operator.got)
    before = os.times().elapsed
    await eventually_async(lambda: os.times().elapsed > before + 5)
    assert len(operator.got) <= 3
