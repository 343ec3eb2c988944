"""Wheels of Paddle's kits, downloaded once without their dependencies."""

from __future__ import annotations

import subprocess
import sys
import zipfile

from scripts import paddle_env


def opened(requirement: str) -> zipfile.ZipFile:
    """Return the wheel of a requirement such as `erniekit==1.3.0`."""
    folder = paddle_env.cache_directory() / "wheels" / requirement
    if not list(folder.glob("*.whl")):
        download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
        subprocess.run([sys.executable, *download, "--disable-pip-version-check"], check=True)
    [wheel] = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)
