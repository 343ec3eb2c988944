"""Jobs whose spec became invalid while they ran: nothing is created, and what runs is judged all the same."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase
from paddlejob.api.validation import validate
from paddlejob.core.actions import Create, ReplaceConfig, StopPod
from paddlejob.core.gang.choose import relevant_systems
from paddlejob.core.snapshot import Scheduling
from simkube.build import NOW, JobBuilder, SnapshotBuilder, job, snapshot

BAD_PORT = [{"containerPort": "http"}]
JUNK: list[Any] = [None, 0, -1, 10**9, 3.5, True, "", "x", [], [None], ["x"], {}, {"spec": "x"}, [{}]]


def ps_job(**spec: Any) -> JobBuilder:
    return job().ps(1).worker(2).spec(**spec)


def edited(built: SnapshotBuilder, into: JobBuilder) -> SnapshotBuilder:
    """Let the spec of a job with pods become another."""
    metadata = msgspec.structs.replace(built.job.metadata, generation=2)
    built.job = msgspec.structs.replace(built.job, spec=into.build().spec, metadata=metadata)
    return built


def unreadable(built: SnapshotBuilder) -> SnapshotBuilder:
    """Let the stored spec no longer fit its types."""
    reason = "Expected `int`, got `str` - at `$.spec.worker.replicas`"
    built.job = PaddleJob(built.job.metadata, status=built.job.status, undecodable=reason)
    return built


def running(of: JobBuilder | None = None, **status: Any) -> SnapshotBuilder:
    """Return a job that had started before its spec was touched."""
    status = {"observed_generation": 1, "reason": "PodsRunning", **status}
    return snapshot(of or ps_job()).pods_running().config({}).formed().phase(Phase.RUNNING, **status)


def done(built: SnapshotBuilder) -> SnapshotBuilder:
    return built.succeeded("worker", 0).succeeded("worker", 1)


def stages(built: SnapshotBuilder) -> list[str]:
    return [f"{type(each).__name__} {each.name}" for stage in built.plan().stages for each in stage]


EDITS = {
    "a port that is text": ps_job().worker(2, ports=BAD_PORT),
    "a network that nobody knows": ps_job(intranet="Mesh"),
    "the network of the node": ps_job().worker(2, pod={"hostNetwork": True}),
    "no workers": job().ps(1),
    "no servers, and heter": job().worker(2).heter(1),
    "a template that is text": ps_job(worker={"replicas": 2, "template": {"spec": "x"}}),
    "containers that are text": ps_job(worker={"replicas": 2, "template": {"spec": {"containers": "x"}}}),
    "more workers than there may be": ps_job().worker(10**9),
    "fewer than none": ps_job().worker(-1),
    "whose success counts": ps_job(successPolicy="worker0"),
    "rules about failures": ps_job(backoffLimit=-1),
    "a limit in time": ps_job(activeDeadlineSeconds=0, startupDeadlineSeconds=-1),
}


def test_any_number_of_workers_is_planned_for_a_deleted_or_finished_job():
    oversized = job().ps(1).worker(10**9)
    deleted = snapshot(oversized.metadata(deletionTimestamp="2026-01-01T00:00:00Z")).plan()
    assert deleted.status.phase is Phase.TERMINATING
    finished = snapshot(job().ps(1).worker(10**9).status(phase="Completed")).plan()
    assert finished.status.phase is Phase.COMPLETED


class TestSuccess:
    @pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
    def test_completes_a_job_whatever_is_wrong_with_its_spec(self, edit):
        built = edited(done(running()), edit)
        assert validate(built.job)
        status = built.plan().status
        assert (status.phase, status.message) == (Phase.COMPLETED, "all 2 workers succeeded")
        assert (status.ps.ready, status.worker.succeeded) == ("1/1", 2)

    def test_releases_the_servers(self):
        built = edited(done(running()), EDITS["a port that is text"])
        assert stages(built) == ["Delete demo-ps-0", "Delete demo-worker-0", "Delete demo-worker-1"]

    def test_of_a_job_that_never_told_how_it_was_formed_is_counted_as_written(self):
        built = done(snapshot(ps_job(intranet="Mesh")).pods_running())
        assert built.plan().status.phase is Phase.COMPLETED

    def test_is_not_that_of_fewer_workers_than_were_formed(self):
        built = edited(running().succeeded("worker", 0), job().ps(1).worker(1, ports=BAD_PORT))
        assert built.plan().status.phase is Phase.RUNNING

    def test_completes_a_job_whose_spec_cannot_be_read_and_leaves_its_pods(self):
        built = unreadable(done(running()))
        assert built.plan().status.phase is Phase.COMPLETED
        assert (built.plan().status.mode, stages(built)) == ("PS", [])

    def test_of_which_nothing_is_known_is_none(self):
        built = unreadable(done(snapshot(ps_job()).pods_running()))
        assert built.plan().status.phase is Phase.PENDING


class TestFailure:
    BAD = EDITS["a port that is text"]

    def test_that_is_permanent_ends_the_job(self):
        status = edited(running().failed("worker", 1, code=3), self.BAD).plan().status
        assert (status.phase, status.reason) == (Phase.FAILED, "PodFailed")
        assert status.message == "worker-1 exited with code 3"

    def test_beyond_the_budget_ends_the_job(self):
        built = edited(running(restarts=3).failed("worker", 1, code=137), self.BAD)
        assert built.plan().status.reason == "BackoffLimitExceeded"

    def test_that_is_worth_a_restart_waits_for_the_correction(self):
        built = edited(running().failed("worker", 1, code=137), self.BAD)
        plan = built.plan()
        assert (plan.stages, plan.status.attempt, plan.status.reason) == ((), 0, "InvalidSpec")
        assert plan.status.message.startswith(
            "worker-1 exited with code 137; "
            "no pod is created or replaced until this is corrected: "
            "spec.worker.template.spec.containers[0].ports[0].containerPort: Invalid value"
        )

    RULES = {
        "a broken budget": ps_job(backoffLimit=-1),
        "broken rules": ps_job(restartPolicy={"retryableExitCodes": [3], "permanentExitCodes": [3]}),
    }

    @pytest.mark.parametrize("edit", RULES.values(), ids=RULES.keys())
    def test_is_not_judged_by_rules_that_are_wrong(self, edit):
        status = edited(running(restarts=9).failed("worker", 1, code=3), edit).plan().status
        assert (status.phase.is_terminal, status.reason) == (False, "InvalidSpec")
        assert status.message.startswith("worker-1 exited with code 3; ")

    def test_is_not_judged_by_rules_that_cannot_be_read(self):
        status = unreadable(running().failed("worker", 1, code=3)).plan().status
        assert (status.phase.is_terminal, status.reason) == (False, "InvalidSpec")

    def test_of_a_server_is_looked_at_again(self):
        built = edited(running().succeeded("ps", 0, seconds_ago=10), self.BAD)
        assert built.plan().requeue_after_seconds == 20


class TestTime:
    def test_that_is_up_ends_the_job(self):
        of = ps_job(activeDeadlineSeconds=100).worker(2, ports=BAD_PORT)
        built = edited(running(), of)
        built.status(built.plan().status)
        assert built.later(40).plan().requeue_after_seconds == 60
        assert built.later(60).plan().status.reason == "DeadlineExceeded"

    def test_to_start_in_counts_from_the_resumption(self):
        of = ps_job(startupDeadlineSeconds=100).worker(2, ports=BAD_PORT)
        of.metadata(creationTimestamp="2026-01-01T00:00:00Z")
        built = snapshot(of).phase(Phase.SUSPENDED)
        built.status(built.plan().status)
        assert built.later(60).plan().requeue_after_seconds == 40
        assert built.later(40).plan().status.reason == "StartupDeadlineExceeded"


class TestMeanwhile:
    def test_a_running_job_runs_and_says_what_bars_new_pods(self):
        plan = edited(running(), ps_job(intranet="Mesh")).plan()
        assert (plan.stages, plan.status.phase, plan.status.reason) == ((), Phase.RUNNING, "InvalidSpec")
        assert plan.status.message == (
            "1 ps and 2 workers running; no pod is created or replaced until this is corrected: "
            'spec.intranet: Unsupported value: "Mesh": supported values: "PodIP", "Service", "Host"'
        )

    def test_it_is_told_once_and_not_with_every_count(self):
        built = edited(running(), ps_job(intranet="Mesh"))
        plan = built.plan()
        assert [(event.type, event.reason) for event in plan.events] == [("Warning", "InvalidSpec")]
        later = built.status(plan.status).succeeded("worker", 0).plan()
        assert later.status.message.startswith("1 worker done, ")
        assert later.events == ()

    def test_another_mistake_is_told_again(self):
        built = edited(running(), ps_job(intranet="Mesh"))
        built.status(built.plan().status)
        again = edited(built, ps_job(withGloo=7))
        again.job = msgspec.structs.replace(
            again.job, metadata=msgspec.structs.replace(again.job.metadata, generation=3)
        )
        assert [event.reason for event in again.plan().events] == ["InvalidSpec"]

    def test_a_lost_pod_is_not_replaced(self):
        built = edited(running(), ps_job(intranet="Mesh"))
        built._pods.popitem()
        plan = built.plan()
        assert (plan.stages, plan.status.attempt) == ((), 0)

    def test_pods_of_the_last_attempt_go(self):
        built = edited(running(attempt=1, base_attempt=1), ps_job(intranet="Mesh"))
        for pod in built._pods.values():
            pod["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] = "0"
        assert len(stages(built)) == 3

    def test_a_pod_that_does_not_go_is_removed_by_force(self):
        built = edited(running(), ps_job(intranet="Mesh")).leaving("worker", 0).later(600)
        assert stages(built) == ["Delete demo-worker-0"]

    def test_suspension_takes_the_pods_away_and_says_what_will_bar_the_return(self):
        built = edited(running(), ps_job(intranet="Mesh", suspend=True))
        plan = built.plan()
        assert (plan.status.phase, len(plan.stages[0])) == (Phase.SUSPENDED, 3)
        assert plan.status.message.startswith("suspended; set spec.suspend to false to resume, when this is")
        assert 'spec.intranet: Unsupported value: "Mesh"' in plan.status.message

    def test_a_suspended_job_that_cannot_be_read_stays_suspended(self):
        built = snapshot(ps_job(suspend=True))
        built.status(built.plan().status)
        status = unreadable(built).plan().status
        assert (status.phase, status.attempt, status.reason) == (Phase.SUSPENDED, 1, "InvalidSpec")
        assert status.resume_time is None

    def test_a_corrected_spec_goes_on_where_the_job_was(self):
        built = edited(running(), ps_job(intranet="Mesh"))
        built.status(built.plan().status)
        status = edited(built, ps_job()).plan().status
        assert (status.phase, status.reason, status.attempt) == (Phase.RUNNING, "PodsRunning", 0)


class TestTheEnd:
    @pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED])
    def test_of_a_job_that_cannot_be_read_stays_with_its_pods(self, phase):
        built = unreadable(running(reason="Ended", message="as it was").phase(phase))
        plan = built.plan()
        assert (plan.status, plan.events) == (built.job.status, ())
        kinds = {type(action) for stage in plan.stages for action in stage}
        assert kinds == ({StopPod} if phase is Phase.FAILED else set())


def test_no_spec_makes_a_decision_fail_or_creates_a_pod_of_a_refused_one():
    randomness = random.Random(5)
    verdicts = Counter(_decided(randomness) for _ in range(3000))
    assert min(verdicts.values()) > 50
    assert len(verdicts) == 4


def _decided(randomness: random.Random) -> tuple[str, bool]:
    """Return how a job with a mutated spec fared, and whether it was refused."""
    built = running() if randomness.random() < 0.5 else snapshot(ps_job()).pods_running()
    built = done(built) if randomness.random() < 0.5 else built
    status, metadata = built.job.status, built.job.metadata
    try:
        spec = _mutated(ps_job(successPolicy="Worker0", backoffLimit=2).manifest["spec"], randomness)
        built.job = msgspec.convert({"metadata": {"name": "demo"}, "spec": spec}, PaddleJob)
        built.job = msgspec.structs.replace(built.job, metadata=metadata, status=status)
    except msgspec.ValidationError as error:
        built.job = PaddleJob(metadata, status=status, undecodable=str(error))
    relevant_systems(built.job, Scheduling.AS_WRITTEN)
    plan, is_refused = built.plan(), bool(validate(built.job))
    creates = [each for stage in plan.stages for each in stage if isinstance(each, Create | ReplaceConfig)]
    assert not (is_refused and creates)
    assert isinstance(plan.status, PaddleJobStatus)
    return ("ended" if plan.status.phase.is_terminal else "live"), is_refused


def _mutated(value: Any, randomness: random.Random) -> Any:
    """Replace parts of a value by junk, each with a small chance."""
    if randomness.random() < 0.04:
        return randomness.choice(JUNK)
    if isinstance(value, dict):
        return {key: _mutated(each, randomness) for key, each in value.items() if randomness.random() > 0.02}
    return [_mutated(each, randomness) for each in value] if isinstance(value, list) else value


def test_a_job_that_ran_on_the_network_of_its_nodes_is_still_restarted():
    """The operator that accepted it did not refuse hostNetwork."""
    of = EDITS["the network of the node"]
    status = running(of, start_time=NOW).failed("worker", 1, code=137).plan().status
    assert (status.phase, status.reason) == (Phase.RESTARTING, "Restarting")
    assert running(of).failed("worker", 1, code=137).plan().status.reason == "InvalidSpec"
