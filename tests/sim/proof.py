"""Plays every history of `every_call` and `field_walk`, and prints docs/proof.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim import every_call, field_walk
from sim.every_call import SCENARIOS, Fault

PAGE = """\
# What was tried

This page is written by `make proof`.

## One fault at every call

The operator runs a job in a simulation without chance. Then it runs the same job again for every request
that it sends and every event that its watches deliver, and each time one of them goes wrong in one way. The
job must come to the same end: the same phase, number of restarts and objects, and every container started as
often as without the fault.

{total} histories, and all of them did. How many for each fault and each life of a job:

{table}

The requests of the lease, and those that ask what the cluster serves, are left out.

## Every field changed

Each of the {fields} fields of a PaddleJob's spec is changed while the job starts, and while it runs, in a
history of its own. A change to a valid value must end as if the job had been created with it: the same phase
and objects, and pods with the same spec. Of a mistake that is corrected a minute later nothing must remain:
the same end, and every container started as often as without it.

{changes} changes, and all of them did. Pod templates and the priority class apply to pods that are created
afterwards, so the job is suspended and resumed before they are compared.
"""


def main() -> None:
    """Print the page when every history has held."""
    counts = {fault: [every_call.check(scenario, fault) for scenario in SCENARIOS] for fault in Fault}
    rows = [f"| {fault} | {' | '.join(map(str, row))} |" for fault, row in counts.items()]
    head = f"| fault | {' | '.join(SCENARIOS)} |\n|{'---|' * (len(SCENARIOS) + 1)}"
    changes = sum(field_walk.check(field) for field in field_walk.FIELDS)
    page = PAGE.format(
        total=f"{sum(map(sum, counts.values())):,}",
        table="\n".join((head, *rows)),
        fields=len(field_walk.FIELDS),
        changes=changes,
    )
    print(page, end="")


if __name__ == "__main__":
    main()
