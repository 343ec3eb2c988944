"""What becomes of pods when their job ends: the table of docs/fault-tolerance.md is what the core does."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path

import msgspec
import pytest

from paddlejob.api.v1 import CleanPodPolicy, PaddleJobSpec, Phase
from paddlejob.core.actions import Delete, Kind
from paddlejob.core.policy.cleanup import Ending, PodProgress
from paddlejob.core.snapshot import MAX_PHASE_DELAY_SECONDS
from paddlejob.testing.build import NOW, SnapshotBuilder, job, snapshot

DOCUMENT = Path(__file__).parents[2] / "docs" / "fault-tolerance.md"
PODS = {
    "demo-worker-0": PodProgress.ENDED,
    "demo-worker-1": PodProgress.RUNNING,
    "demo-worker-2": PodProgress.NOT_STARTED,
}
RUNNING_STATE = {"running": {"startedAt": "2026-01-01T12:00:00Z"}}


def rows(page: Path) -> tuple[list[str], list[list[str]]]:
    """Return the policies, and what becomes of pods, as a page has it."""
    lines = [line.strip("| ").split("|") for line in page.read_text("utf-8").splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line] for line in lines]
    first = next(number for number, row in enumerate(cells) if any("`OnCompletion`" in cell for cell in row))
    policies = [cell.split("`")[1] for cell in cells[first][2:]]
    return policies, cells[first + 2 : first + 2 + len(Ending) * len(PodProgress)]


def documented() -> dict[tuple[str, str, str], str]:
    """Return the fate of each pod, by ending, progress and policy, as the page has it."""
    policies, table = rows(DOCUMENT)
    return {
        (ending, progress, policy): fate
        for ending, progress, *fates in table
        for policy, fate in zip(policies, fates, strict=True)
    }


def about_to_end(ending: Ending, policy: str) -> SnapshotBuilder:
    """Return a job in its last moment, with a pod of each kind."""
    of = job().worker(3).spec(cleanPodPolicy=policy, activeDeadlineSeconds=60)
    of = of.spec(successPolicy="Worker0") if ending is Ending.COMPLETED else of
    built = snapshot(of).phase(Phase.RUNNING, active_since=NOW, start_time=NOW)
    built = built.later(61 if ending is Ending.DEADLINE_EXCEEDED else 30)
    built.running("worker", 1).waiting("worker", 2)
    return built.succeeded("worker", 0) if ending is Ending.COMPLETED else built.failed("worker", 0)


def deleted(built: SnapshotBuilder) -> set[str]:
    actions = [action for stage in built.plan().stages for action in stage]
    return {action.name for action in actions if isinstance(action, Delete) and action.kind is Kind.POD}


@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("policy", CleanPodPolicy)
def test_pods_are_kept_and_deleted_as_documented(ending, policy):
    table = documented()
    assert len(table) == len(list(product(Ending, PodProgress, CleanPodPolicy)))
    expected = {
        name for name, progress in PODS.items() if table[ending.value, progress.value, policy] == "deleted"
    }
    assert set(table.values()) == {"kept", "deleted"}
    built = about_to_end(ending, policy)
    assert deleted(built) == expected
    ended = built.status(built.plan().status)
    assert ended.job.status.phase.is_terminal
    assert deleted(ended.later(3600)) == expected


def test_the_chinese_page_has_the_same_table():
    words = {"保留": "kept", "删除": "deleted"}
    policies, table = rows(DOCUMENT.with_name("fault-tolerance.zh-CN.md"))
    translated = [[words[fate] for fate in fates] for _, _, *fates in table]
    assert (policies, translated) == (rows(DOCUMENT)[0], [fates for _, _, *fates in rows(DOCUMENT)[1]])


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize("policy", CleanPodPolicy)
def test_a_pod_has_ended_before_its_phase_follows(policy, phase):
    built = about_to_end(Ending.FAILED, policy)
    at_the_end = deleted(built)
    built.unsettled("worker", 1, phase=phase, seconds_ago=MAX_PHASE_DELAY_SECONDS)
    assert deleted(built) == at_the_end - (
        {"demo-worker-1"} if policy == CleanPodPolicy.ON_COMPLETION else set()
    )


def test_a_pod_that_a_sidecar_keeps_alive_has_not_ended():
    built = about_to_end(Ending.FAILED, "OnCompletion")
    terminated = {"terminated": {"exitCode": 1, "reason": "Error"}}
    containers = [{"name": "paddle", "state": terminated}, {"name": "proxy", "state": RUNNING_STATE}]
    built.pod("worker", 0, {"phase": "Running", "podIP": "10.0.1.1", "containerStatuses": containers})
    assert built.plan().status.phase is Phase.FAILED
    assert "demo-worker-0" in deleted(built)


def test_a_sidecar_that_runs_does_not_make_a_training_container_started():
    built = about_to_end(Ending.FAILED, "Never")
    waiting = {"waiting": {"reason": "CreateContainerConfigError"}}
    containers = [{"name": "paddle", "state": waiting}, {"name": "proxy", "state": RUNNING_STATE}]
    built.pod("worker", 2, {"phase": "Pending", "podIP": "10.0.1.3", "containerStatuses": containers})
    assert deleted(built) == {"demo-worker-2"}


def scaled_down() -> SnapshotBuilder:
    """Return a job that is done, with two workers more than it was scaled down to: one of them runs."""
    done = snapshot(job().worker(1).spec(cleanPodPolicy="Never")).succeeded("worker", 0)
    return done.running("worker", 1).succeeded("worker", 2)


def test_a_worker_in_excess_that_runs_is_stopped_whatever_the_policy():
    built = scaled_down()
    assert (built.plan().status.phase, deleted(built)) == (Phase.COMPLETED, {"demo-worker-1"})
    assert deleted(built.status(built.plan().status)) == {"demo-worker-1"}, "its deletion was refused"


UNKNOWN_SIZES = {
    "cannot be read": {"spec": PaddleJobSpec(), "undecodable": "spec is an array"},
    "is invalid": {"spec": job().worker(-1).spec(cleanPodPolicy="Never").build().spec},
}


@pytest.mark.parametrize("edit", UNKNOWN_SIZES.values(), ids=UNKNOWN_SIZES)
def test_no_pod_is_in_excess_of_a_size_that(edit):
    built = scaled_down()
    built.job = msgspec.structs.replace(built.job, status=built.plan().status, **edit)
    assert deleted(built) == set()


@pytest.mark.parametrize("behind_seconds", [0, 2, 600])
@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.FAILED])
def test_no_pod_of_the_job_itself_counts_as_late_when_the_operators_clock_is_behind(ending, behind_seconds):
    built = about_to_end(ending, "Never")
    for manifest in built._pods.values():
        created = built.now + timedelta(seconds=behind_seconds)
        manifest["metadata"]["creationTimestamp"] = created.isoformat()
    built.status(built.plan().status)
    assert deleted(built) == {"demo-worker-2"}
    assert deleted(built.gone("worker", 2)) == set()


def test_a_pod_that_came_after_the_end_is_deleted_even_if_it_runs():
    built = about_to_end(Ending.COMPLETED, "Never")
    built.status(built.plan().status)
    late = (built.now + timedelta(seconds=1)).isoformat()
    built.running("worker", 2)._pods[built.replicas()[2]]["metadata"]["creationTimestamp"] = late
    assert deleted(built) == {"demo-worker-2"}
