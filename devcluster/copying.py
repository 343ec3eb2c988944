"""COPY: which files of a context go where, what they are together, and the copying itself."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.dockerfile import Ignored
from devcluster.programs import DevclusterError

REPRODUCIBLE_TIME = 0
"""The time of copied files: theirs is that of a checkout, which says nothing."""


@dataclass(frozen=True)
class Copy:
    """Files to copy: source on this machine, target in the image, as an absolute path."""

    files: tuple[tuple[Path, str], ...]
    owner: tuple[int, int] = (0, 0)
    mode: int | None = None

    def digest(self) -> str:
        """Give a hash of all that arrives in the image."""
        total = hashlib.sha256(repr((self.owner, self.mode)).encode())
        for source, target in self.files:
            found = source.lstat()
            total.update(f"\0{target}\0{found.st_mode:o}\0".encode())
            if source.is_symlink():
                total.update(os.readlink(source).encode())  # noqa: PTH115
            elif source.is_file():
                with source.open("rb") as handle:
                    total.update(hashlib.file_digest(handle, "sha256").digest())
        return total.hexdigest()

    def perform(self, tree: Path) -> None:
        """Write the files into a tree."""
        for source, target in self.files:
            path = tree / target.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir() and not source.is_symlink():
                path.mkdir(exist_ok=True)
            else:
                shutil.copy2(source, path, follow_symlinks=False)
            self._finish(source, path)

    def _finish(self, source: Path, path: Path) -> None:
        os.chown(path, *self.owner, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(source.stat().st_mode & 0o7777 if self.mode is None else self.mode)
        os.utime(path, (REPRODUCIBLE_TIME, REPRODUCIBLE_TIME), follow_symlinks=False)


@dataclass(frozen=True)
class Context:
    """A directory that COPY takes from."""

    directory: Path
    ignored: Ignored = field(default_factory=lambda: Ignored(""))

    @classmethod
    def of(cls, directory: Path, dockerfile: Path) -> Context:
        """Give the context in a directory, with the rules beside the Dockerfile or else its own."""
        for rules in (dockerfile.with_name(f"{dockerfile.name}.dockerignore"), directory / ".dockerignore"):
            if rules.exists():
                return cls(directory, Ignored(rules.read_text()))
        return cls(directory)

    def select(self, sources: Sequence[str], target: str) -> tuple[tuple[Path, str], ...]:
        """Give the files that `COPY sources... target` means; a directory stands for what is in it.

        Raises: DevclusterError when a source fits nothing, or several do and the target is one file.
        """
        found = [path for source in sources for path in self._matches(source)]
        if len(found) > 1 and not target.endswith("/"):
            raise DevclusterError(f"COPY of several sources needs a target that ends with /, not {target!r}.")
        chosen: list[tuple[Path, str]] = []
        for path in found:
            if path.is_dir() and not path.is_symlink():
                chosen += [(each, f"{target.rstrip('/')}/{name}") for each, name in self._below(path)]
            else:
                chosen.append((path, target + path.name if target.endswith("/") else target))
        return tuple(chosen)

    def _matches(self, source: str) -> list[Path]:
        relative = source.lstrip("/")
        paths = sorted(self.directory.glob(relative)) if relative not in ("", ".") else [self.directory]
        kept = [path for path in paths if self._relative(path) not in self.ignored]
        if not kept:
            raise DevclusterError(f"COPY {source}: there is no such file in {self.directory}.")
        return kept

    def _below(self, top: Path) -> Iterator[tuple[Path, str]]:
        for path in sorted(top.rglob("*")):
            if self._relative(path) not in self.ignored:
                yield path, path.relative_to(top).as_posix()

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.directory).as_posix()
