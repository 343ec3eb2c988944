"""Into the pods of a job: commands, files, ports."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from paddlejob.client.cluster import Cluster
from paddlejob.client.errors import ClientError
from paddlejob.client.streams import port_forward, stacks
from simkube.build import job
from simkube.kubelet.outcomes import Exit, FailImagePull
from tests.support import pod_streams
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

HEAD, FRAME = "Thread 0x01 (most recent call first):", '  File "train.py", line 1 in step'


@pytest.fixture(params=[(pod_streams.V5, pod_streams.V4), (pod_streams.V4,)], ids=["v5", "v4"])
def demo(request, cluster, pdj, file):
    """A running job, on a server of today and on an old one."""
    cluster.front.protocols = request.param
    pdj("submit", file(job().worker(1)))
    assert pdj("wait", "demo", "--for=running", "--timeout=60s").exit_code == 0
    return "demo"


def command(cluster, *arguments: str, **options) -> subprocess.CompletedProcess[bytes]:
    """Run `kubectl pdj` as a process, whose standard streams are real."""
    words = [
        sys.executable,
        "-m",
        "paddlejob.cli.kubectl",
        "--kubeconfig",
        str(cluster.kubeconfig),
        *arguments,
    ]
    return subprocess.run(words, capture_output=True, check=False, timeout=60, **options)


def test_a_command_runs_in_a_rank_and_its_exit_code_is_ours(cluster, demo):
    ran = command(cluster, "exec", demo, "--rank", "0", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"out\n", b"err\n")


def test_standard_input_reaches_the_command(cluster, demo):
    large = b"x" * 1_000_000
    ran = command(cluster, "exec", demo, "-i", "--", "head", "-c", str(len(large)), input=large)
    assert (ran.returncode, ran.stdout) == (0, large)


def test_the_end_of_the_input_reaches_the_command(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    ran = command(cluster, "exec", "demo", "-i", "--", "wc", "-c", input=b"12345")
    assert (ran.returncode, ran.stdout.split()) == (0, [b"5"])


def test_a_command_that_does_not_exist_is_named(cluster, demo):
    ran = command(cluster, "exec", demo, "--", "nothing-here")
    assert ran.returncode == 2
    assert b'error: exec: "nothing-here": executable file not found' in ran.stderr


def test_missing_rights_are_named(cluster, demo):
    why = 'User "eve" cannot get resource "pods/exec" in API group "" in the namespace "default"'
    cluster.front.refusal = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": why}
    ran = command(cluster, "exec", demo, "--", "true")
    expected = b"error: cannot get pods/exec in namespace default: needs get and create on pods/exec\n"
    assert (ran.returncode, ran.stderr) == (2, expected)


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (Exit(3, 0.2), "container paddle of worker-0 has ended (Error 3)"),
        (FailImagePull(), "container paddle of worker-0 has not started (ImagePullBackOff)"),
    ],
    ids=["ended", "not started"],
)
def test_a_container_that_does_not_run_is_named(cluster, pdj, file, tmp_path, outcome, sentence):
    cluster.scene.fates.set("demo-worker-0", outcome)
    pdj("submit", file(job().worker(1).spec(backoffLimit=0, cleanPodPolicy="Never")))
    state = sentence.partition("(")[2].rstrip(")")
    eventually(lambda: state in pdj("describe", "demo").stdout)
    expected = f"error: {sentence}; exec, cp and port-forward need a running container\n"
    for arguments in (
        ("exec", "demo", "--", "true"),
        ("cp", "demo", "worker-0:/output", tmp_path / "output"),
        ("cp", "demo", tmp_path, "worker-0:/data"),
        ("port-forward", "demo", ":80"),
    ):
        result = pdj(*arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", expected)


@pytest.mark.parametrize(
    ("script", "output"),
    [
        pytest.param(
            f"echo 'paddlejob-stack 7 0 S'; echo '{HEAD}'; echo '{FRAME}'",
            f"worker-0, worker-1:\n{FRAME}\n",
            id="stacks",
        ),
        pytest.param(
            "echo no-process", f"worker-0 {stacks.NO_PROCESS}\nworker-1 {stacks.NO_PROCESS}\n", id="none"
        ),
        pytest.param("echo no-recorder", f"error: demo {stacks.NO_RECORDER}\n", id="no recorder"),
    ],
)
def test_ranks_show_where_they_are(pdj, file, monkeypatch, script, output):
    """What the script does on a machine is in tests/client/test_stacks.py."""
    monkeypatch.setattr(stacks, "SCRIPT", script)
    pdj("submit", file(job().ps(1).worker(2)))
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    assert pdj("stack", "demo").output == output


def test_files_are_copied_out_and_in(cluster, demo, pdj, tmp_path):
    inside = tmp_path / "container"
    (inside / "output" / "deep").mkdir(parents=True)
    (inside / "output" / "deep" / "model").write_bytes(b"weights" * 100_000)
    (inside / "output" / "log").write_text("done")
    (tmp_path / "here").mkdir()
    result = pdj("cp", demo, f"worker-0:{inside}/output", tmp_path / "here")
    assert result.stdout == f"copied to {tmp_path}/here/output\n", result.output
    assert (tmp_path / "here" / "output" / "deep" / "model").read_bytes() == b"weights" * 100_000
    result = pdj("cp", demo, f"0:{inside}/output/log", tmp_path / "renamed")
    assert (tmp_path / "renamed").read_text() == "done", result.output
    result = pdj("cp", demo, tmp_path / "here", f"worker-0:{inside}/output")
    assert (inside / "output" / "here" / "output" / "log").read_text() == "done", result.output
    result = pdj("cp", demo, tmp_path / "renamed", f"worker-0:{inside}/new")
    assert (inside / "new").read_text() == "done", result.output


def test_what_cannot_be_copied_is_named(cluster, demo, pdj, tmp_path):
    result = pdj("cp", demo, f"worker-0:{tmp_path}/missing", tmp_path / "target")
    assert (result.exit_code, "Cannot stat: No such file" in result.stderr) == (2, True)
    result = pdj("cp", demo, tmp_path / "missing", "worker-0:/tmp")
    assert result.stderr == f"error: {tmp_path}/missing does not exist\n"
    assert "one of SOURCE and DESTINATION must be RANK:PATH" in pdj("cp", demo, "a", "b").stderr


def test_ports_are_forwarded(cluster, demo):
    echo = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = echo.accept()
        with connection:
            connection.sendall(connection.recv(100).upper())

    threading.Thread(target=answer, daemon=True).start()
    told: list[str] = []

    async def main() -> bytes:
        async with Cluster.open(kubeconfig=cluster.kubeconfig) as jobs:
            forwarder = await (await jobs.get(demo)).forwarder("0", told.append)
            remote = echo.getsockname()[1]
            async with forwarder.listening(port_forward.Forward(0, remote)) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"hello")
                answered = await reader.read()
                writer.close()
            echo.close()
            async with forwarder.listening(port_forward.Forward(0, remote)) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                assert await reader.read() == b""
                writer.close()
            return answered

    assert asyncio.run(main()) == b"HELLO"
    assert len(told) == 1
    assert "error forwarding port" in told[0]


@pytest.mark.parametrize(("text", "expected"), [("8040", (8040, 8040)), ("1:2", (1, 2)), (":9", (0, 9))])
def test_ports_are_written_as_for_kubectl(text, expected):
    assert port_forward.parse(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1:", "1:2:3", "70000", "0"])
def test_bad_ports_are_named(text):
    with pytest.raises(ClientError, match="write PORT or LOCAL:REMOTE"):
        port_forward.parse(text)


def test_a_local_run_says_what_it_cannot(paddlejob, file):
    built = job().worker(1, command=["sh", "-c", "echo hello > made"])
    result = paddlejob("submit", file(built), "--logs")
    assert result.exit_code == 0, result.output
    assert "no command can be run inside them" in paddlejob("exec", "@latest", "--", "true").stderr
    assert "listen on this machine already" in paddlejob("port-forward", "@latest", "80").stderr
