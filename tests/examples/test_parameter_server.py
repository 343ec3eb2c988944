"""How a parameter server knows whether a worker still needs it."""

from __future__ import annotations

import socket
import subprocess
import sys

from examples.wide_and_deep import parameter_server


def test_connections_are_counted_while_they_last():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert parameter_server.connections("127.0.0.1", port) == 0
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            assert parameter_server.connections("127.0.0.1", port) == 1
            assert parameter_server.connections("localhost", port) == 1
            assert parameter_server.connections("127.0.0.2", port) == 0
        assert parameter_server.connections("127.0.0.1", port) == 0


def test_nobody_is_waited_for_when_nobody_is_connected(monkeypatch):
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    monkeypatch.setenv("PADDLE_PORT", "9")
    monkeypatch.setattr(
        parameter_server.time, "sleep", lambda _: (_ for _ in ()).throw(AssertionError("it waits"))
    )
    parameter_server.wait_for_workers_to_leave(timeout_seconds=60)


def test_the_server_and_what_it_started_end_together():
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", nested], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as outer:
        outer.stdout.readline()
        pids = list(parameter_server.family(outer.pid))
        assert len(pids) == 2
        parameter_server.end(outer.pid)
        assert outer.wait() == -9
        assert outer.stdout.read() == b""  # the end of the pipe: the inner process is gone as well


def test_a_process_that_is_gone_already_does_no_harm():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert list(parameter_server.family(gone.pid)) == [gone.pid]
    parameter_server.end(gone.pid)
