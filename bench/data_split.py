"""How fast is `paddlejob data split`, next to `cp` of the same file on the same disk, in one run?

    python bench/data_split.py [--megabytes 2000] [--rounds 3] [--directory DIR]

Makes a file of samples, then takes turns: `cp` and flush, a split by lines, a split by bytes. `cp` is flushed
because a split is: a shard is on the disk before it gets its name. Prints the median of each, its ratio to
`cp`, and the peak memory of the process. The file is dropped from memory before each turn, unless --warm.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path


def make_file(path, megabytes):
    """Lines of 40 to 400 bytes, as samples of numbers are."""
    draw = random.Random(1)
    sample = b"".join(b"7 " + b"0.1234 " * draw.randint(6, 56) + b"1\n" for _ in range(20_000))
    with path.open("wb") as stream:
        while stream.tell() < megabytes * 1_000_000:
            stream.write(sample)
        stream.flush()
        os.fsync(stream.fileno())


def timed(command):
    """Run a command; return its seconds and its peak memory in MB."""
    began = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed with {status}")
    return time.perf_counter() - began, usage.ru_maxrss / 1000


def drop_from_cache(path):
    """Let every turn read the file from the disk."""
    with path.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def commands(source, out, shards):
    split = [
        sys.executable,
        "-c",
        "from paddlejob.cli.main import main; main()",
        "data",
        "split",
        str(source),
    ]
    split += ["--out-dir", str(out), "--split-count", str(shards), "--quiet"]
    return {
        "cp, flushed": ["sh", "-c", f"mkdir -p {out} && cp {source} {out}/copy && sync {out}/copy"],
        "split --by lines": [*split, "--by", "lines"],
        "split --by bytes": [*split, "--by", "bytes"],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--warm", action="store_true", help="leave the file in the page cache")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        source, out = Path(place) / "train.txt", Path(place) / "out"
        make_file(source, options.megabytes)
        size = source.stat().st_size
        seconds, memory = {}, {}
        for _ in range(options.rounds):
            for name, command in commands(source, out, options.shards).items():
                if not options.warm:
                    drop_from_cache(source)
                spent, peak = timed(command)
                seconds.setdefault(name, []).append(spent)
                memory[name] = max(peak, memory.get(name, 0))
                shutil.rmtree(out)
    base = statistics.median(seconds["cp, flushed"])
    print(f"{size / 1e9:.1f} GB, {options.shards} shards, median of {options.rounds} rounds")
    for name, spent in seconds.items():
        middle = statistics.median(spent)
        speed = size / middle / 1e6
        figures = f"{middle:7.2f} s {speed:7.0f} MB/s {middle / base:6.2f} x cp"
        print(f"{name:18} {figures} {memory[name]:6.0f} MB peak")


if __name__ == "__main__":
    main()
