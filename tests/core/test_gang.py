"""A gang's PodGroup comes before its pods, follows the job, and goes with it."""

from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.actions import Delete, Kind, PatchGroup
from simkube.build import NOW, job, snapshot
from tests.core.gang_snapshots import (
    BETA,
    CPU,
    DOCUMENTED,
    PLAIN,
    VOLCANO,
    actions,
    at,
    cluster,
    created,
    pods,
    spec_of,
)


class TestTheOperatorsGroup:
    def test_it_comes_first_and_the_pods_wait(self):
        plan = cluster().plan()
        assert [(action.kind, action.name) for action in actions(plan)] == [(VOLCANO, "demo")]
        assert plan.status.phase is Phase.PENDING
        assert (plan.status.reason, plan.status.message) == (
            "WaitingForGang",
            "waiting for PodGroup demo: just created",
        )

    def test_it_is_owned_by_the_job_and_asks_for_all_of_it(self):
        [manifest] = created(cluster().plan())
        assert manifest["apiVersion"] == "scheduling.volcano.sh/v1beta1"
        assert manifest["kind"] == "PodGroup"
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-demo"
        assert manifest["metadata"]["ownerReferences"][0]["controller"] is True
        assert manifest["spec"] == {"minMember": 4, "minResources": {"cpu": "4", "memory": "4Gi"}}

    def test_the_policy_is_in_it(self):
        policy = {"queue": "research", "priorityClass": "high", "minResources": {"cpu": 3}, "minAvailable": 3}
        of = job().worker(4, **CPU).spec(schedulingPolicy=policy)
        assert created(cluster(of, "").plan())[0]["spec"] == {
            "minMember": 3,
            "minResources": {"cpu": 3},
            "queue": "research",
            "priorityClassName": "high",
        }

    @pytest.mark.parametrize("phase", ["Inqueue", "Running"])
    def test_pods_come_when_it_is_queued(self, phase):
        built = cluster().pod_group(status={"phase": phase}, **spec_of(PLAIN))
        assert len(pods(built.plan())) == 4

    @pytest.mark.parametrize("phase", ["", "Pending", "Unknown", "Completed"])
    def test_pods_wait_in_any_other_phase(self, phase):
        built = cluster().pod_group(status={"phase": phase}, **spec_of(PLAIN))
        assert actions(built.plan()) == []

    def test_it_is_recreated_when_somebody_deletes_it_and_the_job_runs_on(self):
        built = cluster().in_gang("volcano").pods_with_addresses().config().pods_running()
        plan = built.plan()
        assert [action.kind for action in actions(plan)] == [VOLCANO]
        assert plan.status.phase is Phase.RUNNING


class TestWhatPodsCarry:
    def annotations(self, of, **policy):
        built = cluster(of).pod_group(status={"phase": "Inqueue"}, minMember=4)
        return {pod["metadata"]["name"]: pod for pod in pods(built.plan())}

    def test_every_pod_goes_to_volcano_though_only_the_worker_says_so(self):
        built = cluster(DOCUMENTED, "").pod_group(owner="", status={"phase": "Inqueue"}, minMember=4)
        rendered = pods(built.plan())
        assert [pod["spec"]["schedulerName"] for pod in rendered] == ["volcano"] * 4

    def test_volcano_finds_its_group_its_task_and_its_queue(self):
        of = job().ps(1).worker(1).spec(schedulingPolicy={"queue": "research"})
        pod = self.annotations(of)["demo-ps-0"]
        ours = {"paddle-resource": "ps", "batch.paddlepaddle.org/gang": "volcano"}
        assert pod["metadata"]["annotations"] == {
            **ours,
            "scheduling.k8s.io/group-name": "demo",
            "volcano.sh/task-spec": "ps",
            "volcano.sh/job-name": "demo",
            "volcano.sh/job-version": "0",
            "volcano.sh/queue-name": "research",
        }

    def test_the_priority_is_on_the_pods_too(self):
        of = job().worker(1).spec(schedulingPolicy={"priorityClass": "high"})
        assert self.annotations(of)["demo-worker-0"]["spec"]["priorityClassName"] == "high"

    def test_a_templates_own_priority_wins(self):
        of = (
            job()
            .worker(1, pod={"priorityClassName": "mine"})
            .spec(schedulingPolicy={"priorityClass": "high"})
        )
        assert self.annotations(of)["demo-worker-0"]["spec"]["priorityClassName"] == "mine"

    def test_kubernetes_itself_is_told_in_the_spec(self):
        rendered = pods(cluster(scheduling="native", kind=BETA).plan())
        assert [pod["spec"]["schedulingGroup"] for pod in rendered] == [{"podGroupName": "demo"}] * 4
        assert "schedulerName" not in rendered[0]["spec"]

    def test_a_job_without_a_gang_carries_nothing(self):
        [pod] = pods(cluster(job().worker(1), "").plan())
        assert pod["metadata"]["annotations"] == {"paddle-resource": "worker"}
        assert not {"schedulerName", "schedulingGroup", "priorityClassName"} & pod["spec"].keys()

    def test_a_laptop_has_no_gangs(self):
        assert len(pods(snapshot(DOCUMENTED).plan())) == 4


