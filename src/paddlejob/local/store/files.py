"""Files that the programs of a run wrote into directories of their containers.

files/<pod>/<container>-<start>/<directory of the container, with '-' for '/'>/...
"""

from __future__ import annotations

import heapq
import itertools
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from paddlejob.local.errors import InputError
from paddlejob.local.store.run_directory import RunDirectory, WrittenFile

MAX_SCANNED = 100_000
"""Limits the time that a run with very many files takes to end."""
_UNIMPORTANT = re.compile(r"(^|/)(__pycache__|\.cache)/|(^|/)http\.log$|_train_desc\.prototxt$")
"""Paddle itself writes the last two: its rendezvous server and its datasets."""
_MODELS = (".pdparams", ".pdmodel", ".pdiparams", ".pdopt", ".pdparam", ".nb", ".onnx", ".safetensors")


def written_files(run: RunDirectory, limit: int) -> list[WrittenFile]:
    """Return files written since the run began, models first, then by path."""
    scanned = itertools.islice(_scan(run), MAX_SCANNED)
    return heapq.nsmallest(limit, scanned, key=_sort_key)


def _sort_key(file: WrittenFile) -> tuple[bool, str, str]:
    return PurePosixPath(file.path).suffix not in _MODELS, file.path, file.pod


def _scan(run: RunDirectory) -> Iterator[WrittenFile]:
    began = run.began
    for directory in _directories(run, "*"):
        for path in directory.rglob("*"):
            status = path.lstat()
            is_new_file = stat.S_ISREG(status.st_mode) and status.st_mtime >= began
            inside = path.relative_to(directory)
            if is_new_file and not _UNIMPORTANT.search(str(inside)):
                yield WrittenFile(directory.parent.parent.name, str(inside), str(path))


def locate(run: RunDirectory, pod: str, path: str) -> Path:
    """Return the newest version of a file or directory that a pod wrote. Raises InputError."""
    wanted = PurePosixPath(path)
    if ".." in wanted.parts:
        raise InputError(f"{path}: write a path without '..'")
    for directory in reversed(list(_directories(run, pod))):
        place = _inside(directory, wanted)
        if place is not None and place.exists():
            return place
    raise InputError(f"{pod} of {run.name} did not write {path}; its files are in {run.files(pod)}")


def copy(source: Path, target: Path) -> Path:
    """Copy a file or directory to a path, or into an existing directory. Returns the new path.

    Raises InputError.
    """
    place = target / source.name if target.is_dir() else target
    try:
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True, symlinks=True)
        else:
            shutil.copy2(source, place)
    except OSError as error:
        raise InputError(f"cannot copy to {place}: {error}") from error
    return place


def _inside(directory: Path, wanted: PurePosixPath) -> Path | None:
    if not wanted.is_absolute():
        return directory / wanted
    for parent in (wanted, *wanted.parents):
        if directory.name == (str(parent).strip("/").replace("/", "-") or "root"):
            return directory / wanted.relative_to(parent)
    return None


def _directories(run: RunDirectory, pod: str) -> Iterator[Path]:
    """Yield the directories that containers wrote to, oldest start first."""
    for start in sorted(run.files(pod).parent.glob(f"{pod}/*"), key=lambda each: each.stat().st_ctime_ns):
        for directory in sorted(start.iterdir()):
            if directory.is_dir() and directory.suffix != ".work":
                yield directory
