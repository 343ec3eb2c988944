"""How long a job takes to run on a real node: submit to Running, and ConfigMap to running containers.

PYTHONPATH=.:tests python bench/node_start.py [--rounds 20]        on a cluster that is up, with the operator
installed: python -m devcluster up --node --name e2e && make e2e
"""

from __future__ import annotations

import argparse
import statistics

from devcluster.cache import cache_directory
from devcluster.control_plane.background import Background
from e2e.conftest import fresh_namespace
from e2e.start import measure


def main(rounds: int) -> None:
    cluster = Background(cache_directory() / "clusters" / "e2e").connect()
    for space in fresh_namespace(cluster):
        figures = [measure(space, f"start-{number}") for number in range(rounds)]
        labels = ("submit to Running", "ConfigMap to all containers running")
        for label, values in zip(labels, zip(*figures, strict=True), strict=True):
            print(
                f"2 ps and 2 workers, {label}, {rounds} rounds: median {statistics.median(values):.1f} s, "
                f"p90 {statistics.quantiles(values, n=10)[-1]:.1f} s, "
                f"best {min(values):.1f} s, worst {max(values):.1f} s"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    main(parser.parse_args().rounds)
