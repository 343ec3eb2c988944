"""A node's working directory: the training scripts, and its own shard in ./data, checked on the way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from paddlejob.recipe import errors, manifest
from paddlejob.recipe.config_copy import without_data
from paddlejob.recipe.manifest import ShardManifest
from paddlejob.recipe.settings import Settings
from paddlejob.recipe.split_plan import Source
from paddlejob.recipe.split_write import Writer, make_parent, whole

MARKER = ".paddlejob-workdir"


def check_job(settings: Settings, trainers: int) -> None:
    """Refuse scripts that are not there, and data split for another number of trainers. Raises DataError."""
    if not settings.config_directory.is_dir():
        raise errors.DataError(
            f"TRAIN_CONFIG_DIR {settings.config_directory} is not a directory: put the training scripts there"
        )
    found = manifest.read_job(settings.job_directory)
    if found is not None and found.split_count != trainers:
        raise errors.DataError(
            f"the data in {settings.job_directory} is split into {found.split_count} shards, "
            f"but the Job has {trainers} trainers: make them equal"
        )


def fill_workspace(settings: Settings, trainer: int, directory: Path, writer: Writer) -> Path:
    """Copy scripts and shard, and return the data directory.

    Guarantees: data that has a manifest was compared with its checksums while it was copied.
    Raises SettingsError, DataError, SpaceError.
    """
    _claim(directory)
    try:
        shutil.copytree(
            settings.config_directory,
            directory,
            ignore=without_data(settings.config_directory),
            dirs_exist_ok=True,
        )
    except (OSError, shutil.Error) as error:
        raise errors.DataError(f"cannot copy {settings.config_directory} to {directory}: {error}") from error
    shard = settings.job_directory / str(trainer) / "data"
    if not shard.is_dir():
        raise errors.DataError(
            f"there is no shard for trainer {trainer}: {shard} is missing; run `paddlejob data split` first"
        )
    facts = manifest.read_shard(settings.job_directory, trainer)
    for source in _files(shard):
        _copy(source, directory / "data" / source.name, facts, writer)
    return directory / "data"


def _claim(directory: Path) -> None:
    """Make the directory ours: no file of a person is overwritten, none of an earlier shard trained with."""
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / MARKER
    strange = [entry for entry in directory.iterdir() if entry.name != "lost+found"]
    if strange and not marker.exists():
        raise errors.SettingsError(
            f"--workdir {directory} holds files of yours: give an empty or new directory"
        )
    marker.touch()
    shutil.rmtree(directory / "data", ignore_errors=True)


def _files(shard: Path) -> Iterator[Source]:
    for path in sorted(shard.rglob("*")):
        if path.is_file():
            yield Source(path.relative_to(shard).as_posix(), str(path), path.stat().st_size, 0)


def _copy(source: Source, target: Path, facts: ShardManifest | None, writer: Writer) -> None:
    make_parent(target)
    copied = writer.copy(whole(source), target)
    wanted = {entry.path: entry.sha256 for entry in facts.files} if facts is not None else {}
    if wanted.get(source.name, copied.sha256) != copied.sha256:
        raise errors.DataError(f"{source.origin} differs from its checksum: split the data again")
