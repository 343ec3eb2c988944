"""What `make` offers to somebody who has just cloned the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(*arguments):
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_lists_every_command_that_has_a_description():
    described = re.findall(r"^(\S+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "e2e" in described
    assert re.findall(r"^  make (\S+)", make("help").stdout, re.MULTILINE) == described


@pytest.mark.parametrize("demo", ["demo", "demo-resnet"])
def test_a_demo_installs_no_tools_of_developers_and_shows_what_it_runs(demo, tmp_path):
    steps = make("-n", demo, f"VENV={tmp_path}").stdout
    assert "-c constraints.txt -e .\n" in steps
    assert "[dev]" not in steps
    assert f"show {tmp_path}/bin/paddlejob run deploy/examples/" in steps


def test_tests_after_a_demo_add_the_tools_and_a_demo_after_tests_keeps_them(tmp_path):
    (tmp_path / ".runtime").touch()
    assert "-e '.[dev]'" in make("-n", "venv", f"VENV={tmp_path}").stdout
    (tmp_path / ".installed").touch()
    assert "pip install" not in make("-n", "demo", f"VENV={tmp_path}").stdout


@pytest.mark.parametrize("exists", [True, False])
def test_a_python_that_is_too_old_or_missing_is_told_with_the_way_out(tmp_path, exists):
    python = tmp_path / "python3.10"
    if exists:
        python.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.13 || exit 1\n')
        python.chmod(0o755)
    outcome = make("demo", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    assert outcome.returncode == 2
    reason = f"{python} is Python 3.10.13" if exists else f"there is no {python}"
    assert f"Python 3.11 or later is needed, and {reason}: apt-get install python3.11" in outcome.stdout
    assert "make demo PYTHON=python3.11" in outcome.stdout
