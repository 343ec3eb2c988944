from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.cache import cache_directory, locked, write_atomically

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys
from pathlib import Path
from devcluster.cache import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"PADDLEJOB_CACHE": "/a"}, "/a", id="an explicit directory is taken as it is"),
        pytest.param({"XDG_CACHE_HOME": "/b"}, "/b/paddlejob", id="the desktop standard is followed"),
        pytest.param({"HOME": "/c"}, "/c/.cache/paddlejob", id="the home directory is the last resort"),
        pytest.param(
            {"PADDLEJOB_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/d"},
            "/d/.cache/paddlejob",
            id="empty is unset",
        ),
    ],
)
def test_cache_directory(environment, expected, monkeypatch):
    for name in ("PADDLEJOB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected)


def test_a_free_lock_is_taken_without_waiting(tmp_path):
    waits = []
    with locked(tmp_path / "new" / "lock", on_wait=lambda: waits.append(1)):
        assert waits == []


def test_a_lock_held_elsewhere_is_waited_for_and_freed_by_its_holders_death(tmp_path):
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        waits = []

        def kill_the_holder():
            waits.append(1)
            holder.kill()

        with locked(lock, on_wait=kill_the_holder):
            assert waits == [1]


def test_a_file_is_replaced_with_the_mode_asked_for_and_leaves_no_scratch(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    write_atomically(path, "new", mode=0o600)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]
