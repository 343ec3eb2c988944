from __future__ import annotations

import asyncio
import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddlejob.kube.errors import CredentialsError
from paddlejob.kube.transport.auth import PluginCredentials, run_plugin
from paddlejob.kube.transport.cluster import ExecPlugin
from paddlejob.kube.transport.tls import ClientCertificate

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def printed(status, api_version=V1, kind="ExecCredential"):
    return json.dumps({"kind": kind, "apiVersion": api_version, "status": status})


@pytest.fixture
def script(tmp_path):
    """Make a plugin of a shell script."""

    def make(text, **options):
        path = tmp_path / "plugin"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        return ExecPlugin(**{"api_version": V1, "interactive_mode": "Never", "command": str(path)} | options)

    return make


def is_alive(pid):
    """Tell whether a process runs; one that waits for its parent to ask how it ended does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pid):
    async with asyncio.timeout(10):
        while is_alive(pid):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_token(script, version):
    status = {"token": "t", "expirationTimestamp": "2030-01-02T03:04:05Z"}
    plugin = script(f"echo '{printed(status, version)}'", api_version=version)
    assert await run_plugin(plugin) == PluginCredentials("t", None, datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))


async def test_a_certificate(script):
    status = {
        "clientCertificateData": "cert",
        "clientKeyData": "key",
        "token": None,
        "expirationTimestamp": None,
    }
    credentials = await run_plugin(script(f"echo '{printed(status)}'"))
    assert credentials == PluginCredentials("", ClientCertificate(b"cert", b"key"))


async def test_arguments_and_environment(script, monkeypatch):
    monkeypatch.setenv("OURS", "ours")
    text = f"""printf '{printed({"token": "%s"}, "%s")}' "$1" "$OURS-$THEIRS" """
    plugin = script(text, args=(V1,), env={"THEIRS": "theirs"})
    assert (await run_plugin(plugin)).token == "ours-theirs"


async def told(script, tmp_path, **options):
    """Return what a plugin reads in KUBERNETES_EXEC_INFO."""
    text = f"""printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo '{printed({"token": "t"})}'"""
    terminal = options.pop("terminal", False)
    await run_plugin(script(text, **options), terminal=terminal)
    return json.loads((tmp_path / "info").read_text())


async def test_the_plugin_gets_its_api_version(script, tmp_path):
    expected = {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}
    assert await told(script, tmp_path) == expected


async def test_the_plugin_gets_the_cluster_info(script, tmp_path):
    info = await told(script, tmp_path, cluster_info={"server": "https://kube.test"})
    assert info["spec"]["cluster"] == {"server": "https://kube.test"}


@pytest.mark.parametrize(
    ("mode", "terminal", "interactive"),
    [
        pytest.param("Never", True, False, id="never"),
        pytest.param("IfAvailable", False, False, id="not without a terminal"),
        pytest.param("IfAvailable", True, True, id="with a terminal"),
        pytest.param("Always", True, True, id="always"),
    ],
)
async def test_interactive_mode(script, tmp_path, mode, terminal, interactive):
    info = await told(script, tmp_path, interactive_mode=mode, terminal=terminal)
    assert info["spec"]["interactive"] is interactive


async def test_a_plugin_that_needs_a_terminal(script):
    with pytest.raises(
        CredentialsError, match=r"requires a terminal \(interactiveMode: Always\), and there is none"
    ):
        await run_plugin(script("", interactive_mode="Always"), terminal=False)


async def test_whether_there_is_a_terminal_is_found_out(script, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CredentialsError, match="requires a terminal"):
        await run_plugin(script("", interactive_mode="Always"))


async def test_stderr_of_an_interactive_plugin_is_forwarded(script, capsys):
    plugin = script(f"echo 'open this page' >&2; echo '{printed({'token': 't'})}'", interactive_mode="Always")
    await run_plugin(plugin, terminal=True)
    assert capsys.readouterr().err == "open this page\n"


async def test_stdin_is_empty_for_the_others(script):
    plugin = script(f"cat; echo '{printed({'token': 't'})}'")
    assert (await run_plugin(plugin, timeout_seconds=30)).token == "t"


async def test_a_plugin_that_is_not_installed(script):
    plugin = script("", command="no-such-plugin", install_hint="Install it:\n  brew install it\n")
    with pytest.raises(CredentialsError) as caught:
        await run_plugin(plugin)
    assert "unable to run credential plugin 'no-such-plugin': No such file" in str(caught.value)
    assert str(caught.value).endswith("\nInstall it:\n  brew install it")


async def test_a_plugin_that_fails(script):
    plugin = script("echo 'log in first' >&2; exit 3", install_hint="see the docs")
    with pytest.raises(CredentialsError, match="failed with exit code 3; stderr: log in first\nsee the docs"):
        await run_plugin(plugin)


async def test_a_long_complaint_is_cut(script):
    with pytest.raises(CredentialsError) as caught:
        await run_plugin(script("yes x | head -c 200000 >&2; echo end >&2; exit 1"))
    assert len(str(caught.value)) < 2000
    assert str(caught.value).endswith("end")


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        pytest.param("", "did not print an ExecCredential: .*truncated", id="nothing"),
        pytest.param("hunter2", "did not print an ExecCredential", id="junk"),
        pytest.param(r"\377\376", "did not print an ExecCredential", id="bytes"),
        pytest.param('{"kind":5}', r"Expected `str`, got `int` - at `\$.kind`", id="a wrong type"),
        pytest.param(
            printed({"token": "hunter2"}, V1BETA1), f"printed {V1BETA1} ExecCredential instead of", id="old"
        ),
        pytest.param(
            printed({"token": "hunter2"}, kind="Secret"), "printed .*/v1 Secret instead of", id="another kind"
        ),
        pytest.param(printed(None), "neither a token nor a client certificate", id="no status"),
        pytest.param(printed({"token": ""}), "neither a token nor a client certificate", id="an empty token"),
        pytest.param(
            printed({"clientCertificateData": "hunter2"}), "only one of", id="a certificate without key"
        ),
        pytest.param(
            printed({"token": "hunter2", "expirationTimestamp": "soon"}), "expirationTimestamp", id="no time"
        ),
    ],
)
async def test_invalid_plugin_output(script, output, sentence):
    with pytest.raises(CredentialsError, match=sentence) as caught:
        await run_plugin(script(f"printf '{output}'"))
    assert "hunter2" not in str(caught.value)


async def test_a_plugin_that_prints_without_end(script):
    with pytest.raises(CredentialsError, match="printed more than 1048576 bytes"):
        await run_plugin(script("exec yes"))


async def test_a_plugin_that_hangs(script):
    with pytest.raises(CredentialsError, match=r"timed out after 0\.2 seconds"):
        await run_plugin(script("exec sleep 1000"), timeout_seconds=0.2)


@pytest.fixture
def started(script, tmp_path):
    """Run a plugin that tells its own process and its child's, and stays in the middle of its run."""
    os.mkfifo(tmp_path / "pids")

    async def start(text, **options):
        terminal = options.get("interactive_mode") == "Always"
        plugin = script(f"sleep 1000 & echo $$ $! > {tmp_path}/pids; {text}", **options)
        run = asyncio.create_task(run_plugin(plugin, terminal=terminal))
        told = await asyncio.to_thread((tmp_path / "pids").read_text)
        return run, *map(int, told.split())

    return start


