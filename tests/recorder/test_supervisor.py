"""The supervisor with real processes in PID namespaces, and a real port that it asks for orders."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlejob.core.attempts.known_errors import last_output
from tests.recorder.supervised import Container, Operator, children
from tests.recorder.test_operator_sink import interpreters
from tests.support.waiting import eventually, eventually_async

pytestmark = pytest.mark.timeout(120)

WAITS = """
import os, signal
print("begins", os.environ["PADDLEJOB_ATTEMPT"])
signal.pause()
"""
HANDLES = """
import os, signal, sys
def handle(number, _):
    print("got", signal.Signals(number).name)
    if number == signal.SIGTERM:
        sys.exit(7)
for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(each, handle)
print("begins")
while True:
    signal.pause()
"""
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + WAITS
FAMILY = (
    """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
subprocess.Popen(["sleep", "1000"])
subprocess.Popen([sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '1000'])"])
"""
    + WAITS
)
"""A daemon, a child and a grandchild."""
LEAVES_FILES = """
import os, sys
for name in ("paddle_12_ab", "psm_1a2b", "sem.mp-x", "mine", "psm_used", "psm_before"):
    with open("/dev/shm/" + name, "ab") as file:
        file.write(b"x")
print("begins", os.environ["PADDLEJOB_ATTEMPT"])
import signal; signal.pause()
"""
PATIENCE = "PATIENCE_SECONDS = 1.5"


async def test_a_program_that_ends_well_ends_the_container(operator, run):
    pod = run("import os; print(os.getpid() > 1, os.getppid())")
    assert await pod.exit_code() == 0
    assert pod.log == "True 1\n"


@pytest.mark.parametrize("python", interpreters(), ids=lambda python: Path(python).parent.parent.name)
async def test_a_program_that_fails_is_run_again_with_the_environment_of_the_order(operator, run, python):
    program = "import os, sys; print(os.environ['PADDLE_PORT'], os.environ['MINE']); sys.exit(3)"
    pod = run(program, python=python, PADDLE_PORT="61001", MINE="1", PADDLEJOB_KEEP_ENV="OTHER,MINE")
    for attempt in (3, 4):
        await operator.sees(attempt=attempt, state="down", code=3)
        operator.order(run=attempt + 1, env={"PADDLE_PORT": f"6100{attempt}", "MINE": "2"})
    await operator.sees(attempt=5, state="down", code=3)
    operator.order(exit=True)
    assert await pod.exit_code() == 3
    assert last_output(pod.log) == "61004 1\n"
    assert pod.log.splitlines() == [
        "61001 1",
        "paddlejob: attempt 4 starts in place",
        "61003 1",
        "paddlejob: attempt 5 starts in place",
        "61004 1",
    ]


async def test_a_killed_program_is_down_and_runs_again(operator, run):
    pod = run(WAITS)
    for attempt in (3, 4, 5):
        await pod.says(f"begins {attempt}")
        await operator.sees(attempt=attempt, state="running")
        os.kill(pod.program, signal.SIGKILL)
        await operator.sees(attempt=attempt, state="down", code=137)
        assert 0 <= operator.ended_seconds < 5
        operator.order(run=attempt + 1, env={})
        await operator.sees(attempt=attempt + 1, state="running")
        assert operator.ended_seconds is None
    await pod.says("begins 6")


# --- signals


@pytest.mark.parametrize(
    ("program", "number", "code"),
    [
        pytest.param(HANDLES, signal.SIGTERM, 7, id="saves at SIGTERM"),
        pytest.param(WAITS, signal.SIGTERM, 143, id="does not handle SIGTERM"),
        pytest.param(WAITS, signal.SIGINT, 130, id="SIGINT"),
    ],
)
async def test_a_signal_that_ends_the_program_ends_the_container_with_its_code(
    operator, run, program, number, code
):
    pod = run(program)
    await eventually_async(lambda: "begins" in pod.log)
    os.kill(pod.first, number)
    assert await pod.exit_code() == code
    assert {state["state"] for state in operator.got} <= {"running"}


async def test_other_signals_reach_a_program_that_handles_them(operator, run):
    pod = run(HANDLES)
    await pod.says("begins")
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH):
        os.kill(pod.first, number)
    await pod.says("got SIGHUP")
    await pod.says("got SIGUSR1")
    os.kill(pod.first, signal.SIGTERM)
    assert await pod.exit_code() == 7


async def test_sigterm_ends_a_container_whose_program_is_down(operator, run):
    pod = run("raise SystemExit(5)")
    await operator.sees(attempt=3, state="down", code=5)
    os.kill(pod.first, signal.SIGTERM)
    assert await pod.exit_code() == 5


# --- the end of an attempt


@pytest.mark.parametrize("program", [WAITS, IGNORES, FAMILY], ids=["waits", "ignores SIGTERM", "family"])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["", "stopped"])
async def test_an_order_ends_all_processes_of_the_attempt(operator, run, program, is_stopped):
    pod = run(program)
    await pod.says("begins 3")
    if is_stopped:
        os.kill(pod.program, signal.SIGSTOP)
    operator.order(stop=3)
    await operator.sees(attempt=3, state="down", code=137)
    assert pod.processes == [1]
    operator.order(run=4, env={})
    await pod.says("begins 4")


@pytest.mark.parametrize("ends", ["os.kill(os.getpid(), 9)", "os._exit(1)"])
async def test_nothing_of_a_program_that_fails_is_left(operator, run, ends):
    pod = run(FAMILY.replace("signal.pause()", ends))
    await eventually_async(lambda: operator.got and operator.got[-1]["state"] == "down")
    assert pod.processes == [1]


async def test_a_shell_of_kubectl_exec_stays(operator, run):
    pod = run(WAITS)
    await pod.says("begins 3")
    entered = ["nsenter", f"--target={pod.first}", "--pid", "--mount", "sleep", "1000"]
    shell = subprocess.Popen(entered)
    try:
        await eventually_async(lambda: len(pod.processes) == 3)
        operator.order(stop=3)
        await operator.sees(attempt=3, state="down", code=137)
        assert len(pod.processes) == 2
    finally:
        shell.kill()
        shell.wait()


async def test_orphans_are_reaped_while_the_program_runs(operator, run):
    orphan = "import os\nif os.fork() == 0:\n  if os.fork() == 0:\n    os._exit(0)\n  os._exit(0)\nos.wait()"
    pod = run(orphan + WAITS)
    await pod.says("begins 3")
    await eventually_async(lambda: len(pod.processes) == 2, says=lambda: pod.processes)


async def test_memory_files_of_the_attempt_are_removed(operator, run, tmp_path):
    pod = run(LEAVES_FILES, changes="import pathlib; pathlib.Path('/dev/shm/psm_before').touch()")
    await pod.says("begins 3")
    with pod.root("dev/shm/psm_used").open("rb+"):
        operator.order(stop=3)
        await operator.sees(attempt=3, state="down", code=137)
        assert sorted(each.name for each in pod.root("dev/shm").iterdir()) == [
            "mine",
            "psm_before",
            "psm_used",
        ]


@pytest.mark.parametrize("is_oom", [True, False], ids=["out of memory", "killed by a user"])
async def test_an_out_of_memory_kill_is_reported(memory_cgroup, operator, run, is_oom):
    eats = "block = []\nwhile True: block.append(bytearray(1 << 22))"
    enters = f"echo $$ >{memory_cgroup}/cgroup.procs; mount --bind {memory_cgroup} /sys/fs/cgroup/memory;"
    pod = run(eats if is_oom else "import os; os.kill(os.getpid(), 9)", before=enters)
    more = {"oomKilled": True} if is_oom else {}
    await operator.sees(attempt=3, state="down", code=137, **more)
    assert pod.processes == [1]


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    place = Path(f"/sys/fs/cgroup/memory/paddlejob-test-{os.getpid()}")
    try:
        place.mkdir()
        (place / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError:
        pytest.skip("this machine lets the tests make no cgroup of version 1")
    yield place
    eventually(lambda: place.rmdir() or True, ignoring=(OSError,))


# --- orders


async def test_orders_for_another_state_or_attempt_change_nothing(operator, run):
    pod = run(WAITS)
    await pod.says("begins 3")
    for order in (
        {"stop": 2},
        {"stop": 4},
        {"run": 4, "env": {}},
        {"exit": True},
        {"stop": "3"},
        {"run": "x"},
    ):
        operator.order(**order)
    await eventually_async(lambda: not operator.orders["a"])
    operator.order(stop=3)
    await operator.sees(attempt=3, state="down", code=137)
    for order in ({"stop": 3}, {"run": 3, "env": {}}, {"run": 2, "env": {}}, {"what": 1}):
        operator.order(**order)
    await eventually_async(lambda: not operator.orders["a"])
    assert pod.processes == [1]
    operator.order(run=5, env={})
    await pod.says("begins 5")
    assert "begins 4" not in pod.log
    assert operator.numbers == list(range(1, len(operator.numbers) + 1))


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_other_answers_are_asked_again(operator, run, status):
    pod = run(WAITS)
    operator.order(status=status)
    operator.order(status=status, nextSeconds=0.1)
    operator.order(stop=3)
    await operator.sees(attempt=3, state="down", code=137)
    assert not pod.has_ended


async def test_the_operators_host_name_is_looked_up(operator, run):
    run("raise SystemExit(3)", url=operator.url.replace("127.0.0.1", "localhost"))
    await operator.sees(attempt=3, state="down", code=3)


async def test_without_an_operator_a_program_that_fails_ends_the_container_after_the_patience(operator, run):
    pod = run("import os; os.abort()", url="https://127.0.0.1:9/v1/attend", changes=PATIENCE)
    assert await pod.exit_code() == 134


async def test_an_operator_that_is_away_for_a_while_is_asked_again(made, operator, run):
    other = Operator(made)
    async with other.serve():
        pod = run("raise SystemExit(3)", url=other.url)
        await other.sees(attempt=3, state="down", code=3)
    other.got.clear()
    async with other.serve():
        await eventually_async(lambda: other.got)
        other.order(run=4, env={})
        await other.sees(attempt=4, state="down", code=3)
    assert not pod.has_ended


async def test_a_running_program_does_not_need_an_operator(made, operator, run):
    other = Operator(made)
    async with other.serve():
        pod = run(HANDLES, url=other.url, changes=PATIENCE)
        await other.sees(attempt=3, state="running")
    await pod.says("begins")
    before = os.times().elapsed
    await eventually_async(lambda: os.times().elapsed > before + 2)
    assert len(pod.processes) == 2
    os.kill(pod.first, signal.SIGTERM)
    assert await pod.exit_code() == 7


# --- the program notices nothing


LOOKS = """
import json, os, resource, sys
def read(name):
    with open("/proc/self/" + name) as file:
        return file.read()
