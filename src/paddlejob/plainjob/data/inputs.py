"""Choose the files to split and the files to share, from names and the first bytes of each file."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from paddlejob.plainjob import errors
from paddlejob.plainjob.data.layout import Source
from paddlejob.plainjob.data.scan import read_error

TRAINING_NAMES = ("train*", "part-*")
"""The training files of an input directory, by default. --split overrides them."""

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}


class Inputs(msgspec.Struct, frozen=True):
    """The files of one split."""

    split: tuple[Source, ...]
    shared: tuple[Source, ...]


def gather(inputs: Sequence[Path], shared: Sequence[Path], names: Sequence[str], job: Path) -> Inputs:
    """Return the files of the command line, in a stable order.

    Files are split. In a directory, files that match one of `names` are split and all others are shared.
    Raises DataError.
    """
    split: list[Source] = []
    whole: list[Source] = []
    for path in inputs:
        inside = _files(path, job)
        training = inside if path.is_file() else [found for found in inside if _matches(found.name, names)]
        if not training:
            wanted = " or ".join(repr(name) for name in names)
            raise errors.DataError(
                f"no file in {path} is called {wanted}: name the training files with --split GLOB"
            )
        split += training
        whole += [found for found in inside if found not in training]
    for path in shared:
        whole += _files(path, job)
    _check_names([*split, *whole])
    for source in split:
        _check_text(source)
    return Inputs(tuple(split), tuple(whole))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    path = PurePosixPath(name)
    return any(fnmatch.fnmatchcase(path.name, pattern) or path.match(pattern) for pattern in patterns)


def _files(path: Path, job: Path) -> list[Source]:
    try:
        if not path.is_dir():
            return [_source(path, path.name)]
        if job.resolve().is_relative_to(path.resolve()):
            raise errors.DataError(
                f"OUT_DIR {job} lies inside the input {path}: write the shards somewhere else"
            )
        return [_source(found, found.relative_to(path).as_posix()) for found in _walk(path)]
    except OSError as error:
        raise read_error(error.filename or path, error) from error


def _walk(directory: Path) -> Iterator[Path]:
    for entry in sorted(directory.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(entry)
        else:
            yield entry


def _source(path: Path, name: str) -> Source:
    source = Source.of(path.resolve(), name)
    if not path.is_file():
        raise errors.DataError(f"{path} is not a regular file: write its content to one first")
    if not os.access(path, os.R_OK):
        raise errors.DataError(f"cannot read {path}: permission denied")
    return source


def _check_names(sources: Sequence[Source]) -> None:
    seen: dict[str, Source] = {}
    for source in sources:
        other = seen.setdefault(source.name, source)
        if other is not source:
            raise errors.DataError(
                f"{other.origin} and {source.origin} would both be {source.name!r} in a shard: rename one"
            )


def _check_text(source: Source) -> None:
    """Refuse compressed files: parts of them cannot be unpacked."""
    try:
        with Path(source.origin).open("rb") as stream:
            head = stream.read(8)
    except OSError as error:
        raise read_error(source.origin, error) from error
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise errors.DataError(f"{source.origin} is compressed ({name}), not lines: unpack it first")