async def cancelled(run):
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_cancelled_run_leaves_no_process(started):
    run, plugin, child = await started("wait")
    await cancelled(run)
    await gone(plugin)
    await gone(child)


async def test_a_run_cancelled_while_it_starts_leaves_no_process(script, monkeypatch, tmp_path):
    pids = tmp_path / "pids"
    pids.touch()
    run = asyncio.create_task(run_plugin(script(f"sleep 1000 & echo $$ $! > {pids}; wait")))
    start = asyncio.create_subprocess_exec

    async def start_slowly(*args, **options):
        process = await start(*args, **options)
        run.cancel()
        while not pids.read_text():
            await asyncio.sleep(0.01)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
    with pytest.raises(asyncio.CancelledError):
        await run
    for pid in pids.read_text().split():
        await gone(int(pid))


async def test_a_cancelled_run_of_a_plugin_that_is_not_installed(script):
    run = asyncio.create_task(run_plugin(script("", command="no-such-plugin")))
    asyncio.get_running_loop().call_soon(run.cancel)
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_child_that_outlives_the_plugin_with_our_pipe_is_ended(started):
    run, plugin, child = await started(f"echo '{printed({'token': 't'})}'")
    await gone(plugin)
    await cancelled(run)
    await gone(child)


async def test_an_interactive_plugin_keeps_the_terminal_and_is_ended_alone(started):
    run, plugin, child = await started("wait", interactive_mode="Always")
    assert os.getsid(plugin) == os.getsid(0)
    os.kill(child, signal.SIGKILL)
    await cancelled(run)
    await gone(plugin)
