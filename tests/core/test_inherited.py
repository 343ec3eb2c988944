from __future__ import annotations

import pytest

from paddlejob.api import names
from paddlejob.api.v1 import Phase
from paddlejob.core.actions import Delete, RemoveFinalizer
from simkube.build import SnapshotBuilder, job, snapshot

FINALIZER = "finalizers.paddlepaddle.org"
OLD_CONFIG = {"PADDLE_PORT": "41234", "PADDLE_TRAINERS_NUM": "2"}
PS_JOB = job().ps(1).worker(2).spec(withGloo=0)
"""Its workers are replaced one by one, were they all ours."""


def inherited(built: SnapshotBuilder) -> SnapshotBuilder:
    """Make the pods what an earlier operator left: without the label that ours have."""
    for pod in built._pods.values():
        del pod["metadata"]["labels"][names.LABEL_ATTEMPT]
    return built


def deleted(built: SnapshotBuilder) -> set[str]:
    return {action.name for stage in built.plan().stages for action in stage if isinstance(action, Delete)}


class TestPodsOfAnEarlierOperator:
    @pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
    def test_that_run_are_left_alone_with_their_addresses(self, intranet):
        of = job().ps(1).worker(2).spec(intranet=intranet)
        plan = inherited(snapshot(of).pods_running().config(OLD_CONFIG)).plan()
        assert plan.stages == ()
        assert (plan.status.phase, plan.status.ps.ready, plan.status.attempt) == (Phase.RUNNING, "1/1", 0)

    def test_that_have_done_their_work_make_the_job_complete(self):
        ended = inherited(snapshot(PS_JOB).pods_running().succeeded("worker", 0).succeeded("worker", 1))
        assert ended.plan().status.phase is Phase.COMPLETED
        assert deleted(ended) == {"demo-ps-0", "demo-worker-0", "demo-worker-1"}

    def test_that_had_not_all_started_are_made_anew(self):
        plan = inherited(snapshot(PS_JOB).pods_with_addresses()).plan()
        assert (plan.status.phase, plan.status.attempt, plan.status.base_attempt) == (Phase.RESTARTING, 1, 1)
        assert plan.status.message == "recreating all pods: an earlier operator had not started all of them"

    def test_of_which_some_were_never_made_are_made_anew(self):
        assert deleted(inherited(snapshot(PS_JOB).running("ps", 0).running("worker", 0))) == {
            "demo-ps-0",
            "demo-worker-0",
        }

    @pytest.mark.parametrize(
        "broken",
        [
            pytest.param(snapshot(PS_JOB).pods_running().failed("worker", 1, code=137), id="after a kill"),
            pytest.param(snapshot(PS_JOB).running("ps", 0).running("worker", 0), id="after a loss"),
        ],
    )
    def test_never_meet_new_ones(self, broken):
        status = inherited(broken.config(OLD_CONFIG).formed()).plan().status
        assert (status.base_attempt, status.attempt, status.reason) == (1, 1, "Restarting")

    def test_of_another_size_are_all_made_anew(self):
        running = snapshot(PS_JOB).pods_running().config(OLD_CONFIG).formed(worker=1)
        assert inherited(running).plan().status.base_attempt == 1


class TestTheFinalizerOfAnEarlierOperator:
    @pytest.mark.parametrize(
        "of",
        [
            pytest.param(job().worker(1), id="of a new job"),
            pytest.param(job().worker(1).status(phase="Completed"), id="of a finished job"),
            pytest.param(job().worker(0), id="of a job that is refused"),
            pytest.param(
                job().worker(1).metadata(deletionTimestamp="2026-01-01T12:00:00Z"), id="of a deleted job"
            ),
        ],
    )
    def test_goes_first_and_at_once(self, of):
        plan = snapshot(of.metadata(finalizers=[FINALIZER, "of/others"])).plan()
        assert plan.stages[0] == (RemoveFinalizer(FINALIZER),)

    def test_stays_on_a_job_that_is_managed_by_another(self):
        of = job().worker(1).spec(managedBy="another/operator").metadata(finalizers=[FINALIZER])
        assert snapshot(of).plan().stages == ()
