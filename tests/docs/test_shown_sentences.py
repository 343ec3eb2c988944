"""Sentences that pages show are those that a job says."""

from __future__ import annotations

from docs.blocks import blocks
from paddlejob.api.training import Goodput
from paddlejob.training import goodput
from simkube.build import job, snapshot
from tests.core.test_elastic import elastic_job
from tests.core.test_network import IPV6, RUNNING, named


def shown(page: str) -> list[str]:
    """Return what a page shows, each on one line."""
    return [" ".join(block.text.split()) for block in blocks(page, "text")]


def test_what_a_job_says_of_pods_without_an_ipv4_address():
    [note] = shown("docs/ipv6.md")
    assert named(job().ps(1).worker(1), "Running", RUNNING, IPV6).plan().status.message.endswith(f"; {note}")


def test_where_the_time_of_a_job_went():
    spent = Goodput(
        training_seconds=3 * 3600 + 12 * 60,
        repeating_seconds=14 * 60,
        starting_seconds=6 * 60,
        queued_seconds=2 * 60,
    )
    assert f"Time: {goodput.in_words(spent)}" in shown("docs/progress.md")


def test_what_a_job_says_that_has_room_for_some_of_its_workers():
    lacking = "0/2 nodes are available: 2 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": lacking}
    full = snapshot(elastic_job(4).metadata(creationTimestamp="2026-01-01T12:00:00Z")).later(60)
    for index in range(4):
        if index < 2:
            full.waiting("worker", index)
        else:
            full.pod("worker", index, {"phase": "Pending", "conditions": [condition]})
    said = full.plan().status
    assert shown("docs/elastic.md")[0].startswith(f"{said.phase} {said.reason} {said.message} Running ")
