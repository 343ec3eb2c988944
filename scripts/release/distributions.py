"""The wheel and the sdist of a source tree: the same bytes wherever they are built."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

_BACKEND = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"


def build_wheel(source: Path, out: Path, epoch: int) -> Path:
    """Build the wheel; setuptools takes its times from the variable and sorts its files."""
    return _build("build_wheel", source, out, epoch)


def build_sdist(source: Path, out: Path, epoch: int) -> Path:
    """Build the sdist, and pack it again in a fixed order, with one time and without an owner."""
    with tempfile.TemporaryDirectory() as scratch:
        built = _build("build_sdist", source, Path(scratch), epoch)
        with tarfile.open(built) as opened:
            opened.extractall(scratch, filter="tar")
        top = built.name.removesuffix(".tar.gz")
        return pack(Path(scratch) / top, out / built.name, epoch)


def pack(folder: Path, target: Path, epoch: int) -> Path:
    """Write a folder as a tar.gz file that depends on nothing but its files."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = epoch
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info

    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as compressed,
        tarfile.open(mode="w", fileobj=compressed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            tar.add(path, f"{folder.name}/{path.relative_to(folder)}", recursive=False, filter=plain)
    return target


def _build(hook: str, source: Path, out: Path, epoch: int) -> Path:
    """Run a hook of the build backend in a process of its own, without an index."""
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.iterdir())
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", _BACKEND, hook, str(out.absolute())]
    done = subprocess.run(
        command,
        cwd=source,
        env=environment,
        umask=0o022,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{hook} failed:\n{done.stdout[-3000:]}")
    [built] = set(out.iterdir()) - before
    return built
