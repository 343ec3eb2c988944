"""Which Python the containers of a run use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paddlejob.local.options import Options, find_python


@pytest.fixture
def environments(tmp_path):
    """Directories with a python each, as virtualenv, conda and a system have them."""
    for name, programs in {"venv": ("python",), "conda": ("python",), "system": ("python3",)}.items():
        for program in programs:
            path = tmp_path / name / "bin" / program
            path.parent.mkdir(parents=True)
            path.touch(mode=0o755)
    return tmp_path


CHOICES = {
    "the one that was asked for": ("sh", ("venv", "conda"), "--python"),
    "an activated virtualenv": ("", ("venv", "conda"), "from $VIRTUAL_ENV"),
    "an activated conda environment": ("", ("conda",), "from $CONDA_PREFIX"),
    "what the shell would take": ("", (), "python3 on the PATH"),
}


@pytest.mark.parametrize(("python", "active", "origin"), CHOICES.values(), ids=CHOICES)
def test_the_interpreter_is_the_one_that_people_expect(environments, python, active, origin):
    variables = {"venv": "VIRTUAL_ENV", "conda": "CONDA_PREFIX"}
    environ = {variables[name]: str(environments / name) for name in active}
    environ["PATH"] = f"{environments / 'system' / 'bin'}:/bin"
    found = find_python(Options(text="", runs=Path(), python=python, environ=environ))
    assert found.origin == origin
    assert Path(found.path).exists()


def test_an_environment_that_was_removed_is_passed_over(environments):
    environ = {"VIRTUAL_ENV": "/no/such", "PATH": str(environments / "system" / "bin")}
    assert find_python(Options(text="", runs=Path(), environ=environ)).origin == "python3 on the PATH"


def test_without_any_other_it_is_our_own(environments):
    found = find_python(Options(text="", runs=Path(), environ={"PATH": str(environments)}))
    assert found.path == sys.executable
