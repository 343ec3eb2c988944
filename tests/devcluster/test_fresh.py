from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from devcluster import fresh, package_index
from devcluster.fresh import ACCOUNTS, ROOT, Account


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.name)
def test_an_account_runs_what_the_readme_shows(account):
    readme = (ROOT / "README.md").read_text()
    run = [command for command in account.commands if re.fullmatch(r"make [a-z-]+|.*predict.*", command)]
    assert {"make demo", fresh.PREDICT} <= set(run)
    assert all(command in readme for command in run)


def test_the_commands_of_the_readme_are_run_as_root_and_as_a_user():
    assert {account.uid == 0 for account in ACCOUNTS} == {True, False}


def test_a_checkout_has_what_git_knows_and_nothing_else(tmp_path):
    fresh._copy_checkout(tmp_path)
    assert (tmp_path / "Makefile").read_text() == (ROOT / "Makefile").read_text()
    assert not (tmp_path / ".venv").exists()
    assert not (tmp_path / ".git").exists()


def test_the_system_reaches_package_indexes_as_this_machine_does(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
    monkeypatch.setenv("SECRET", "not passed on")
    answer = subprocess.CompletedProcess([], 0, '{"GOPROXY": "http://proxy.example", "GOPRIVATE": ""}')
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    environment = fresh._environment(Account("user", 1000, ()))
    assert environment["PIP_INDEX_URL"] == "http://index.example/simple"
    assert environment["GOPROXY"] == "http://proxy.example"
    assert environment["HOME"] == "/home/user"
    assert {"SECRET", "GOPRIVATE"}.isdisjoint(environment)
    assert "/etc/resolv.conf" in package_index.index_files()


def test_what_overrides_pips_configuration_is_part_of_it(tmp_path, monkeypatch):
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://a.example\n[install]\nuser = no\n")
    monkeypatch.setattr(package_index, "PIP_CONFIGURATION", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://b.example")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    lines = package_index.pip_configuration().splitlines()
    assert {"index-url = http://b.example", "find-links = /wheels", "user = no"} <= set(lines)
