"""Reading a finished split again and comparing it with its checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.data.layout import Source
from paddlejob.plainjob.data.manifest import FileEntry, Manifest
from paddlejob.plainjob.data.progress import ProgressSink
from paddlejob.plainjob.data.scan import Advance, blocks


def verify(job: Path, progress: ProgressSink) -> Manifest:
    """Check every file of a split and return its manifest. Raises DataError for the first bad one."""
    found = manifest.read_job(job)
    if found is None:
        raise errors.DataError(f"{job} has no {manifest.NAME}: the split is not finished, run it again")
    progress.begin("verifying", sum(shard.size for shard in found.shards))
    try:
        for shard in found.shards:
            for path, entry in manifest.data_files(job, shard):
                verify_file(path, entry, progress.advance)
    finally:
        progress.end()
    return found


def verify_file(path: Path, entry: FileEntry, advance: Advance) -> None:
    """Compare one file with its manifest entry. Raises DataError."""
    if not path.is_file() or path.stat().st_size != entry.size:
        raise errors.DataError(f"{path} is missing or not {entry.size} bytes long: split the data again")
    digest = hashlib.sha256()
    for block in blocks(Source(entry.path, str(path), entry.size), 0, entry.size):
        digest.update(block)
        advance(len(block))
    if digest.hexdigest() != entry.sha256:
        raise errors.DataError(f"{path} differs from its checksum in {manifest.NAME}: split the data again")
