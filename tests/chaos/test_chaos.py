"""The parts of `make chaos` that need no node: its plan, and how it would notice a rank that runs twice."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from chaos.containers import Seen, overlaps, processes_by_pod
from chaos.faults import KINDS, plan


def test_a_seed_always_breaks_the_same_things_and_every_kind_in_turn() -> None:
    first, again, other = (list(islice(plan(seed), 2 * len(KINDS))) for seed in (1, 1, 2))
    assert first == again != other
    for turn in (first[: len(KINDS)], first[len(KINDS) :]):
        assert {fault.kind for fault in turn} == set(KINDS)


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ({"a": Seen(0.0, 5.0), "b": Seen(5.1, 9.0)}, []),
        ({"a": Seen(0.0, 5.0), "b": Seen(4.9, 9.0)}, ["demo-worker-0"]),
        ({"b": Seen(4.9, 9.0), "a": Seen(0.0, 5.0)}, ["demo-worker-0"]),
        ({"a": Seen(0.0, 5.0), "c": Seen(1.0, 9.0)}, []),
        ({"a": Seen(0.0, 5.0), "unknown": Seen(1.0, 9.0)}, []),
    ],
    ids=["one after the other", "both", "both, seen in another order", "two ranks", "not of a job"],
)
def test_two_pods_of_a_rank_at_the_same_time_are_noticed(runs: dict[str, Seen], found: list[str]) -> None:
    assert overlaps(runs, {"a": "demo-worker-0", "b": "demo-worker-0", "c": "demo-worker-1"}) == found


def test_a_cluster_without_containers_has_no_processes(tmp_path: Path) -> None:
    assert processes_by_pod(tmp_path) == {}
