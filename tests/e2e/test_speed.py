"""A job does not wait for a kubelet that sleeps; bench/node_start.py measures how fast it is."""

from __future__ import annotations

from e2e.jobs import Space
from e2e.report import REPORT
from e2e.start import measure

ROUNDS = 3
"""A machine that does other things is not slow every time, a kubelet that is not woken is."""
ASLEEP_SECONDS = 10.0
"""A kubelet that is left alone tries again after 10 to 15 seconds."""


def test_the_kubelet_is_woken_when_the_config_map_is_there(space: Space) -> None:
    rounds = []
    while len(rounds) < ROUNDS and min(rounds, default=ASLEEP_SECONDS) >= ASLEEP_SECONDS:
        running, containers = measure(space, f"quick-{len(rounds)}")
        rounds.append(containers)
        REPORT.seconds("2 ps and 2 workers: submit to Running", running)
        REPORT.seconds("ConfigMap to all containers running", containers)
    assert min(rounds) < ASLEEP_SECONDS
