"""How long a job takes to run on a real node: submit to Running, and ConfigMap to running containers.

PYTHONPATH=.:tests python bench/node_start.py        on a cluster that is up, with the operator installed:
python -m devcluster up --node --name e2e && make e2e
"""

from __future__ import annotations

import statistics

from devcluster.cache import cache_directory
from devcluster.control_plane.background import Background
from e2e.conftest import fresh_namespace
from e2e.start import measure

ROUNDS = 8


def main() -> None:
    cluster = Background(cache_directory() / "clusters" / "e2e").connect()
    for space in fresh_namespace(cluster):
        rounds = [measure(space, f"start-{number}") for number in range(ROUNDS)]
        labels = ("submit to Running", "ConfigMap to all containers running")
        for label, values in zip(labels, zip(*rounds, strict=True), strict=True):
            print(
                f"2 ps and 2 workers, {label}, {ROUNDS} rounds: median {statistics.median(values):.1f} s, "
                f"best {min(values):.1f} s, worst {max(values):.1f} s"
            )


if __name__ == "__main__":
    main()
