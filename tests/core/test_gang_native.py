"""Gangs of Kubernetes itself."""

from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase, Role
from paddlejob.core.actions import Delete, Kind, PatchGroup
from paddlejob.core.pod_set import Replica
from simkube.build import job
from tests.core.gang_snapshots import (
    ALPHA,
    BETA,
    actions,
    cluster,
    created,
    pods,
)


class TestKubernetesOwn:
    def test_the_group_comes_first_and_its_pods_at_once(self):
        plan = cluster(scheduling="native", kind=ALPHA).plan()
        assert [len(stage) for stage in plan.stages] == [1, 2, 2]
        assert created(plan, ALPHA)[0]["apiVersion"] == "scheduling.k8s.io/v1alpha2"
        assert created(plan, ALPHA)[0]["spec"] == {"schedulingPolicy": {"gang": {"minCount": 4}}}

    def test_the_newer_version_knows_priorities(self):
        of = job().worker(1).spec(schedulingPolicy={"priorityClass": "high"})
        assert created(cluster(of, "native", BETA).plan(), BETA)[0]["spec"]["priorityClassName"] == "high"
        assert "priorityClassName" not in created(cluster(of, "native", ALPHA).plan(), ALPHA)[0]["spec"]

    def test_the_newer_version_is_resized(self):
        built = cluster(scheduling="native", kind=BETA).pod_group(BETA, **gang_of(3))
        [patch, *_] = actions(built.plan())
        changes = {"schedulingPolicy": {"gang": {"minCount": 4}}}
        assert patch == PatchGroup(BETA, "demo", {"uid": "uid-group"}, "spec", changes)

    def test_the_older_version_is_replaced_while_there_are_no_pods(self):
        plan = cluster(scheduling="native", kind=ALPHA).pod_group(ALPHA, **gang_of(3)).plan()
        assert actions(plan) == [Delete(ALPHA, "demo", "uid-group")]
        assert plan.status.message == "recreating PodGroup demo: minCount changed"

    def test_the_older_version_is_left_alone_while_pods_train(self):
        built = cluster(scheduling="native", kind=ALPHA).in_gang("native").pod_group(ALPHA, **gang_of(4))
        built.pods_with_addresses().config().pods_running().formed().pod_group(ALPHA, **gang_of(3))
        assert actions(built.plan()) == []

    def test_pods_of_another_size_that_have_not_trained_go_with_the_older_version(self):
        built = cluster(scheduling="native", kind=ALPHA).in_gang("native").pod_group(ALPHA, **gang_of(3))
        plan = built.pods().plan()
        assert {type(action) for action in actions(plan)} == {Delete}
        assert (plan.status.phase, plan.status.message) == (
            Phase.SCALING,
            "scheduling again: the job's pods changed",
        )

    def test_a_worker_that_has_succeeded_is_not_waited_for(self):
        built = cluster(scheduling="native", kind=BETA).in_gang("native").pods()
        built.pod_group(BETA, **gang_of(4)).succeeded("worker", 0)
        [patch] = [action for action in actions(built.plan()) if isinstance(action, PatchGroup)]
        assert patch.changes == gang_of(3)

    def test_pods_that_are_created_after_its_success_are_scheduled_alone(self):
        built = cluster(scheduling="native", kind=BETA).in_gang("native").pods().succeeded("worker", 0)
        del built.pod_group(BETA, **gang_of(4))._pods[Replica(Role.WORKER, 1)]
        [pod] = pods(built.plan())
        assert "schedulingGroup" not in pod["spec"]

    def test_pods_that_wait_for_it_in_the_older_version_are_created_again_alone(self):
        built = cluster(scheduling="native", kind=ALPHA).in_gang("native").pods()
        plan = built.pod_group(ALPHA, **gang_of(4)).succeeded("worker", 0).plan()
        deleted = [action.name for action in actions(plan) if isinstance(action, Delete)]
        assert deleted == ["demo-ps-0", "demo-ps-1", "demo-worker-1"]
        built.status(plan.status)
        built._pods.clear()
        assert actions(built.plan()) == [Delete(ALPHA, "demo", "uid-group")]
        built._pod_groups.clear()
        rendered = pods(built.plan())
        assert [pod["metadata"]["name"] for pod in rendered] == deleted
        assert not any("schedulingGroup" in pod["spec"] for pod in rendered)

    def test_a_server_that_is_created_again_alone_leaves_the_workers_alone(self):
        """Its index is not that of a worker, and no worker has trained with it."""
        of = job().ps(1).worker(2).spec(intranet="Service")
        built = cluster(of, "native", ALPHA).in_gang("native").services().pods().running("worker", 0)
        built.status(built.pod_group(ALPHA, **gang_of(4)).plan().status)
        assert (built.job.status.attempt, built.job.status.replaced_workers) == (1, "1")
        for stays in (["ps", "worker"], ["ps"], []):
            for role, index in (("ps", 0), ("worker", 1)):
                built.leaving(role, index) if role in stays else built._pods.pop(Replica(role, index), None)
            plan = built.plan()
            deleted = [action.name for action in actions(plan) if getattr(action, "kind", None) == "Pod"]
            assert (plan.status.attempt, "demo-worker-0" in deleted) == (1, False)

    def test_pods_that_were_created_again_alone_are_left_to_the_scheduler(self):
        of = job().ps(2).worker(2).spec(schedulingPolicy={})
        built = cluster(of, "native", ALPHA).pod_group(ALPHA, **gang_of(4)).pods().succeeded("worker", 0)
        assert actions(built.plan()) == []

    def test_one_that_fits_needs_nothing(self):
        built = cluster(scheduling="native", kind=BETA).pod_group(BETA, **gang_of(4))
        assert {action.kind for action in actions(built.plan())} == {Kind.POD}

    def test_a_replacement_in_a_complete_gang_is_scheduled_alone(self):
        of = job().ps(1).worker(3).spec(withGloo=0)
        built = cluster(of, "native", ALPHA).in_gang("native").pod_group(ALPHA, **gang_of(4))
        built.pods_with_addresses().config().pods_running().formed().phase(Phase.RUNNING)
        built.status(built.plan().status)
        del built._pods[next(replica for replica in built._pods if replica.role == "worker")]
        built.status(built.plan().status)
        [pod] = pods(built.plan())
        assert "schedulingGroup" not in pod["spec"]

    @pytest.mark.parametrize("condition", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
    def test_its_reasons_are_in_the_jobs_message(self, condition):
        said = {"type": condition, "status": "False", "reason": "Unschedulable", "message": "0/2 nodes fit"}
        built = cluster(scheduling="native", kind=BETA).in_gang("native").pods()
        built.pod_group(BETA, status={"conditions": [said]}, **gang_of(4))
        assert built.plan().status.message == "waiting for PodGroup demo: Unschedulable: 0/2 nodes fit"


def gang_of(count):
    return {"schedulingPolicy": {"gang": {"minCount": count}}}