class TestTheUsersGroup:
    def test_it_is_waited_for_and_never_made(self):
        plan = cluster(DOCUMENTED, "").plan()
        assert actions(plan) == []
        assert plan.status.message.startswith(
            "waiting for PodGroup demo, which does not exist; create one with minMember 4 in this namespace"
        )

    def test_pods_come_when_it_is_queued(self):
        built = cluster(DOCUMENTED, "").pod_group(owner="", status={"phase": "Inqueue"}, minMember=4)
        assert len(pods(built.plan())) == 4

    def test_it_is_never_changed(self):
        built = cluster().pod_group(owner="", status={"phase": "Inqueue"}, minMember=1, queue="theirs")
        assert {action.kind for action in actions(built.plan())} == {Kind.POD}

    def test_it_is_never_deleted(self):
        built = cluster().pod_group(owner="", minMember=4).pods_running().config({}).phase(Phase.RUNNING)
        built.succeeded("worker", 0).succeeded("worker", 1)
        assert {action.kind for action in actions(built.plan())} == {Kind.POD}

    def test_it_is_not_replaced_when_its_author_deletes_it(self):
        built = cluster(DOCUMENTED, "").in_gang("volcano").pods_with_addresses().config().pods_running()
        plan = built.plan()
        assert (actions(plan), plan.status.phase) == ([], Phase.RUNNING)

    def test_with_the_flag_its_author_has_a_moment(self):
        plan = cluster(at(seconds=2)).plan()
        assert actions(plan) == []
        assert plan.requeue_after_seconds == 3
        assert plan.status.message == "waiting briefly for the user to create PodGroup demo"

    def test_after_that_moment_the_operator_makes_it(self):
        assert len(created(cluster(at(seconds=5)).plan())) == 1

    def test_a_job_that_does_not_name_volcano_has_no_author_to_wait_for(self):
        of = job().worker(1).metadata(creationTimestamp=NOW)
        assert len(created(cluster(of).plan())) == 1

    def test_one_that_is_too_large_is_told(self):
        built = cluster(DOCUMENTED, "").pod_group(owner="", status={"phase": "Pending"}, minMember=5)
        assert (
            "PodGroup demo, whose minMember 5 exceeds the job's 4 pods: Pending"
            in built.plan().status.message
        )

    def test_one_of_another_owner_is_left_alone(self):
        plan = cluster().pod_group(owner="uid-of-an-earlier-job", status={"phase": "Running"}).plan()
        assert actions(plan) == []
        assert "of another owner to be deleted" in plan.status.message


class TestWhatTheSchedulerSays:
    UNFIT = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": "4/4 tasks in gang unschedulable: pod group is not ready",
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }
    FIT = {"type": "Scheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:30:00Z"}

    def message(self, *conditions, phase="Pending", of=DOCUMENTED):
        status = {"phase": phase, "conditions": list(conditions)}
        return cluster(of, "").pod_group(owner="", status=status, minMember=4).plan().status.message

    def test_its_reasons_are_in_the_jobs_message(self):
        assert self.message(self.UNFIT) == (
            "waiting for PodGroup demo: Pending: NotEnoughResources: "
            "4/4 tasks in gang unschedulable: pod group is not ready"
        )

    def test_its_phase_alone_is_told_too(self):
        assert self.message() == "waiting for PodGroup demo: Pending"

    def test_what_has_been_overcome_is_not_told(self):
        assert self.message(self.UNFIT, self.FIT) == "waiting for PodGroup demo: Pending"

    def test_silence_is_told(self):
        assert "no scheduler has looked at it yet" in self.message(phase="")

    def test_pods_without_a_place_show_it_too(self):
        built = cluster(DOCUMENTED, "").in_gang("volcano").pods()
        built.pod_group(owner="", status={"phase": "Inqueue", "conditions": [self.UNFIT]}, minMember=4)
        assert "PodGroup demo: Inqueue: NotEnoughResources" in built.plan().status.message

    def test_pods_that_wait_for_something_else_show_that(self):
        built = cluster(DOCUMENTED, "").in_gang("volcano").pods_with_addresses()
        built.waiting("worker", 0, "ImagePullBackOff", "no such image")
        for pod in built._pods.values():
            pod["spec"]["nodeName"] = "node"
        built.pod_group(owner="", status={"phase": "Inqueue", "conditions": [self.UNFIT]}, minMember=4)
        assert "ImagePullBackOff" in built.plan().status.message


