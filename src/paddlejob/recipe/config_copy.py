"""Putting the training scripts next to the shards, as `<job>/<name>`, which TRAIN_CONFIG_DIR names."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable
from pathlib import Path

from paddlejob.recipe import errors

DATA = "data"
"""Where a shard goes; a directory of that name beside the scripts, an example's own data, stays behind."""


def without_data(source: Path) -> Callable[[str, list[str]], set[str]]:
    """Return what shutil.copytree shall leave out of a directory of training scripts."""

    def left_out(directory: str, names: list[str]) -> set[str]:
        return {name for name in names if _is_left_out(name, at_top=Path(directory) == source)}

    return left_out


def _is_left_out(name: str, *, at_top: bool) -> bool:
    return name.startswith(".") or name == "__pycache__" or (at_top and name == DATA)


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
        shutil.copytree(source, fresh, ignore=without_data(source))
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
        left_out = any(_is_left_out(part, at_top=depth == 0) for depth, part in enumerate(parts))
        if path.is_file() and not left_out:
            found.add("/".join(parts))
    return found
