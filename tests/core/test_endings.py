"""What becomes of pods when their job ends: the table of docs/fault-tolerance.md is what the core does."""

from __future__ import annotations

import enum
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from paddlejob.api.v1 import CleanPodPolicy, PaddleJobSpec, Phase
from paddlejob.core.actions import Delete, Kind, StopPod
from paddlejob.core.snapshot import MAX_PHASE_DELAY_SECONDS
from simkube.build import NOW, SnapshotBuilder, job, snapshot

DOCUMENT = Path(__file__).parents[2] / "docs" / "fault-tolerance.md"
ENDED, RUNNING, WAITING = "demo-worker-0", "demo-worker-1", "demo-worker-2"
PODS = {ENDED, RUNNING, WAITING}
RUNNING_STATE = {"running": {"startedAt": "2026-01-01T12:00:00Z"}}


def rows(page: Path) -> tuple[list[str], list[list[str]]]:
    """Return the policies, and what becomes of pods, as a page has it."""
    lines = [line.strip("| ").split("|") for line in page.read_text("utf-8").splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line] for line in lines]
    first = next(number for number, row in enumerate(cells) if any("`OnCompletion`" in cell for cell in row))
    policies = [cell.split("`")[1] for cell in cells[first][1:]]
    return policies, [row[1:] for row in cells[first + 2 : first + 4]]


class Ending(enum.Enum):
    """How a job ends, and its phase."""

    SUCCESS = Phase.COMPLETED
    FAILURE = Phase.FAILED
    DEADLINE = "a deadline"

    @property
    def phase(self) -> Phase:
        return Phase.COMPLETED if self is Ending.SUCCESS else Phase.FAILED


def documented(ending: Ending, policy: str) -> str:
    """Return what becomes of the pods, as the page has it."""
    policies, (completed, failed) = rows(DOCUMENT)
    row = completed if ending.phase is Phase.COMPLETED else failed
    return dict(zip(policies, row, strict=True))[policy]


def about_to_end(ending: Ending, policy: str) -> SnapshotBuilder:
    """Return a job in its last moment, with a pod of each kind."""
    of = job().worker(3).spec(cleanPodPolicy=policy, activeDeadlineSeconds=60)
    of = of.spec(successPolicy="Worker0") if ending is Ending.SUCCESS else of
    built = snapshot(of).phase(Phase.RUNNING, active_since=NOW, start_time=NOW)
    built = built.later(61 if ending is Ending.DEADLINE else 30)
    built.running("worker", 1).waiting("worker", 2)
    return built.succeeded("worker", 0) if ending is Ending.SUCCESS else built.failed("worker", 0)


def deleted(built: SnapshotBuilder) -> set[str]:
    actions = [action for stage in built.plan().stages for action in stage]
    return {action.name for action in actions if isinstance(action, Delete) and action.kind is Kind.POD}


def stopped(built: SnapshotBuilder) -> set[str]:
    return {action.name for stage in built.plan().stages for action in stage if isinstance(action, StopPod)}


FATES = {
    "deleted": (PODS, set()),
    "stopped and kept": (set(), {RUNNING, WAITING}),
    "kept": (set(), {WAITING}),
}
"""The pods that are deleted, and those that are stopped, by the words of the table."""


@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("policy", CleanPodPolicy)
def test_pods_are_kept_stopped_and_deleted_as_documented(ending, policy):
    expected = FATES[documented(ending, policy)]
    built = about_to_end(ending, policy)
    assert (deleted(built), stopped(built)) == expected
    ended = built.status(built.plan().status)
    assert ended.job.status.phase is ending.phase
    assert (deleted(ended.later(3600)), stopped(ended)) == expected, "an operator that crashed repeats it"


def test_the_chinese_page_has_the_same_table():
    words = {"保留": "kept", "删除": "deleted", "停止并保留": "stopped and kept"}
    policies, table = rows(DOCUMENT.with_name("fault-tolerance.zh-CN.md"))
    assert (policies, [[words[fate] for fate in row] for row in table]) == rows(DOCUMENT)


@pytest.mark.parametrize(("own", "is_patched"), [(None, True), (3600, True), (1, False)])
def test_a_pod_is_stopped_once(own, is_patched):
    built = about_to_end(Ending.FAILURE, "Never")
    for manifest in built._pods.values():
        manifest["spec"]["activeDeadlineSeconds"] = own
    assert stopped(built) == ({RUNNING, WAITING} if is_patched else set())
    for manifest in built._pods.values():
        manifest["spec"]["activeDeadlineSeconds"] = 1
    assert stopped(built.status(built.plan().status)) == set()


