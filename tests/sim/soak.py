"""Plays many histories: `python tests/sim/soak.py FIRST [LAST] [--jobs N]`."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from sim.simulation import play

TELL_EACH = 500


def failure(seed: int) -> tuple[int, str, float]:
    """Play a history; return its seed, its traceback if it failed, and its processor time."""
    trace, began = "", time.process_time()
    try:
        play(seed)
    except Exception:
        trace = traceback.format_exc()
    # A simulated server is full of cycles, and collects no garbage while it runs.
    gc.collect()
    return seed, trace, time.process_time() - began


def main(first: int, last: int, jobs: int) -> int:
    """Return 1 if a history failed; print the seeds of all failures at the end."""
    failed, began, total, cpu_seconds = [], time.monotonic(), last - first + 1, 0.0
    # A spawned process inherits no locks from threads of this one.
    with multiprocessing.get_context("spawn").Pool(jobs, gc.freeze) as pool:
        played = pool.imap_unordered(failure, range(first, last + 1))
        for done, (seed, trace, seconds) in enumerate(played, start=1):
            cpu_seconds += seconds
            if trace:
                failed.append(seed)
                print(f"seed {seed} failed\n{trace}", flush=True)
            if done % TELL_EACH == 0 or done == total:
                each = (time.monotonic() - began) / done
                print(
                    f"{done} of {total} histories, {len(failed)} failed, {1000 * each:.0f} ms each "
                    f"({1000 * cpu_seconds / done:.0f} of a processor), "
                    f"{(total - done) * each / 60:.0f} min to go",
                    flush=True,
                )
    print(f"failed: {sorted(failed)}" if failed else "all held")
    return bool(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plays simulated histories.")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the last seed, by default the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 for one a core (default 1)")
    given = parser.parse_args()
    last = given.first if given.last is None else given.last
    sys.exit(main(given.first, last, given.jobs or os.cpu_count() or 1))
