"""`kubectl pdj` as a person uses it: at a terminal, which asks, colours and can be interrupted."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

import pytest

from paddlejob.api.resources import PADDLE_JOBS
from simkube.build import job
from tests.support.terminal import Terminal, ended, on_terminal

pytestmark = pytest.mark.slow

OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@pytest.fixture
def terminal(cluster, tmp_path) -> Iterator[Terminal]:
    """Start `kubectl pdj` on a terminal of its own."""
    environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}
    with on_terminal(sys.executable, "-m", "paddlejob.cli.kubectl", env=environ) as start:
        yield start


def test_a_job_that_fails_is_followed_explained_and_retried(cluster, terminal, file):
    cluster.scene.hold("demo-worker-1", 3, "ValueError: bad shape")
    path = file(job().worker(2).spec(backoffLimit=0, cleanPodPolicy="Never"))
    following = terminal("submit", path, "--logs")
    following.expect("demo created")
    cluster.write("demo-worker-0", "epoch 1")
    following.expect(r"\x1b\[\d+mworker-0 \| \x1b\[0mepoch 1")
    cluster.write("demo-worker-1", "Traceback (most recent call last):", "ValueError: bad shape")
    following.expect("bad shape")
    cluster.let_go("demo-worker-1")
    code, rest = ended(following)
    assert code == 1
    assert "demo Failed: worker-1 exited with code 3: ValueError: bad shape" in rest
    code, printed = ended(terminal("logs", "demo", "--first-error"))
    assert (code, "worker-1 failed first, in attempt 0" in printed) == (0, True)
    assert printed.splitlines()[-2:] == ["Traceback (most recent call last):", "ValueError: bad shape"]
    code, printed = ended(terminal("explain", "demo"))
    assert (code, printed.startswith("demo: Failed: ")) == (0, True)
    code, printed = ended(terminal("retry", "demo"))
    assert code == 0
    assert re.search(r"demo-\w+ created; follow it with `kubectl pdj logs -f demo-\w+`", printed)


def test_a_terminal_obeys_nothing_that_a_program_wrote(cluster, terminal, file):
    cluster.scene.hold("demo-worker-0", 1)
    assert (
        ended(terminal("submit", file(job().worker(1).spec(backoffLimit=0, cleanPodPolicy="Never"))))[0] == 0
    )
    # Into the clipboard, and to the top of an empty screen; then the same in the 8-bit form.
    cluster.write("demo-worker-0", "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[H\x1b[2J", "\x9d52;c;AAAA\x9c\x9b2J")
    cluster.let_go("demo-worker-0")
    assert ended(terminal("wait", "demo", "--timeout=60s"))[0] == 1
    shown = [
        terminal("logs", "demo", NO_COLOR="1"),
        terminal("logs", "demo", "--no-prefix"),
        terminal("logs", "demo"),
        terminal("logs", "demo", "--first-error"),
    ]
    for child in shown:
        printed = ended(child)[1]
        assert not OBEYED.search(printed), printed
        assert "52;c;cm0gLXJmIH4=" in printed


def test_logs_of_a_local_run_are_coloured_unless_that_is_not_wanted(file, tmp_path):
    environ = {**os.environ, "HOME": str(tmp_path), "PADDLEJOB_RUNS": str(tmp_path / "runs")}
    environ.pop("NO_COLOR", None)
    with on_terminal(sys.executable, "-m", "paddlejob", env=environ) as terminal:
        assert ended(terminal("submit", file(job().worker(1, command=["echo", "hello"])), "--logs"))[0] == 0
        for variables, shown in (
            ({}, "\x1b[36mworker-0 | \x1b[0mhello"),
            ({"NO_COLOR": "1"}, "worker-0 | hello"),
        ):
            child = terminal("logs", **variables)
            child.expect("hello")
            assert child.before + child.after == shown


def test_a_running_job_is_scaled_suspended_and_deleted(cluster, terminal, file):
    assert ended(terminal("submit", file(job().worker(1))))[0] == 0
    assert ended(terminal("wait", "demo", "--for=running", "--timeout=60s"))[0] == 0
    assert "scaling to 2 workers" in ended(terminal("scale", "demo", "2"))[1]
    assert "suspending" in ended(terminal("suspend", "demo"))[1]
    assert ended(terminal("wait", "demo", "--for=suspended", "--timeout=60s"))[0] == 0
    refusing = terminal("delete", "demo")
    refusing.expect(r"Delete demo from namespace default, with all pods and logs\? \[y/N\]: ")
    refusing.sendline("n")
    assert ended(refusing)[0] == 1
    assert cluster.server.get(PADDLE_JOBS, "default", "demo")
    agreeing = terminal("delete", "demo")
    agreeing.expect(r"\[y/N\]: ")
    agreeing.sendline("y")
    code, printed = ended(agreeing)
    assert (code, "demo deleted" in printed) == (0, True)
    assert not cluster.server.get(PADDLE_JOBS, "default", "demo")


@pytest.mark.parametrize(("key", "shown"), [("\x03", "^C\n"), ("\x04", "\n")], ids=["Ctrl-C", "Ctrl-D"])
def test_a_question_can_be_left(cluster, terminal, file, key, shown):
    assert ended(terminal("submit", file(job().worker(1))))[0] == 0
    asking = terminal("delete", "demo")
    asking.expect(r"\[y/N\]: ")
    asking.send(key)
    assert ended(asking) == (130, shown)
    assert cluster.server.get(PADDLE_JOBS, "default", "demo")


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "-w"),
        ("logs", "demo", "-f"),
        ("wait", "demo"),
        ("top",),
        ("top", "demo"),
        ("port-forward", "demo", ":80"),
        ("exec", "demo", "--", "sh", "-c", "echo demo; sleep 600"),
        ("delete", "demo", "--yes"),
    ],
    ids=" ".join,
)
def test_whatever_goes_on_can_be_interrupted(cluster, terminal, file, arguments):
    cluster.scene.hold("demo-worker-0")
    assert ended(terminal("submit", file(job().worker(1).metadata(finalizers=["test/keep"]))))[0] == 0
    cluster.write("demo-worker-0", "demo trains")
    child = terminal(*arguments)
    if arguments[0] == "wait":
        cluster.until_watched()
    else:
        child.expect("demo|Forwarding")
    child.sendintr()
    code, rest = ended(child)
    assert (code, "Traceback" in rest) == (130, False), rest


def test_whoever_stops_following_is_told_that_the_job_goes_on(cluster, terminal, file):
    following = terminal("submit", file(job().worker(1)), "--logs")
    cluster.write("demo-worker-0", "training")
    following.expect("training")
    following.sendintr()
    code, rest = ended(following)
    assert code == 130
    assert "demo keeps running; follow it with `kubectl pdj logs -f demo`" in rest
    assert "Traceback" not in rest


def test_a_server_that_goes_away_and_comes_back_loses_no_line(cluster, terminal, file):
    cluster.scene.hold("demo-worker-0")
    following = terminal("submit", file(job().worker(1)), "--logs")
    cluster.write("demo-worker-0", "before")
    following.expect("before")
    cluster.go_away()
    following.expect("demo cannot be followed right now: ")
    cluster.write("demo-worker-0", "while it was away")
    cluster.come_back()
    following.expect("while it was away")
    cluster.let_go("demo-worker-0")
    code, rest = ended(following)
    assert (code, "demo Completed in" in rest) == (0, True)
    assert "before" not in rest


@pytest.mark.parametrize(
    "arguments", [("wait", "demo", "other"), ("get", "-w"), ("submit", "--watch")], ids=" ".join
)
def test_whoever_waits_is_told_once_that_the_server_is_away(cluster, terminal, file, arguments):
    for name in ("demo", "other"):
        cluster.scene.hold(f"{name}-worker-0")
    path = file(job().worker(1))
    if arguments[0] == "submit":
        arguments = ("submit", path, "--watch")
    else:
        ended(terminal("submit", file(job().worker(1), job("other").worker(1), name="both.yaml")))
    waiting = terminal(*arguments)
    cluster.until_watched()
    cluster.go_away()
    waiting.expect("cannot follow right now, trying again: ")
    cluster.come_back()
    waiting.expect("following again")
    assert "cannot follow" not in waiting.before
    for name in ("demo", "other"):
        cluster.let_go(f"{name}-worker-0")
    if arguments[0] == "get":
        waiting.expect("demo +Completed")
        waiting.sendintr()
    assert ended(waiting)[0] == (130 if arguments[0] == "get" else 0)


def test_a_live_screen_survives_a_server_that_is_away(cluster, terminal, file):
    cluster.scene.hold("demo-worker-0")
    ended(terminal("submit", file(job().worker(1))))
    for arguments, columns in (((), "200"), (("demo",), "60")):  # the message is wrapped, the table is cut
        top = terminal("top", *arguments, COLUMNS=columns)
        top.expect("demo +Running")
        cluster.go_away()
        top.expect("cannot follow right now, trying again: ")
        top.expect("demo +Running")
        cluster.come_back()
        top.expect_exact("\x1b[H\x1b[2JNAME ")
        top.close(force=True)


def test_changes_are_printed_line_by_line(cluster, terminal, file):
    cluster.scene.hold("demo-worker-0")
    watching = terminal("get", "-w")
    watching.expect("No PaddleJobs found in namespace default")
    ended(terminal("submit", file(job().worker(1))))
    watching.expect("NAME +STATUS")
    watching.expect("demo +Running")
    cluster.let_go("demo-worker-0")
    watching.expect("demo +Completed")
    watching.sendintr()
    assert ended(watching)[0] == 130


def test_top_shows_the_ranks_until_the_job_ends(cluster, terminal, file):
    cluster.scene.hold("demo-worker-0")
    ended(terminal("submit", file(job().worker(1))))
    top = terminal("top", "demo")
    top.expect("worker-0 +Running")
    cluster.let_go("demo-worker-0")
    assert ended(top)[0] == 0


def test_a_shell_in_a_rank_has_the_size_of_the_terminal(cluster, terminal, file):
    ended(terminal("submit", file(job().worker(1))))
    ended(terminal("wait", "demo", "--for=running"))
    shell = terminal("exec", "demo", "-it", "--", "sh")
    shell.sendline("echo typed $((40 + 2))")
    shell.expect("size 200x40")
    shell.expect("typed 42")
    shell.sendline("echo $((6 * 7)); exit 5")
    shell.expect("42")
    assert ended(shell)[0] == 5
