"""Directories of built programs and clusters, outside the source tree, and their locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """Give `$PADDLEJOB_CACHE`, else `paddlejob` in the user's cache directory."""
    explicit = os.environ.get("PADDLEJOB_CACHE")
    if explicit:
        return Path(explicit).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "paddlejob"


def _nothing() -> None:
    pass


@contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] = _nothing) -> Iterator[None]:
    """Hold an exclusive lock on a file; `on_wait` is called once if another process holds it.

    Guarantees: the kernel releases the lock when the holder dies, however it dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file's content so that a reader sees the old or the new text, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    temporary.replace(path)
