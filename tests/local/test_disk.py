"""A run whose directory cannot be written any more: training continues, and the result is the real one."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from local.commands import PADDLEJOB, says_up
from local.jobs import job, role
from paddlejob.local.store import run_directory
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ON_SMALL_DISK = 'mount -t tmpfs -o size=1m tmpfs "$0" && "$@"; echo "exit code $?"; "$1" runs'
"""In a mount namespace: the disk is gone with the last process."""
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
FILL = """
cat /dev/zero >{runs}/fill 2>/dev/null
echo done >{result}
exit {code}
"""


def can_mount() -> bool:
    mount = (*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return bool(shutil.which("unshare")) and not subprocess.run(mount, check=False).returncode


@pytest.mark.skipif(not can_mount(), reason="this kernel allows no mounts in a user namespace")
@pytest.mark.parametrize(("code", "result"), [(0, "Completed"), (3, "Failed")])
def test_a_full_disk_does_not_end_training(command, file, tmp_path, code, result):
    runs, written = tmp_path / "runs", tmp_path / "written"
    runs.mkdir()
    path = file(job(worker=role(1, FILL.format(runs=runs, result=written, code=code))))
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", ON_SMALL_DISK, str(runs), *PADDLEJOB, "run", str(path)],
        env=command.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in done.stderr
    assert written.read_text() == "done\n"
    assert f"exit code {1 if code else 0}\n" in done.stdout
    assert done.stderr.count("No space left on device; training continues") <= 1
    # The record of the result is written all the same.
    assert result in done.stdout.splitlines()[-1]


def test_a_run_whose_directory_is_removed_continues(background, output, file, tmp_path):
    go, written = tmp_path / "go", tmp_path / "written"
    script = f"echo up; until [ -e {go} ]; do sleep 0.05; done; echo done >{written}"
    process = background(file(job(worker=role(1, script))))
    says_up(output)
    [run] = run_directory.all_runs(tmp_path / "runs")
    # The runner may write a file between two steps of rmtree.
    eventually(lambda: shutil.rmtree(run.path, ignore_errors=True) or not run.path.exists())
    go.touch()
    eventually(lambda: process.poll() is not None)
    assert (process.returncode, written.read_text()) == (0, "done\n")
    assert output().count("No such file or directory; training continues") == 1
    assert "Traceback" not in output()
    assert "job Completed" in output()
