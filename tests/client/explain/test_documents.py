"""The documents name every cause, in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.blocks import blocks, matches
from paddlejob.client.explain import explain
from simkube.build import job, snapshot
from tests.client.explain import test_no_room, test_not_started, test_states
from tests.client.explain.scene import cpu, node, pending, seen, tainted, unschedulable

DOCS = Path(__file__).parents[3] / "docs"
CASES = (*test_no_room.CASES.values(), *test_not_started.CASES.values())
CAUSES = {case.cause for case in CASES} | {cause for _, cause, _ in test_states.STATES.values()}


@pytest.mark.parametrize("name", ["explain.md", "explain.zh-CN.md"])
def test_every_cause_is_documented(name):
    text = (DOCS / name).read_text()
    assert [cause for cause in sorted(CAUSES) if f"`{cause}`" not in text] == []


def test_the_languages_list_the_same_causes():
    tables = [
        [line.partition("|")[2].partition("|")[0].replace("、", ", ").split("`")[1::2] for line in rows(name)]
        for name in ("explain.md", "explain.zh-CN.md")
    ]
    assert tables[0] == tables[1]


def rows(name: str) -> list[str]:
    return [line for line in (DOCS / name).read_text().splitlines() if line.startswith("| `")]


def test_the_first_example_is_what_explain_says():
    waiting = snapshot(pending(job("resnet", "team-a").worker(3, **cpu(3))))
    waiting.pod("worker", 0, node="gpu-1").pod("worker", 1, node="gpu-2")
    waiting.pod("worker", 2, unschedulable("0/3 nodes are available: 2 Insufficient cpu."))
    used = {"cpu": "3", "pods": 1}
    evidence = seen(
        waiting,
        nodes=[node("gpu-1"), node("gpu-2"), tainted("gpu-3", key="team", value="b")],
        used={"gpu-1": used, "gpu-2": used},
    )
    _, _, shown = blocks("docs/explain.md", "console")[0].text.partition("\n")
    assert matches(shown, str(explain(evidence))), explain(evidence)