class TestFollowing:
    def change(self, of, **present):
        built = cluster(of).in_gang("volcano").pods_running().config({}).pod_group(**present)
        patches = [action for action in actions(built.plan()) if isinstance(action, PatchGroup)]
        return patches[0].changes if patches else None

    CASES = {
        "nothing": (PLAIN, spec_of(PLAIN), None),
        "an amount that is written in another way": (
            PLAIN,
            {"minMember": 4, "minResources": {"cpu": 4, "memory": "4096Mi"}},
            None,
        ),
        "a queue that an admission plugin chose": (PLAIN, {**spec_of(PLAIN), "queue": "default"}, None),
        "more pods": (
            PLAIN,
            {"minMember": 3, "minResources": {"cpu": "3", "memory": "3Gi"}},
            {"minMember": 4, "minResources": {"cpu": "4", "memory": "4Gi"}},
        ),
        "a resource that nobody asks for any more": (
            PLAIN,
            {"minMember": 4, "minResources": {"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": 4}},
            {"minResources": {"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": None}},
        ),
        "nobody asks for anything any more": (
            job().worker(1),
            {"minMember": 1, "minResources": {"cpu": "1"}},
            {"minResources": None},
        ),
        "another queue": (
            job().worker(1).spec(schedulingPolicy={"queue": "new"}),
            {"minMember": 1, "queue": "old"},
            {"queue": "new"},
        ),
        "another priority": (
            job().worker(1).spec(schedulingPolicy={"priorityClass": "new"}),
            {"minMember": 1, "priorityClassName": "old"},
            {"priorityClassName": "new"},
        ),
        "no priority any more": (
            job().worker(1),
            {"minMember": 1, "priorityClassName": "old"},
            {"priorityClassName": None},
        ),
    }

    @pytest.mark.parametrize(("of", "present", "patch"), CASES.values(), ids=CASES)
    def test_change(self, of, present, patch):
        assert self.change(of, **present) == patch

    def test_the_patch_is_for_exactly_this_group(self):
        built = cluster().pod_group(status={"phase": "Inqueue"}, minMember=1)
        [patch, *others] = actions(built.plan())
        assert (patch.kind, patch.name, patch.metadata) == (VOLCANO, "demo", {"uid": "uid-group"})
        assert len(others) == 4


class TestSize:
    SIZES = {
        "all pods": (PLAIN, 4, {"cpu": "4", "memory": "4Gi"}),
        "so many in the order of creation": (
            job()
            .ps(2, **CPU)
            .worker(2, resources={"requests": {"cpu": "5"}})
            .spec(schedulingPolicy={"minAvailable": 3}),
            3,
            {"cpu": "7", "memory": "2Gi"},
        ),
        "zero is all": (job().worker(2).spec(schedulingPolicy={"minAvailable": 0}), 2, None),
        "an elastic job's fewest workers, and all else": (
            job().ps(1, **CPU).worker(8, **CPU).heter(1, **CPU).spec(elastic=1),
            3,
            {"cpu": "3", "memory": "3Gi"},
        ),
    }

    @pytest.mark.parametrize(("of", "members", "room"), SIZES.values(), ids=SIZES)
    def test_size(self, of, members, room):
        spec = spec_of(of)
        assert (spec["minMember"], spec.get("minResources")) == (members, room)

    @pytest.mark.parametrize("cpu", ["much", "1e999999999", "9" * 100_000])
    def test_an_amount_that_cannot_be_counted_is_refused_at_once(self, cpu):
        plan = cluster(job().worker(1, resources={"requests": {"cpu": cpu}})).plan()
        assert (actions(plan), plan.status.reason) == ([], "InvalidSpec")
        assert "resources.requests[cpu]" in plan.status.message

    def test_an_amount_that_somebody_wrote_into_our_group_is_replaced(self):
        spec = {**spec_of(PLAIN), "minResources": {"cpu": "1e999999999"}}
        [patch] = actions(cluster().pod_group(**spec).plan())
        assert patch.changes == {"minResources": {"cpu": "4", "memory": "4Gi"}}

    def test_a_worker_that_has_succeeded_is_not_waited_for(self):
        built = cluster().in_gang("volcano").pod_group(status={"phase": "Running"}, **spec_of(PLAIN))
        [patch] = actions(built.pods().succeeded("worker", 0).plan())
        assert patch.changes == {"minMember": 3, "minResources": {"cpu": "3", "memory": "3Gi"}}

    def test_an_elastic_jobs_lower_bound_counts(self):
        of = job().worker(8)
        of.manifest["spec"]["worker"]["requests"] = 3
        assert spec_of(of) == {"minMember": 3}


