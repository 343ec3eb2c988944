from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys

import pytest

from devcluster import cli, requirements
from devcluster.build.compile import Progress
from devcluster.errors import DevclusterError
from devcluster.requirements import (
    find_program,
    missing_packages,
    obstacle_to_a_node,
    require_bootstrap,
    require_node,
)


@pytest.fixture
def capable(monkeypatch):
    """A machine that can run a node."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "has_memory_limits", lambda: True)
    monkeypatch.setattr(requirements, "missing_packages", list)
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    answer(monkeypatch, 0)
    return monkeypatch


def answer(monkeypatch, code, stderr=""):
    """Let every program end like this; give the list that its calls are added to."""
    calls = []

    def run(command, **_):
        calls.append(" ".join(map(str, command)))
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_a_capable_machine_has_no_obstacle(capable):
    assert obstacle_to_a_node() is None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(
            lambda on: on.setattr(sys, "platform", "darwin"),
            "needs Linux, this is darwin",
            id="another system",
        ),
        pytest.param(lambda on: on.setattr(os, "geteuid", lambda: 1000), "needs root", id="no root"),
        pytest.param(
            lambda on: on.setattr(requirements, "has_memory_limits", lambda: False),
            "control groups",
            id="no control groups",
        ),
        pytest.param(
            lambda on: answer(on, 1, "unshare failed: Operation not permitted"),
            "refused here: unshare failed: Operation not permitted",
            id="no namespaces",
        ),
        pytest.param(
            lambda on: (
                on.setattr(requirements, "missing_packages", lambda: ["runc"]),
                on.setattr(shutil, "which", lambda *_, **__: None),
            ),
            "needs runc, and there is no apt-get",
            id="no packages",
        ),
    ],
)
def test_an_obstacle_is_said_in_one_sentence(capable, spoil, words):
    spoil(capable)
    sentence = obstacle_to_a_node()
    assert words in sentence
    assert sentence.endswith(".")
    with pytest.raises(DevclusterError, match=words):
        require_node()


def test_missing_packages_are_named_once_each(monkeypatch):
    monkeypatch.setattr(requirements, "find_program", lambda name: None)
    monkeypatch.setattr(requirements, "plugin_directory", lambda: "/usr/lib/cni")
    monkeypatch.setattr(requirements, "KEYRING", requirements.Path("/"))
    assert missing_packages({"ctr": "containerd", "containerd": "containerd", "ip": "iproute2"}) == [
        "containerd",
        "iproute2",
    ]


def test_a_bare_system_needs_only_what_makes_it(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "KEYRING", requirements.Path("/"))
    lacking = {"mmdebstrap", "containerd"}
    monkeypatch.setattr(requirements, "find_program", lambda name: None if name in lacking else name)
    calls = []
    monkeypatch.setattr(
        requirements, "_install", lambda names, _: (calls.append(names), lacking.discard("mmdebstrap"))
    )
    require_bootstrap()
    assert calls == [["mmdebstrap"]]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DevclusterError, match="run this with sudo"):
        require_bootstrap()


def test_a_program_named_bridge_on_the_path_is_not_the_network_plugin(tmp_path, monkeypatch):
    elsewhere, plugins = tmp_path / "sbin", tmp_path / "cni"
    install(elsewhere, "bridge", "host-local", "loopback", "portmap")
    monkeypatch.setenv("PATH", str(elsewhere))
    monkeypatch.setattr(requirements, "PLUGIN_DIRECTORIES", (str(plugins),))
    monkeypatch.setattr(requirements, "KEYRING", requirements.Path("/"))
    assert missing_packages({}) == ["containernetworking-plugins"]
    install(plugins, "bridge", "host-local", "loopback")
    assert missing_packages({}) == ["containernetworking-plugins"]
    install(plugins, "portmap")
    assert missing_packages({}) == []


def install(directory, *names):
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).touch(0o755)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ([], "A real node can run here.\n"),
        (["runc", "mount"], "A real node can run here once apt-get has installed runc, mount.\n"),
    ],
)
def test_check_says_what_is_still_to_be_installed(capable, capsys, missing, words):
    for module in (requirements, cli):
        capable.setattr(module, "missing_packages", lambda: missing)
    assert cli.main(["check"]) == 0
    assert capsys.readouterr().out == words


def test_missing_packages_are_installed_and_it_is_said(capable):
    report_missing(capable, ["runc"], ["runc"], [])
    calls, said = answer(capable, 0), io.StringIO()
    require_node(Progress(said))
    assert said.getvalue() == "installing the Debian packages runc\n"
    assert calls[-1] == "apt-get install --yes --quiet --no-install-recommends runc"


def test_an_installed_package_without_its_programs_is_named(capable):
    report_missing(capable, ["runc"], ["runc"], ["runc"])
    with pytest.raises(DevclusterError, match="The installed packages lack programs of runc"):
        require_node(Progress(io.StringIO()))


def report_missing(monkeypatch, *reports):
    """Let each look for missing packages report the next of these."""
    remaining = iter(reports)
    monkeypatch.setattr(requirements, "missing_packages", lambda: next(remaining))


def test_packages_that_cannot_be_installed_are_named_with_the_reason(capable):
    capable.setattr(requirements, "obstacle_to_a_node", lambda: None)
    capable.setattr(requirements, "missing_packages", lambda: ["runc"])
    calls = answer(capable, 100, "E: Unable to locate package runc\n")
    with pytest.raises(DevclusterError, match="runc could not be installed: E: Unable to locate package"):
        require_node(Progress(io.StringIO()))
    assert [call.split()[1] for call in calls] == ["install", "update", "install"]


def test_programs_of_administrators_are_found_whatever_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "ADMINISTRATION", "/usr/bin")
    assert find_program("env").name == "env"
