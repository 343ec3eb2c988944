"""Starts `kubectl pdj` from one file: this one, in a zip archive with the wheels of all that it needs.

Compiled modules cannot be imported from an archive, so the wheels for this Python are unpacked once, into the
user's cache. Standard library only.
"""

import os
import sys
import tempfile
import zipfile
from pathlib import Path

DIGEST = "@DIGEST@"
PYTHONS: list[str] = []  # @PYTHONS@


def unpacked() -> Path:
    """Return the folder with the packages for this Python, which is made when it is not there."""
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    if python not in PYTHONS:
        names = ", ".join(f"{each[2]}.{each[3:]}" for each in PYTHONS)
        sys.exit(f"error: this file is for Python {names}, and {sys.executable} is {sys.version.split()[0]}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddlejob" / "kubectl-pdj"
    folder = cache / f"{DIGEST}-{python}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch, "packages")
            with zipfile.ZipFile(sys.argv[0]) as archive:
                for name in archive.namelist():
                    if name.startswith(("wheels/any/", f"wheels/{python}/")):
                        with archive.open(name) as wheel, zipfile.ZipFile(wheel) as packages:
                            packages.extractall(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise another process was faster
                    raise
    return folder


try:
    sys.path.insert(0, str(unpacked()))
except OSError as error:
    sys.exit(f"error: cannot unpack kubectl-pdj: {error}; set XDG_CACHE_HOME to a folder that can be written")

from paddlejob.cli.kubectl import main  # noqa: E402 - found in what was just unpacked

main()
