"""Temporary cluster directories, and the removal of directories of dead processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from devcluster.node.cgroups import remove_groups
from devcluster.processes import Record, read_records, write_records

PREFIX = "devcluster-"
OWNER_RECORD = "owner.json"


def make_scratch() -> Path:
    """Create a private directory for this process, after removing directories of dead processes."""
    remove_abandoned()
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    write_records(directory / OWNER_RECORD, [Record.of("owner", os.getpid())])
    return directory


def keep(directory: Path) -> None:
    """Keep a directory after its owner ends, so that its logs can be read."""
    (directory / OWNER_RECORD).unlink(missing_ok=True)


def remove_abandoned() -> None:
    """Remove the scratch directories of dead processes of this user."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_ours(directory):
            owners = read_records(directory / OWNER_RECORD)
            if owners and not any(owner.alive() for owner in owners):
                remove_groups(directory)
                shutil.rmtree(directory, ignore_errors=True)


def _is_ours(directory: Path) -> bool:
    try:
        return directory.stat(follow_symlinks=False).st_uid == os.getuid() and not directory.is_symlink()
    except FileNotFoundError:
        return False
