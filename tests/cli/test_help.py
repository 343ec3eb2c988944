"""Help is shown without importing what only the work itself needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paddlejob.cli.catalog import VERBS

HEAVY = ("aiohttp", "prometheus_client", "rich.console", "uvloop")


def loaded_by(*arguments: str) -> set[str]:
    """Run `python -m paddlejob` and return the modules that it imported."""
    command = [sys.executable, "-X", "importtime", "-m", "paddlejob", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: paddlejob")
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def test_the_list_of_commands_imports_no_command():
    imported = loaded_by("--help")
    assert "click" in imported
    assert imported.isdisjoint([*HEAVY, "asyncio", "msgspec", "yaml"])
    assert imported.isdisjoint(module for module, _ in VERBS.values())


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_command_opens_no_connection(verb):
    assert loaded_by(verb, "--help").isdisjoint(HEAVY)
