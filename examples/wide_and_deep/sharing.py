"""Which training files a worker reads in which epoch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path


def deal(names: Sequence[str], epoch: int, rank: int, workers: int) -> list[str]:
    """Every worker shuffles alike, because the epoch is the seed, and takes the files of its rank."""
    return random.Random(epoch).sample(names, len(names))[rank::workers]


def own_rows(directory: Path) -> dict[str, int]:
    """The training files that are there and how many rows each has; the manifest tells of the whole data."""
    return {path.name: path.read_bytes().count(b"\n") for path in sorted(directory.glob("train-*.txt"))}
