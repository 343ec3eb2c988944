"""Writes a digest of all plans of each history: `python tests/sim/plan_digests.py FIRST [LAST] > FILE`.

Two checkouts that make the same decisions write the same lines, whatever their types look like inside. Set
PYTHONHASHSEED=0 for both. `compare_plans.py` shows how two plans differ.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from paddlejob.operator import reconciler
from sim.compare_plans import described
from sim.simulation import play


def main(first: int, last: int) -> None:
    """Print seed, number of plans and digest of each history."""
    count, digest = 0, hashlib.sha256()

    def plan(snapshot: Any) -> Any:
        nonlocal count
        decided = original_plan(snapshot)
        count += 1
        digest.update(msgspec.json.encode(described(decided)))
        return decided

    original_plan, reconciler.plan = reconciler.plan, plan
    for seed in range(first, last + 1):
        count, digest = 0, hashlib.sha256()
        try:
            play(seed)
        except Exception as error:
            digest.update(str(error).encode())
        print(seed, count, digest.hexdigest(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes a digest of all plans of each simulated history.")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the last seed, by default the first")
    given = parser.parse_args()
    main(given.first, given.first if given.last is None else given.last)
