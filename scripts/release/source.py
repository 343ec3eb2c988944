"""The source of a release: one commit, exported so that every machine gets the same files."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
EARLIEST = 315532800
"""1980, before which a zip file has no time."""


def export(folder: Path, commit: str = "HEAD") -> None:
    """Write the files of a commit, without what the working tree has besides, and without its umask."""
    archive = _git("-c", "tar.umask=0022", "archive", "--format=tar", commit)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="tar")
    # The umask of this process has been at work.
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def epoch(commit: str = "HEAD") -> int:
    """Return when the commit was made: the only time that a release knows."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct", commit))


def commit_id(commit: str = "HEAD") -> str:
    """Return the full hash."""
    return _git("rev-parse", commit).decode().strip()


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
