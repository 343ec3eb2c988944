"""Which Paddle is installed where."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import paddle_env

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("wanted", "python", "machine", "chosen"),
    [
        pytest.param("2.6.2", (3, 11), "x86_64", "2.6.2", id="as wanted on Python 3.11"),
        pytest.param("2.6.2", (3, 12), "aarch64", "2.6.2", id="as wanted on Python 3.12"),
        pytest.param("2.6.2", (3, 13), "x86_64", "3.0.0", id="2.6.2 has no wheel for Python 3.13"),
        pytest.param("3.3.1", (3, 13), "x86_64", "3.3.1", id="as wanted on Python 3.13"),
        pytest.param("3.3.1", (3, 12), "aarch64", "3.0.0", id="3.3.1 has no wheel for aarch64"),
    ],
)
def test_the_version_depends_on_python_and_machine(wanted, python, machine, chosen):
    assert paddle_env.choose_version(wanted, python, machine) == chosen


@pytest.mark.parametrize(("python", "machine"), [((3, 14), "x86_64"), ((3, 12), "riscv64")])
def test_where_no_wheel_fits_the_way_out_is_named(python, machine):
    with pytest.raises(paddle_env.PaddleEnvError, match=r"run this script with Python 3\.11, 3\.12 or 3\.13"):
        paddle_env.choose_version("2.6.2", python, machine)


@pytest.mark.parametrize("version", paddle_env.WHEELS)
def test_constraints_pin_everything_and_name_no_address(version):
    lines = [line for line in paddle_env.constraints(version).read_text().splitlines() if line[0] != "#"]
    paddle = version.partition("-")[0]
    assert f"paddlepaddle=={paddle}" in lines
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+==[\w.]+", line) for line in lines)
    protobuf = next(line for line in lines if line.startswith("protobuf=="))
    assert paddle == "3.3.1" or int(re.split(r"[=.]+", protobuf)[1]) < 7


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PADDLEJOB_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/paddlejob"),
        ({"HOME": "/h"}, "/h/.cache/paddlejob"),
    ],
)
def test_the_cache_is_where_the_environment_says(monkeypatch, environment, expected):
    for name in ("PADDLEJOB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert paddle_env.cache_directory() == Path(expected)


def test_a_virtualenv_counts_only_with_its_marker_and_a_living_interpreter(tmp_path):
    python = paddle_env.interpreter(tmp_path)
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert not paddle_env.is_ready(tmp_path)
    (tmp_path / paddle_env.READY).touch()
    assert paddle_env.is_ready(tmp_path)
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    assert not paddle_env.is_ready(tmp_path)


def test_an_unreachable_index_leaves_nothing_that_counts(tmp_path):
    nobody = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    command = [sys.executable, paddle_env.__file__, "3.0.0"]
    environment = {"PATH": "/usr/bin:/bin", "PADDLEJOB_CACHE": str(tmp_path), **nobody}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert (
        "paddle_env: pip could not install paddlepaddle 3.0.0; check that the package index is reachable"
        in outcome.stderr
    )
    assert not list(tmp_path.rglob(paddle_env.READY))


@pytest.mark.parametrize("has_libgomp", [False, True])
def test_a_system_without_libgomp_uses_the_library_of_the_wheel(tmp_path, monkeypatch, has_libgomp):
    def load(name):
        if not has_libgomp:
            raise OSError(name)

    monkeypatch.setattr(paddle_env.ctypes, "CDLL", load)
    libraries = tmp_path / "lib/python3.11/site-packages/paddle/libs"
    libraries.mkdir(parents=True)
    (libraries / "libiomp5.so").touch()
    paddle_env.lend_openmp(tmp_path)
    lent = libraries / "libgomp.so.1"
    assert lent.exists() is not has_libgomp
    preload = tmp_path / "lib/python3.11/site-packages/openmp.pth"
    assert preload.exists() is not has_libgomp
    assert has_libgomp or str(libraries / "libdnnl.so.3") in preload.read_text()
