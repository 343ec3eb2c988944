"""Copy the training scripts to `<job>/<name>`, next to the shards. TRAIN_CONFIG_DIR is that name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.data.writer import set_aside

DATA = "data"
"""The directory of a shard. A directory of that name next to the scripts is not copied."""
MARKER = ".paddlejob-scripts"
"""Marks a directory of scripts that was copied by this command and may be replaced."""
_RESERVED = {"output", manifest.NAME, manifest.CHECKSUMS}


def ignore_data(source: Path) -> Callable[[str, list[str]], set[str]]:
    """Return the `ignore` function for copying a directory of training scripts."""

    def ignore(directory: str, names: list[str]) -> set[str]:
        return {name for name in names if _is_ignored(name, at_top=Path(directory) == source)}

    return ignore


def _is_ignored(name: str, *, at_top: bool) -> bool:
    return name.startswith(".") or name == "__pycache__" or (at_top and name == DATA)


def stale_configs(sources: Sequence[Path], job: Path, *, force: bool) -> dict[Path, Path]:
    """Return the target of each directory of training scripts that is absent or differs.

    Guarantees: scripts that differ from their source are replaced only if forced, since they may have been
    edited there. A directory that this command did not write is never replaced.
    Raises DataError.
    """
    targets = {source: _target(source, job) for source in dict.fromkeys(sources)}
    if len(set(targets.values())) < len(targets):
        raise errors.DataError(
            f"two of --config-dir {', '.join(map(str, targets))} have the same name: rename one of them"
        )
    stale = {
        source: target
        for source, target in targets.items()
        if not (target.is_dir() and _same(source, target))
    }
    for source, target in stale.items():
        _check_replaceable(source, target, force=force)
    return stale


def _target(source: Path, job: Path) -> Path:
    name = source.resolve().name
    if not name or name.startswith(".") or name.isdecimal() or name in _RESERVED:
        raise errors.DataError(
            f"--config-dir {source}: the name {name!r} is reserved in OUT_DIR: rename the directory"
        )
    if job.resolve().is_relative_to(source.resolve()):
        raise errors.DataError(f"OUT_DIR {job} lies inside --config-dir {source}: copy the scripts elsewhere")
    return job / name


def _check_replaceable(source: Path, target: Path, *, force: bool) -> None:
    if not target.is_symlink() and not target.exists():
        return
    if not (target / MARKER).exists():
        raise errors.DataError(
            f"{target} was not written by this command and differs from {source}: move it away"
        )
    if not force:
        raise errors.DataError(f"{target} differs from {source}: use --force to replace it")


def place_config(source: Path, target: Path, scratch: Path) -> None:
    """Copy a directory of training scripts atomically. Raises DataError."""
    fresh = scratch / f"config-{target.name}"
    try:
        shutil.copytree(source, fresh, ignore=ignore_data(source))
        (fresh / MARKER).touch()
        set_aside(target, scratch)
        fresh.rename(target)
    except (OSError, shutil.Error) as error:
        raise errors.DataError(f"cannot copy {source} to {target}: {error}") from error


def _same(source: Path, target: Path) -> bool:
    names = _visible(source)
    if names != _visible(target):
        return False
    return all((source / name).read_bytes() == (target / name).read_bytes() for name in names)


def _visible(directory: Path) -> set[str]:
    """Return the relative names of the files that are copied."""
    found = set()
    for path in directory.rglob("*"):
        parts = path.relative_to(directory).parts
        ignored = any(_is_ignored(part, at_top=depth == 0) for depth, part in enumerate(parts))
        if path.is_file() and not ignored:
            found.add("/".join(parts))
    return found