status = dict(line.split(":", 1) for line in read("status").splitlines())
wanted = ("Name", "Umask", "SigBlk", "SigIgn", "SigCgt", "SigPnd", "Threads", "NoNewPrivs", "CapEff")
look = {name: status[name] for name in wanted}
files = ["/proc/self/fd/" + fd for fd in os.listdir("/proc/self/fd")]
look["fds"] = {fd: os.readlink(fd) for fd in files if os.path.exists(fd)}
look["leads"] = [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()]
look["command"] = [sys.argv, sys.executable, sys.prefix, read("cmdline"), os.readlink("/proc/self/exe")]
look["environ"] = [os.environ.copy(), read("environ").split(chr(0))]
look["python"] = [str(sys.flags), sys.path, sorted(sys.modules), sys.stdout.errors, sys.stdin.encoding]
look["rest"] = [os.getcwd(), os.nice(0), [resource.getrlimit(each) for each in range(16)]]
print(json.dumps(look, sort_keys=True))
"""


@pytest.mark.parametrize("python", interpreters(), ids=lambda python: Path(python).parent.parent.name)
async def test_the_program_sees_what_it_sees_without_a_supervisor(operator, run, python):
    ignored = 'trap "" HUP; umask 027; '
    seen = []
    for url in (operator.url, ""):
        pod = run(LOOKS, url=url, python=python, before=ignored)
        assert await pod.exit_code() == 0, pod.log
        text = pod.log.replace(str(pod.directory), "/here").replace(operator.url, "URL")
        # The name of the file for the stacks contains the number of the process.
        seen.append(json.loads(re.sub(r"-stacks-\d+-", "-stacks-1-", text.splitlines()[-1])))
    with_it, without = seen
    assert with_it == without
    assert int(without["SigIgn"], 16) & 1
    assert without["Umask"].strip() == "0027"


async def test_only_the_program_has_stacks_to_show(operator, run):
    pod = run(WAITS)
    await pod.says("begins 3")
    [number] = set(pod.processes) - {1}
    files = [str(each.readlink()) for each in pod.root("proc").glob("[0-9]*/fd/*") if each.is_symlink()]
    stacks = [each for each in files if "paddlejob-stacks" in each]
    assert stacks == [f"/memfd:paddlejob-stacks-{number}-0 (deleted)"]


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        pytest.param(
            ["-c", WAITS, "--master=10.0.0.1:61001"], {"PADDLE_MASTER": "10.0.0.1:61001"}, id="master"
        ),
        pytest.param(["-c", WAITS, "--port", "61001"], {"PADDLE_PORT": "61001"}, id="port"),
        pytest.param(
            ["-c", WAITS, "10.0.0.2:61000"],
            {"PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:61000,10.0.0.2:61000"},
            id="list",
        ),
    ],
)
async def test_a_command_with_an_address_of_the_attempt_is_not_supervised(
    operator, run, command, environment
):
    pod = run(command, **environment)
    await pod.says("begins 3")
    assert pod.processes == [1]
    assert operator.got == []
    kept = run(command, **environment, PADDLEJOB_KEEP_ENV=",".join(environment))
    await kept.says("begins 3")
    assert len(kept.processes) == 2


async def test_a_program_that_reads_a_pipe_is_not_supervised(operator, run):
    pod = run(WAITS, before="mkfifo pipe; exec 0<>pipe;")
    await pod.says("begins 3")
    assert operator.got == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            "def broken(): raise OSError('broken')\nprocesses.executable = broken",
            "paddlejob supervisor is off: OSError: broken",
        ),
        ("syntax error", "paddlejob supervisor is off: SyntaxError: "),
        ("_Supervisor._turn = lambda self: 1 / 0", "paddlejob supervisor is off: ZeroDivisionError: "),
    ],
    ids=["before the fork", "syntax", "after the fork"],
)
async def test_whatever_breaks_the_program_runs(operator, run, changes, says):
    pod = run(HANDLES, changes=changes)
    await pod.says("begins")
    assert says in pod.log
    os.kill(pod.first, signal.SIGTERM)
    assert await pod.exit_code() == 7


async def test_an_interpreter_that_cannot_be_executed_again_is_forked(operator, run):
    pod = run(
        "import os\nprint(os.environ['X'])\nos._exit(4)",
        X="1",
        changes="processes.executable = lambda: '/no'",
    )
    await operator.sees(attempt=3, state="down", code=4)
    operator.order(run=4, env={"X": "2"})
    await operator.sees(attempt=4, state="down", code=4)
    assert pod.log.splitlines() == ["1", "paddlejob: attempt 4 starts in place", "2"]


# --- a parked process


PARKS = "PARK_SECONDS = 0.1"
FAKE_PADDLE = "import os\nprint('imported by', os.getpid())\n"


async def parked(pod: Container) -> int:
    """Wait for a process that is parked; return its number in the container."""

    await eventually_async(lambda: len(pod.processes) == 3, says=lambda: pod.log)
    return pod.processes[-1]


@pytest.mark.parametrize("dies", [False, True], ids=["", "it dies"])
async def test_a_parked_process_becomes_the_program_of_the_next_attempt(operator, run, dies, tmp_path):
    (tmp_path / "paddle.py").write_text(FAKE_PADDLE)
    program = (
        "import os, sys, paddle\nprint('pid', os.getpid(), os.environ.get('PADDLEJOB_PARKED_PIPE'))" + WAITS
    )
    pod = run(program, changes=PARKS, PADDLEJOB_PARKED="1", more_path=str(tmp_path))
    await pod.says("begins 3")
    number = await parked(pod)
    if dies:
        os.kill(children(pod.first)[-1], signal.SIGKILL)
        await eventually_async(lambda: len(pod.processes) == 2)
    operator.order(stop=3)
    await operator.sees(attempt=3, state="down", code=137)
    assert pod.processes == [1] if dies else [1, number]
    operator.order(run=4, env={"X": "1"})
    await pod.says("begins 4")
    assert pod.has(f"pid {number} None") is not dies
    # The import of a parked process prints nothing, and the next program has its own parked process.
    assert pod.log.count("imported by") == (2 if dies else 1)
    await parked(pod)