class TestEnding:
    def ended(self, policy="Never"):
        of = job().ps(1).worker(1).spec(cleanPodPolicy=policy)
        built = cluster(of).in_gang("volcano").pod_group(status={"phase": "Running"}, minMember=2)
        return built.pods_running().config({}).phase(Phase.RUNNING).succeeded("worker", 0)

    def test_our_group_goes_with_the_verdict(self):
        plan = self.ended().plan()
        assert plan.status.phase is Phase.COMPLETED
        assert actions(plan) == [Delete(VOLCANO, "demo", "uid-group")]

    def test_it_goes_after_the_pods(self):
        kinds = [[action.kind for action in stage] for stage in self.ended("Always").plan().stages]
        assert kinds == [[Kind.POD, Kind.POD], [VOLCANO]]

    @pytest.mark.parametrize("phase", ["Pending", "Unknown", "Completed"])
    def test_a_finished_job_is_cleaned_whatever_its_group_says(self, phase):
        built = self.ended("Always").phase(Phase.COMPLETED).pod_group(status={"phase": phase}, minMember=2)
        assert [action.kind for action in actions(built.plan())] == [Kind.POD, Kind.POD, VOLCANO]

    def test_it_goes_when_the_job_is_suspended(self):
        of = job().worker(1).spec(suspend=True)
        built = cluster(of).in_gang("volcano").pod_group(minMember=1).pods_running()
        assert [action.kind for action in actions(built.plan())] == [Kind.POD, VOLCANO]

    def test_one_that_goes_already_is_not_deleted_again(self):
        assert actions(self.ended().pod_group(leaving=True, minMember=2).plan()) == []

    def test_a_job_that_resumes_waits_until_it_is_gone(self):
        plan = cluster().pod_group(leaving=True, status={"phase": "Running"}).plan()
        assert actions(plan) == []
        assert plan.status.message == "waiting for PodGroup demo of the last attempt to terminate"

    def test_a_group_of_a_system_that_is_no_longer_wanted_goes(self):
        plan = cluster(scheduling="").pod_group(minMember=4).plan()
        assert [action.kind for action in actions(plan)] == [VOLCANO, *[Kind.POD] * 4]


class TestRunningOn:
    def running(self, phase="Running"):
        built = cluster().in_gang("volcano").pod_group(status={"phase": phase}, **spec_of(PLAIN))
        return built.pods_with_addresses().config().pods_running().formed()

    @pytest.mark.parametrize("phase", ["", "Pending", "Inqueue", "Unknown", "Completed"])
    def test_a_running_job_does_not_care_for_the_phase(self, phase):
        plan = self.running(phase).plan()
        assert (actions(plan), plan.status.phase) == ([], Phase.RUNNING)

    def test_a_lost_pod_is_replaced_though_the_group_is_incomplete(self):
        built = self.running("Unknown")
        del built._pods[next(replica for replica in built._pods if replica.role == "worker")]
        built.phase(Phase.PENDING, world_size=None)
        assert len(pods(built.plan())) == 1

    def test_pods_without_a_gang_stay_without_one(self):
        built = cluster().pods_with_addresses().config().pods_running()
        assert actions(built.plan()) == []

    def test_a_vanished_api_harms_nobody(self):
        built = self.running().serves()
        built._pod_groups.clear()
        plan = built.plan()
        assert (actions(plan), plan.status.phase) == ([], Phase.RUNNING)

    def test_probes_of_an_elastic_job_are_members_too(self):
        of = job().worker(3).spec(elastic=1)
        built = cluster(of).in_gang("volcano").pod_group(status={"phase": "Running"}, minMember=1)
        built.phase(Phase.RUNNING, workers=2)
        built.pods_with_addresses().config().pods_running().formed()
        [standby_pod] = pods(built.plan())
        assert standby_pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "demo"


class TestVolcanoIsGoneButNotItsWebhooks:
    REFUSAL = (
        'Internal error occurred: failed calling webhook "mutatepod.volcano.sh": failed to call webhook: '
        'Post "https://volcano-admission-service.volcano-system.svc:443/pods/mutate?timeout=10s": '
        'service "volcano-admission-service" not found'
    )

    def message(self, refusal):
        return snapshot(PLAIN).refused("create", "Pod", "demo-ps-0", refusal).plan().status.message

    def test_the_message_says_what_to_delete(self):
        message = self.message(self.REFUSAL)
        assert "if Volcano was uninstalled" in message
        assert "kubectl delete mutatingwebhookconfigurations" in message
        assert message.endswith("volcano-admission-service-queues-mutate")

    def test_a_webhook_that_says_no_is_no_leftover(self):
        denied = 'admission webhook "validatepod.volcano.sh" denied the request: queue `x` status is `Closed`'
        assert "uninstalled" not in self.message(denied)
