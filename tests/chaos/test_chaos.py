"""The parts of `make chaos` that need no node: its plan, and how it would notice a rank that runs twice."""

from __future__ import annotations

import os
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from chaos.containers import Group, Seen, Witness, overlaps
from chaos.faults import KINDS, plan
from chaos.run import forced
from tests.support.waiting import eventually


def test_a_seed_always_breaks_the_same_things_and_every_kind_in_turn() -> None:
    first, again, other = (list(islice(plan(seed), 2 * len(KINDS))) for seed in (1, 1, 2))
    assert first == again != other
    for turn in (first[: len(KINDS)], first[len(KINDS) :]):
        assert {fault.kind for fault in turn} == set(KINDS)


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([Seen(0.0, 5.0, "demo-worker-0"), Seen(5.1, 9.0, "demo-worker-0")], []),
        ([Seen(0.0, 5.0, "demo-worker-0"), Seen(4.9, 9.0, "demo-worker-0")], ["demo-worker-0"]),
        ([Seen(4.9, 9.0, "demo-worker-0"), Seen(0.0, 5.0, "demo-worker-0")], ["demo-worker-0"]),
        ([Seen(0.0, 5.0, "demo-worker-0"), Seen(1.0, 9.0, "demo-worker-1")], []),
    ],
    ids=["one after the other", "both", "both, seen in another order", "two ranks"],
)
def test_two_containers_of_a_rank_at_the_same_time_are_noticed(runs: list[Seen], found: list[str]) -> None:
    assert overlaps(runs) == found


def test_a_witness_knows_the_containers_of_a_job_by_the_hostname_of_their_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.containers.HIERARCHIES", tmp_path)
    monkeypatch.setattr("chaos.containers.group_name", lambda _: "cluster")
    container, pause = (
        tmp_path / "cluster" / "kubepods" / "besteffort" / "poduid-1" / name for name in ("trains", "waits")
    )
    child = subprocess.Popen(["sleep", "600"], env={"HOSTNAME": "demo-worker-0", "PATH": os.environ["PATH"]})
    try:
        for group, pid in ((container, child.pid), (pause, os.getpid() + 2**22)):
            group.mkdir(parents=True)
            (group / "cgroup.procs").write_text(f"{pid}\n")
        with Witness(tmp_path) as witness:
            runs = eventually(lambda: witness.runs_of(["demo"]))
            assert not witness.runs_of(["dem", "demo-worker-0"])
    finally:
        child.kill()
        child.wait()
    assert list(runs) == [Group("uid-1", "trains")]


def test_a_pod_that_had_run_and_was_deleted_by_force_is_noticed() -> None:
    def deleted(uid: str, user: str, grace: int | None = 0) -> dict[str, Any]:
        return {
            "objectRef": {"name": f"pod-{uid}"},
            "user": {"username": user},
            "requestObject": {"kind": "DeleteOptions", "gracePeriodSeconds": grace},
            "responseObject": {"kind": "Pod", "metadata": {"uid": uid}},
        }

    operator, kubelet = "system:serviceaccount:paddle-system:operator", "system:node:node-0"
    log = [
        deleted("ran", operator),
        deleted("ran", kubelet),
        deleted("ran", operator, 5),
        deleted("new", operator),
    ]
    assert forced(log, {"ran"}) == [f"pod-ran by {operator}"]
