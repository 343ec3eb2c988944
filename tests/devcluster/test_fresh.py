from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from devcluster import fresh
from devcluster.fresh import ROOT, VISITORS, Visitor


@pytest.mark.parametrize("visitor", VISITORS, ids=lambda visitor: visitor.name)
def test_a_visitor_types_what_the_readme_shows(visitor):
    readme = (ROOT / "README.md").read_text()
    typed = [command for command in visitor.commands if re.fullmatch(r"make [a-z-]+", command)]
    assert typed
    assert all(command in readme for command in typed)


def test_the_commands_of_the_readme_are_typed_as_root_and_as_a_user():
    assert {visitor.uid == 0 for visitor in VISITORS} == {True, False}
    assert all("make demo" in visitor.commands for visitor in VISITORS)


def test_a_checkout_has_what_git_knows_and_nothing_else(tmp_path):
    fresh._copy_checkout(tmp_path)
    assert (tmp_path / "Makefile").read_text() == (ROOT / "Makefile").read_text()
    assert not (tmp_path / ".venv").exists()
    assert not (tmp_path / ".git").exists()


def test_the_system_reaches_package_indexes_as_this_machine_does(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
    monkeypatch.setenv("SECRET", "not passed on")
    answer = subprocess.CompletedProcess([], 0, '{"GOPROXY": "http://proxy.example", "GOPRIVATE": ""}')
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    order = fresh._order(Visitor("user", 1000, ()), "make demo", tmp_path, tmp_path, tmp_path)
    environment = order["environment"]
    assert environment["PIP_INDEX_URL"] == "http://index.example/simple"
    assert environment["GOPROXY"] == "http://proxy.example"
    assert environment["HOME"] == "/home/user"
    assert {"SECRET", "GOPRIVATE"}.isdisjoint(environment)
    assert ("/etc/resolv.conf", "/etc/resolv.conf") in order["binds"]
