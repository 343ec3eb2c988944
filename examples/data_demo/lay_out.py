"""Puts the Wide & Deep program and its data on a volume, where data_demo.yaml expects them.

    python3 lay_out.py --volume DIRECTORY

    DIRECTORY/                 mounted at /nas
      wide_and_deep/           the program
        data/                  what prepare_data.py makes

Run it where the volume is mounted.  It may be run again: the program is replaced, complete data stays.
Standard library only.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "wide_and_deep"


def lay_out(volume: Path, prepare_options: list[str]) -> int:
    """Returns the exit code of prepare_data.py; options that are not ours are passed on to it."""
    target = volume / PROGRAM.name
    target.mkdir(parents=True, exist_ok=True)
    for source in sorted(PROGRAM.glob("*.py")):
        shutil.copy2(source, target)
    command = [
        sys.executable,
        str(target / "prepare_data.py"),
        "--out",
        str(target / "data"),
        *prepare_options,
    ]
    return subprocess.run(command, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts the Wide & Deep program and its data on a volume.")
    parser.add_argument("--volume", type=Path, required=True, help="where the volume is mounted here")
    options, prepare_options = parser.parse_known_args()
    try:
        sys.exit(lay_out(options.volume, prepare_options))
    except OSError as error:
        sys.exit(f"lay_out: cannot write to {options.volume}: {error}")


if __name__ == "__main__":
    main()