def test_a_pod_without_a_node_is_marked_if_it_has_not_changed():
    built = about_to_end(Ending.FAILURE, "Never").pod("worker", 2, node="")
    stops = [action for action in built.plan().stages[0] if isinstance(action, StopPod)]
    assert {stop.name: stop.version_without_node for stop in stops} == {RUNNING: "", WAITING: "10"}
    built.pod("worker", 2, {"phase": "Failed", "reason": "JobEnded"}, node="")
    assert stopped(built) == {RUNNING}


def test_a_stopped_pod_changes_neither_verdict_nor_failure():
    built = about_to_end(Ending.FAILURE, "Never")
    ended = built.status(built.plan().status).job.status
    assert (ended.worker.running, ended.worker.failed) == (1, 1)
    for index in (1, 2):
        built.failed("worker", index, code=143)
        built._pods[built.replicas()[index]]["status"]["reason"] = "DeadlineExceeded"
    plan = built.later(10).plan()
    assert plan.stages == ()
    assert (plan.status.reason, plan.status.last_failure) == (ended.reason, ended.last_failure)
    assert (plan.status.worker.running, plan.status.worker.failed, plan.status.worker.replicas) == (0, 1, 3)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_has_ended_before_its_phase_follows(phase):
    built = about_to_end(Ending.FAILURE, "OnCompletion")
    built.unsettled("worker", 1, phase=phase, seconds_ago=MAX_PHASE_DELAY_SECONDS)
    assert stopped(built) == {WAITING}


def test_a_pod_that_a_sidecar_keeps_alive_is_stopped():
    built = about_to_end(Ending.FAILURE, "OnCompletion")
    terminated = {"terminated": {"exitCode": 1, "reason": "Error"}}
    containers = [{"name": "paddle", "state": terminated}, {"name": "proxy", "state": RUNNING_STATE}]
    built.pod("worker", 0, {"phase": "Running", "podIP": "10.0.1.1", "containerStatuses": containers})
    assert built.plan().status.phase is Phase.FAILED
    assert stopped(built) == PODS


def test_a_sidecar_that_runs_does_not_make_a_training_container_started():
    built = about_to_end(Ending.SUCCESS, "Never")
    waiting = {"waiting": {"reason": "CreateContainerConfigError"}}
    containers = [{"name": "paddle", "state": waiting}, {"name": "proxy", "state": RUNNING_STATE}]
    built.pod("worker", 2, {"phase": "Pending", "podIP": "10.0.1.3", "containerStatuses": containers})
    assert stopped(built) == {WAITING}


def test_a_pod_that_is_being_deleted_is_not_stopped():
    assert stopped(about_to_end(Ending.FAILURE, "Never").leaving("worker", 1)) == {WAITING}


def scaled_down() -> SnapshotBuilder:
    """Return a job that is done, with two workers more than it was scaled down to: one of them runs."""
    done = snapshot(job().worker(1).spec(cleanPodPolicy="Never")).succeeded("worker", 0)
    return done.running("worker", 1).succeeded("worker", 2)


def test_a_running_worker_in_excess_is_stopped():
    built = scaled_down()
    assert (built.plan().status.phase, stopped(built)) == (Phase.COMPLETED, {RUNNING})
    assert stopped(built.status(built.plan().status)) == {RUNNING}, "it was refused"
    assert deleted(built) == set()


UNKNOWN_SIZES = {
    "cannot be read": {"spec": PaddleJobSpec(), "undecodable": "spec is an array"},
    "is invalid": {"spec": job().worker(-1).spec(cleanPodPolicy="Never").build().spec},
}


@pytest.mark.parametrize("edit", UNKNOWN_SIZES.values(), ids=UNKNOWN_SIZES)
def test_no_pod_is_in_excess_of_a_size_that(edit):
    built = scaled_down()
    built.job = msgspec.structs.replace(built.job, status=built.plan().status, **edit)
    assert stopped(built) == set()


@pytest.mark.parametrize("behind_seconds", [0, 2, 600])
@pytest.mark.parametrize("ending", [Ending.SUCCESS, Ending.FAILURE])
def test_no_pod_of_the_job_itself_counts_as_late_when_the_operators_clock_is_behind(ending, behind_seconds):
    built = about_to_end(ending, "Never")
    for manifest in built._pods.values():
        created = built.now + timedelta(seconds=behind_seconds)
        manifest["metadata"]["creationTimestamp"] = created.isoformat()
    built.status(built.plan().status)
    built.running("worker", 1).failed("worker", 2)
    for manifest in built._pods.values():
        manifest["spec"]["activeDeadlineSeconds"] = 1
    assert deleted(built) == set()


def test_a_pod_that_came_after_the_end_is_deleted_even_if_it_runs():
    built = about_to_end(Ending.SUCCESS, "Never")
    built.status(built.plan().status)
    late = (built.now + timedelta(seconds=1)).isoformat()
    built.running("worker", 2)._pods[built.replicas()[2]]["metadata"]["creationTimestamp"] = late
    assert deleted(built) == {"demo-worker-2"}
