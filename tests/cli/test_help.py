"""Help is shown without importing what only the work itself needs."""

from __future__ import annotations

import json
import subprocess
import sys

from paddlejob.cli.catalog import VERBS

HEAVY = ("aiohttp", "prometheus_client", "rich.console", "uvloop")
HELP_OF_ALL = """
import contextlib, io, json, sys
from paddlejob.cli.main import main

imported = {}
for verb in sys.argv[1:]:
    before, printed = {*sys.modules}, io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([verb, "--help"], prog_name="paddlejob")
    assert printed.getvalue().startswith(f"Usage: paddlejob {verb}"), verb
    imported[verb] = [*{*sys.modules} - before]
print(json.dumps(imported))
"""


def test_the_list_of_commands_imports_no_command():
    command = [sys.executable, "-X", "importtime", "-m", "paddlejob", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: paddlejob")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "click" in imported
    assert imported.isdisjoint([*HEAVY, "asyncio", "msgspec", "yaml"])
    assert imported.isdisjoint(module for module, _ in VERBS.values())


def test_the_help_of_a_command_opens_no_connection():
    # One interpreter for all verbs: if none of them imports a module, each alone does not either.
    done = subprocess.run([sys.executable, "-c", HELP_OF_ALL, *VERBS], capture_output=True, check=True)
    imported = json.loads(done.stdout)
    assert [*imported] == [*VERBS]
    assert {verb: found for verb, names in imported.items() if (found := {*HEAVY} & {*names})} == {}
