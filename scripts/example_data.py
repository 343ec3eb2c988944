"""Prepares the data sets of the examples in the cache, and links each as `data` beside its program.

    python3 scripts/example_data.py                  prints one line `NAME=DIRECTORY` for each example
    python3 scripts/example_data.py wide_and_deep    prints the directory of one

The first call downloads about 10 MB through pip; every later one only prints.  Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

from paddle_env import EXAMPLES, PaddleEnvError, cache_directory, locked

NAMES = ("wide_and_deep", "resnet")


def directory_for(name: str) -> Path:
    """Named after the program that makes it, so that a change of the program makes new data."""
    key = hashlib.sha256(script(name).read_bytes()).hexdigest()[:12]
    return cache_directory() / "data" / f"{name}-{key}"


def script(name: str) -> Path:
    return EXAMPLES / name / "prepare_data.py"


def ensure(name: str) -> Path:
    """The directory with the data of an example, which is made when it is not there.

    Raises: PaddleEnvError.
    """
    directory = directory_for(name)
    with locked(directory):
        command = [sys.executable, str(script(name)), "--out", str(directory)]
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            raise PaddleEnvError(f"the data of {name} could not be prepared")
        link(EXAMPLES / name / "data", directory)
    return directory


def link(place: Path, target: Path) -> None:
    """Lets the example find its data without being told; a directory that somebody put there stays."""
    if place.is_symlink() and place.readlink() != target:
        place.unlink()
    if not (place.is_symlink() or place.exists()):
        place.symlink_to(target)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prepares the data sets of the examples in the cache.")
    parser.add_argument("name", nargs="?", choices=NAMES)
    name = parser.parse_args().name
    try:
        if name:
            print(ensure(name))
        else:
            for each in NAMES:
                print(f"{each}={ensure(each)}")
    except (PaddleEnvError, OSError) as error:
        sys.exit(f"example_data: {error}")


if __name__ == "__main__":
    main()
