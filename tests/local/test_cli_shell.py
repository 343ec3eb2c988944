"""Verbs, help and completion."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import paddlejob
from local.commands import PADDLEJOB
from local.jobs import job, role
from paddlejob.api.v1 import PaddleJob
from paddlejob.cli.catalog import VERBS
from paddlejob.cli.main import main
from paddlejob.local.store import run_directory
from paddlejob.local.store.run_directory import RunRecord

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("word", "verb"), {"rnu": "run", "ps": "get", "remove": "delete", "kill": "stop"}.items()
)
def test_a_misspelt_verb_gets_a_suggestion(word, verb):
    assert f"did you mean {verb}?" in CliRunner().invoke(main, [word]).output


@pytest.mark.parametrize("words", [("version",), ("--version",), ("-V",)], ids=" ".join)
def test_the_version_is_printed(words):
    assert paddlejob.__version__ in CliRunner().invoke(main, words).output


COMPLETIONS = {
    "a verb": (("ru",), ["run"]),
    "an option": (("logs", "--t"), ["--tail", "--timestamps"]),
    "a run": (("logs", "on"), ["one-"]),
    "a rank": (("logs", "one", "-r", "w"), ["worker-0"]),
    "a rank of no run": (("logs", "three", "-r", "w"), []),
}


@pytest.mark.parametrize(("words", "expected"), COMPLETIONS.values(), ids=COMPLETIONS)
def test_a_shell_completes_verbs_runs_and_ranks(command, tmp_path, words, expected):
    for name in ("one", "two"):
        run = run_directory.create(tmp_path / "runs", name)
        (run.path / "job.yaml").touch()
        run.write_record(RunRecord(job=msgspec.convert(job(name, worker=role(1)), PaddleJob)))
    typed = " ".join(f"'{word}'" for word in ("paddlejob", *words))
    script = (
        f"PATH={Path(PADDLEJOB[0]).parent}:$PATH; source <(paddlejob completion bash); COMP_WORDS=({typed}); "
        f"COMP_CWORD={len(words)}; _paddlejob_completion paddlejob; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "-c", script], env=command.environ, capture_output=True, text=True, check=True
    )
    assert [re.sub(r"-[a-z0-9]{5}$", "-", each) for each in done.stdout.split()] == expected


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb):
    shown = CliRunner().invoke(main, [verb, "--help"])
    assert shown.exit_code == 0
    assert "Usage:" in shown.output


def test_help_is_quick_because_it_imports_nothing(command):
    code = (
        "import sys; from paddlejob.cli import main; print('asyncio' in sys.modules or 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert Path(sys.executable).exists()
