"""Small files of numbered lines, and what a split made of them."""

from __future__ import annotations

from pathlib import Path

from paddlejob.plainjob.data.progress import ProgressSink
from paddlejob.plainjob.data.split import SplitReport, SplitRequest, split


def lines(count: int, prefix: str = "line") -> bytes:
    return b"".join(f"{prefix} {number}\n".encode() for number in range(count))


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def run_split(job: Path, count: int, *inputs: Path, **options) -> SplitReport:
    return split(SplitRequest(job=job, split_count=count, inputs=inputs, **options), ProgressSink())


def shard(job: Path, index: int, name: str = "train.txt") -> bytes:
    return (job / str(index) / "data" / name).read_bytes()


def tree(job: Path) -> dict[str, bytes]:
    return {
        path.relative_to(job).as_posix(): path.read_bytes()
        for path in sorted(job.rglob("*"))
        if path.is_file() and ".split" not in path.parts
    }
