"""Plays histories for as long as one likes: `python tests/sim/soak.py FIRST [LAST]`."""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim.simulation import play


def main(first: int, last: int) -> int:
    failed = []
    began = time.monotonic()
    for seed in range(first, last + 1):
        try:
            play(seed)
        except Exception:
            failed.append(seed)
            print(f"seed {seed} failed", flush=True)
            traceback.print_exc()
        done = seed - first + 1
        if done % 500 == 0 or seed == last:
            took = time.monotonic() - began
            print(f"{done} histories, {len(failed)} failed, {1000 * took / done:.0f} ms each", flush=True)
    print(f"failed: {failed}" if failed else "all held")
    return bool(failed)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(numbers[0], numbers[-1]))
