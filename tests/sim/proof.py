"""Plays every history of `every_call` and `field_walk`: `python tests/sim/proof.py [--jobs N]`.

Writes the counts to docs/proof.md when all have held; else says how to play those again that have not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.proof_page import table, write_section
from sim import every_call, field_walk
from sim.every_call import SCENARIOS
from sim.wire import Fault

SECTION = """\
**{total} histories with a fault at a request or an event, and {changes} changes of a field: all held.**

### One fault at every call

The operator runs a job in a deterministic simulation. Then it runs the same job again once for every request
that it sends and every event that its watches deliver, and each time that one goes wrong. The job must come
to the same end: the same phase, number of restarts and objects, and every container started as often as
without the fault. Histories by fault and by what happens to the job:

{counts}

The requests of the lease, and those that ask what the cluster serves, are left out. Where the lease moves,
two operators work until the first one reads that it has lost it.

### Every field changed

Each of the {fields} fields of a PaddleJob's spec is given each of its values in turn, and changed to each of
the others while the job starts and while it runs, in a history of its own. A change to a valid value must end
as if the job had been created with it: the same phase and objects, and pods with the same spec. Of a mistake
that is corrected a minute later nothing must remain: the same end, and every container started as often as
without it. A job that has ended stays as it is. Pod templates and the priority class apply to pods that are
created afterwards, so the job is suspended and resumed before they are compared.
"""

Part = tuple[str, str]
"""A life and a fault, or a field and nothing."""


def count(part: Part) -> tuple[Part, int, str]:
    """Play the histories of a part; return how many that were, or which have not held."""
    what, fault = part
    try:
        return part, every_call.check(what, Fault(fault)) if fault else field_walk.check(what), ""
    except AssertionError as error:
        return part, 0, str(error)
    except Exception:
        return part, 0, f"{part}\n{traceback.format_exc()}"


def section(counts: dict[Part, int]) -> str:
    """Return the text for the page."""
    rows = [(str(fault), *(f"{counts[scenario, fault]:,}" for scenario in SCENARIOS)) for fault in Fault]
    return SECTION.format(
        total=f"{sum(number for (_, fault), number in counts.items() if fault):,}",
        counts=table(("", *SCENARIOS), rows),
        fields=len(field_walk.FIELDS),
        changes=f"{sum(number for (_, fault), number in counts.items() if not fault):,}",
    )


def main(jobs: int) -> int:
    """Return 1 when a history has not held."""
    parts = [*((field, "") for field in field_walk.FIELDS), *product(SCENARIOS, map(str, Fault))]
    counts: dict[Part, int] = {}
    failed = []
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for part, number, trouble in pool.imap_unordered(count, parts):
            counts[part] = number
            failed += [trouble] if trouble else []
            done = f"{len(counts)} of {len(parts)}, {(time.monotonic() - began) / 60:.0f} min"
            print(f"{done}: {': '.join(filter(None, part))}: {trouble or f'{number} held'}", flush=True)
    if failed:
        print("these have not held:", *failed, sep="\n")
        return 1
    write_section("make proof", section(counts))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Lets one fault strike every call, and changes every field.")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 for one a core (default 1)")
    sys.exit(main(parser.parse_args().jobs or os.cpu_count() or 1))
