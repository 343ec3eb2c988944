"""Which Python the containers of a run use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paddlejob.local.errors import InputError
from paddlejob.local.input import interpreter
from paddlejob.local.input.interpreter import locate


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
def test_the_interpreter_is_found_as_the_shell_would(environments, python, active, origin):
    variables = {"venv": "VIRTUAL_ENV", "conda": "CONDA_PREFIX"}
    environ = {variables[name]: str(environments / name) for name in active}
    environ["PATH"] = f"{environments / 'system' / 'bin'}:/bin"
    found = locate(python, environ)
    assert found.origin == origin
    assert Path(found.path).exists()


def test_a_removed_environment_is_skipped(environments):
    environ = {"VIRTUAL_ENV": "/no/such", "PATH": str(environments / "system" / "bin")}
    assert locate("", environ).origin == "python3 on the PATH"


def test_the_fallback_is_our_own_interpreter(environments):
    found = locate("", {"PATH": str(environments)})
    assert found.path == sys.executable


@pytest.fixture
def program(tmp_path):
    """Write a program that may pass for an interpreter."""

    def write(script, directory="bin"):
        path = tmp_path / directory / "python3"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


async def find(chosen, environ):
    return await interpreter.inspect(locate(chosen, environ), environ)


async def test_a_missing_paddle_is_detected_before_the_start():
    found = await find(sys.executable, {})
    assert (found.paddle, found.defect) == ("", "has no Paddle")
    assert found.advice == (
        f"python is {sys.executable} (--python), which has no Paddle; "
        "choose another with --python, or activate its environment"
    )


async def test_an_interpreter_with_paddle_has_no_defect(tmp_path):
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").touch()
    information = tmp_path / "paddlepaddle-9.8.dist-info" / "METADATA"
    information.parent.mkdir()
    information.write_text("Metadata-Version: 2.1\nName: paddlepaddle\nVersion: 9.8\n")
    found = await find(sys.executable, {"PYTHONPATH": str(tmp_path)})
    assert (found.paddle, found.defect, found.is_cpu_only) == ("9.8", "", False)


@pytest.mark.parametrize(("cuda", "is_cpu_only"), [("False", True), ("12.6", False)])
async def test_a_cpu_only_paddle_is_detected(tmp_path, cuda, is_cpu_only):
    version = tmp_path / "paddle" / "version" / "__init__.py"
    version.parent.mkdir(parents=True)
    (tmp_path / "paddle" / "__init__.py").touch()
    version.write_text(f"full_version     = '9.8'\ncuda_version     = '{cuda}'\n")
    found = await find(sys.executable, {"PYTHONPATH": str(tmp_path)})
    assert found.is_cpu_only is is_cpu_only


async def test_a_directory_called_paddle_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "paddle").mkdir()
    monkeypatch.chdir(tmp_path)
    assert (await find(sys.executable, {})).paddle == ""


async def test_a_chosen_interpreter_that_does_not_run_is_refused(program):
    path = program("echo pyenv: python2.7: command not found >&2; echo more >&2; exit 127")
    with pytest.raises(
        InputError, match=r"python3 \(--python\), which does not run: pyenv: python2\.7: command"
    ):
        await find(str(path), {})


async def test_a_default_interpreter_that_does_not_run_is_accepted(program):
    path = program("exit 3")
    found = await find("", {"PATH": str(path.parent)})
    assert found.defect == "does not run: exit code 3"


async def test_a_program_that_resembles_python_is_accepted(program):
    path = program("echo hello")
    found = await find(str(path), {"PATH": "/bin"})
    assert (found.path, found.defect) == (str(path), "")


async def test_a_hanging_interpreter_is_killed(program, monkeypatch):
    monkeypatch.setattr(interpreter, "PROBE_SECONDS", 0.2)
    path = program("exec sleep 600")
    assert (await find("", {"PATH": f"{path.parent}:/bin"})).defect == "does not run: no answer"


async def test_a_pyenv_shim_is_resolved(program):
    path = program(f'exec {sys.executable} "$@"', directory="shims")
    found = await find("", {"PATH": str(path.parent)})
    assert (found.path, found.origin) == (sys.executable, "python3 on the PATH")
