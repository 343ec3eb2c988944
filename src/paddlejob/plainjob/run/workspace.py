"""Fill a pod's working directory with the training scripts, and with its shard in ./data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.data.layout import Source
from paddlejob.plainjob.data.manifest import ShardManifest
from paddlejob.plainjob.data.scripts import ignore_data
from paddlejob.plainjob.data.writer import Writer, make_parent, whole
from paddlejob.plainjob.settings import JobSettings

MARKER = ".paddlejob-workdir"


class Workspace(msgspec.Struct, frozen=True):
    """A working directory that is ready to train in."""

    data: Path
    split: str
    """The split of the data; empty if `paddlejob data split` did not write it."""


def check_job(settings: JobSettings, trainers: int) -> None:
    """Refuse missing scripts, and data not split for this number of trainers. Raises DataError."""
    if not settings.config_directory.is_dir():
        raise errors.DataError(
            f"TRAIN_CONFIG_DIR {settings.config_directory} is not a directory: put the training scripts there"
        )
    job = settings.job_directory
    found = manifest.read_job(job)
    if found is None:
        if any((job / str(index) / manifest.NAME).exists() for index in range(trainers)):
            raise _unfinished(job)
    elif found.split_count != trainers:
        raise errors.DataError(
            f"the data in {job} is split into {found.split_count} shards, "
            f"but the Job has {trainers} trainers: make them equal"
        )


def _unfinished(job: Path) -> errors.DataError:
    return errors.DataError(
        f"the split in {job} is not finished: run the same `paddlejob data split` command again"
    )


def fill_workspace(settings: JobSettings, trainer: int, directory: Path, writer: Writer) -> Workspace:
    """Copy scripts and shard.

    Guarantees: data that `paddlejob data split` wrote belongs to one finished split, is complete, and is
    compared with its checksums during the copy. Other data is copied without checks.
    Raises SettingsError, DataError, SpaceError.
    """
    _claim(directory)
    try:
        shutil.copytree(
            settings.config_directory,
            directory,
            ignore=ignore_data(settings.config_directory),
            dirs_exist_ok=True,
        )
    except (OSError, shutil.Error) as error:
        raise errors.DataError(f"cannot copy {settings.config_directory} to {directory}: {error}") from error
    shard = settings.job_directory / str(trainer) / "data"
    if not shard.is_dir():
        raise errors.DataError(
            f"there is no shard for trainer {trainer}: {shard} is missing; run `paddlejob data split` first"
        )
    facts = _facts(settings.job_directory, trainer)
    sources = list(_files(shard))
    if facts is not None:
        sources = _listed(shard, facts, {source.name: source for source in sources})
    for source in sources:
        _copy(source, directory / "data" / source.name, facts, writer)
    return Workspace(directory / "data", facts.split if facts is not None else "")


def _facts(job: Path, trainer: int) -> ShardManifest | None:
    """Return the manifest of a shard, None if `paddlejob data split` did not write it."""
    whole_split, own = manifest.read_job(job), manifest.read_shard(job, trainer)
    if whole_split is None and own is not None:
        raise _unfinished(job)
    if whole_split is not None and own not in whole_split.shards:
        raise errors.DataError(
            f"{job / str(trainer)} is not part of the split of {job / manifest.NAME}: split the data again"
        )
    return own


def _listed(shard: Path, facts: ShardManifest, found: Mapping[str, Source]) -> list[Source]:
    """Return the files of a manifest. Raises DataError for a missing or additional file."""
    listed = {entry.path for entry in facts.files}
    for name in sorted(listed - found.keys()):
        raise errors.DataError(f"{shard / name} is missing: split the data again")
    for name in sorted(found.keys() - listed):
        if not name.rpartition("/")[2].startswith("."):  # such as NFS files of removed ones
            raise errors.DataError(f"{shard / name} is not part of the split: move it away, or split it too")
    return [found[entry.path] for entry in facts.files]


def _claim(directory: Path) -> None:
    """Mark the directory as ours and remove an earlier shard. Other files are never overwritten."""
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / MARKER
    foreign = [entry for entry in directory.iterdir() if entry.name != "lost+found"]
    if foreign and not marker.exists():
        raise errors.SettingsError(f"--workdir {directory} is not empty: use an empty or new directory")
    marker.touch()
    shutil.rmtree(directory / "data", ignore_errors=True)


def _files(shard: Path) -> Iterator[Source]:
    for path in sorted(shard.rglob("*")):
        if path.is_file():
            yield Source.of(path, path.relative_to(shard).as_posix())


def _copy(source: Source, target: Path, facts: ShardManifest | None, writer: Writer) -> None:
    make_parent(target)
    copied = writer.copy(whole(source), target)
    wanted = {entry.path: entry.sha256 for entry in facts.files} if facts is not None else {}
    if wanted.get(source.name, copied.sha256) != copied.sha256:
        raise errors.DataError(f"{source.origin} differs from its checksum: split the data again")
