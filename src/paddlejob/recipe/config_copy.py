"""Putting the training scripts next to the shards, as `<job>/<name>`, which TRAIN_CONFIG_DIR names."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path

from paddlejob.recipe import errors

_IGNORED = shutil.ignore_patterns("__pycache__", ".*")


def place_config(source: Path, job: Path, *, force: bool) -> Path:
    """Copy a directory of training scripts to the job, and return where it is.

    Guarantees: a directory that differs from the source is replaced only when forced, since a person may have
    edited it there.
    Raises DataError.
    """
    target = job / source.resolve().name
    if target.exists() and _same(source, target):
        return target
    if target.exists() and not force:
        raise errors.DataError(
            f"{target} differs from {source}: use --force to replace it, or remove one of them"
        )
    fresh = job / ".split" / f"config-{target.name}"
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(source, fresh, ignore=_IGNORED)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    except OSError as error:
        raise errors.DataError(f"cannot copy {source} to {target}: {error.strerror or error}") from error
    return target


def _same(source: Path, target: Path) -> bool:
    names = _visible(source)
    if names != _visible(target):
        return False
    return all(filecmp.cmp(source / name, target / name, shallow=False) for name in names)


def _visible(directory: Path) -> set[str]:
    """Return the files that are copied, as relative names."""
    found = set()
    for path in directory.rglob("*"):
        parts = path.relative_to(directory).parts
        if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            found.add("/".join(parts))
    return found
