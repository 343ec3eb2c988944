"""Layers of images while they are built: a directory that can be stacked, and the tar file made from it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster.archive import Layer
from devcluster.cache import cache_directory, write_atomically

Fill = Callable[[Path], object]
Make = Callable[[], "BuiltLayer"]
UNUSED_SECONDS = 14 * 24 * 3600.0
OPAQUE = "trusted.overlay.opaque"


@dataclass(frozen=True)
class BuiltLayer:
    """A layer in the cache; `key` is a hash of all that decides its content."""

    key: str
    digest: str

    @property
    def tree(self) -> Path:
        """Its files, with deletions as the overlay file system marks them."""
        return _home(self.key) / "tree"

    @property
    def archived(self) -> Layer:
        """Its tar file."""
        return Layer(_home(self.key) / "layer.tar", self.digest)


def _store() -> Path:
    return cache_directory() / "images"


def _home(key: str) -> Path:
    return _store() / key


def find(key: str) -> BuiltLayer | None:
    """Give a layer that was built before."""
    try:
        text = (_home(key) / "layer.json").read_text()
    except FileNotFoundError:
        return None
    os.utime(_home(key))
    return BuiltLayer(**json.loads(text))


def prune(*, unused_seconds: float = UNUSED_SECONDS) -> None:
    """Remove what was not used for a long time, and what a killed build left."""
    now = time.time()
    for path in _store().glob("*"):
        if now - path.stat().st_mtime > unused_seconds:
            shutil.rmtree(path, ignore_errors=True)


def build(key: str, fill: Fill) -> BuiltLayer:
    """Build a layer: `fill` writes its tree.

    Guarantees: a layer that `find` gives is complete, whenever the process that builds it is killed.
    """
    with _scratch() as scratch:
        tree = scratch / "tree"
        tree.mkdir()
        fill(tree)
        write_tar(tree, scratch / "layer.tar")
        layer = BuiltLayer(key, Layer.of(scratch / "layer.tar").digest)
        write_atomically(scratch / "layer.json", json.dumps({"key": key, "digest": layer.digest}))
        shutil.rmtree(_home(key), ignore_errors=True)
        scratch.rename(_home(key))
    return layer


@contextmanager
def _scratch() -> Iterator[Path]:
    _store().mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=_store(), prefix=".building-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write_tar(tree: Path, target: Path) -> None:
    """Write a tree as a tar file, with deletions as images mark them."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in _walk(tree):
            name = path.relative_to(tree).as_posix()
            if _is_deletion(path):
                tar.addfile(tarfile.TarInfo(str(Path(name).with_name(f".wh.{path.name}"))))
                continue
            tar.add(path, name, recursive=False, filter=_without_names)
            if _is_opaque(path):
                tar.addfile(tarfile.TarInfo(f"{name}/.wh..wh..opq"))


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if stat.S_ISSOCK(path.lstat().st_mode):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _is_deletion(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_opaque(path: Path) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    try:
        return os.getxattr(path, OPAQUE) == b"y"
    except OSError:
        return False


def _without_names(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    # Numbers are what counts: the names are those of the machine that builds.
    entry.uname = entry.gname = ""
    return entry


def merged(stacked: Sequence[BuiltLayer], path: str) -> Path:
    """Give a directory in which `path` is what stacked layers make of it, for copying from another stage."""
    wanted = path.strip("/")
    key = hashlib.sha256(repr([wanted, *(layer.key for layer in stacked)]).encode()).hexdigest()[:24]
    home = _home(f"from-{key}")
    if not home.exists():
        with _scratch() as scratch:
            for layer in stacked:
                _merge(layer.tree, scratch, wanted)
            scratch.rename(home)
    return home


def _merge(layer: Path, tree: Path, wanted: str) -> None:
    """Put what a layer has at a path, and above and below it, on top of what is there."""
    for path in _walk(layer):
        name = path.relative_to(layer).as_posix()
        if not (f"{name}/").startswith(f"{wanted}/") and not f"{wanted}/".startswith(f"{name}/"):
            continue
        target = tree / name
        if _is_deletion(path) or _is_opaque(path) or not (path.is_dir() and target.is_dir()):
            _remove(target)
        if path.is_symlink() or path.is_file():
            shutil.copy2(path, target, follow_symlinks=False)
        elif path.is_dir():
            target.mkdir(exist_ok=True)
            shutil.copystat(path, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def resolve(trees: Sequence[Path], path: str) -> str:
    """Follow the symbolic links of a path in stacked trees (the last is on top) and give it without links."""
    done, rest, links = Path("/"), list(Path(path).parts[1:]), 0
    while rest:
        step = done / rest.pop(0)
        found = lookup(trees, str(step))
        if found is not None and found.is_symlink() and (links := links + 1) < 40:
            # Written so that `..` and absolute targets work, and nothing leaves the trees.
            target = os.path.normpath(done / found.readlink())
            done, rest = Path("/"), [*Path(target).parts[1:], *rest]
        else:
            done = step
    return str(done)


def lookup(trees: Sequence[Path], path: str) -> Path | None:
    """Find a path in the topmost tree that has it, None when it is not there or deleted."""
    for tree in reversed(trees):
        candidate = tree / path.lstrip("/")
        if candidate.is_symlink() or candidate.exists():
            return None if _is_deletion(candidate) else candidate
    return None
