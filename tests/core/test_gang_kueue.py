"""A job in a queue of Kueue: described, admitted, placed, evicted, gone."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.actions import AnnotatePod, Create, Delete, Kind, PatchGroup
from paddlejob.core.gang.kueue import workload_manifest
from simkube.build import job, snapshot

WORKLOAD = Kind.WORKLOAD_V1BETA2
CPU = {"resources": {"requests": {"cpu": "1"}}}
LABELS = {"kueue.x-k8s.io/queue-name": "team-a"}
QUEUED = job().ps(1, **CPU).worker(2, **CPU).metadata(labels=LABELS)


def condition(kind, status="True", reason="", message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


RESERVED, ADMITTED = condition("QuotaReserved"), condition("Admitted")
EVICTED = condition("Evicted", reason="Preempted", message="to make room for a more important one")


def queue(of=QUEUED, *conditions, kind=WORKLOAD, flavors=None, **workload):
    """Return a snapshot in which Kueue has said so much about the job's Workload."""
    built = snapshot(of).serves(kind)
    manifest = workload_manifest(built.job, kind)
    status = {"conditions": list(conditions)}
    if flavors:
        assigned = [{"name": role, "flavors": given} for role, given in flavors.items()]
        status["admission"] = {"clusterQueue": "all", "podSetAssignments": assigned}
    workload = {"queueName": manifest["spec"]["queueName"], **workload}
    return built.pod_group(kind, status=status, annotations=manifest["metadata"]["annotations"], **workload)


def actions(plan):
    return [action for stage in plan.stages for action in stage]


def pods(plan):
    return [one.manifest for one in actions(plan) if isinstance(one, Create) and one.kind is Kind.POD]


class TestWaiting:
    def test_the_workload_describes_the_pods_and_names_the_queue(self):
        [create] = actions(snapshot(QUEUED).serves(WORKLOAD).plan())
        assert (create.kind, create.manifest["apiVersion"]) == (WORKLOAD, "kueue.x-k8s.io/v1beta2")
        assert create.manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-demo"
        spec = create.manifest["spec"]
        assert spec["queueName"] == "team-a"
        assert [(one["name"], one["count"]) for one in spec["podSets"]] == [("ps", 1), ("worker", 2)]
        assert spec["podSets"][0]["template"]["spec"]["containers"][0]["resources"] == CPU["resources"]

    def test_an_older_kueue_gets_the_older_version(self):
        [create] = actions(snapshot(QUEUED).serves(Kind.WORKLOAD_V1BETA1).plan())
        assert create.manifest["apiVersion"] == "kueue.x-k8s.io/v1beta1"

    def test_pods_wait_for_the_admission_and_the_job_says_what_kueue_says(self):
        said = condition("QuotaReserved", "False", "Pending", "insufficient unused quota for cpu")
        plan = queue(QUEUED, said).plan()
        assert actions(plan) == []
        assert plan.status.reason == "WaitingForGang"
        assert plan.status.message == ("waiting in Kueue's queue team-a: insufficient unused quota for cpu")

    def test_a_reservation_is_no_admission(self):
        assert actions(queue(QUEUED, RESERVED).plan()) == []

    def test_without_kueue_it_says_so(self):
        plan = snapshot(QUEUED).serves().plan()
        assert "does not serve Kueue" in plan.status.message
        assert "remove the label kueue.x-k8s.io/queue-name" in plan.status.message

    def test_a_stranger_of_that_name_is_left_alone(self):
        plan = queue(QUEUED, ADMITTED, owner="uid-of-somebody").plan()
        assert actions(plan) == []
        assert "does not belong to this job" in plan.status.message

    def test_one_that_goes_is_waited_for(self):
        assert actions(queue(QUEUED, ADMITTED, leaving=True).plan()) == []

    def test_another_size_is_asked_for_anew(self):
        built = queue(QUEUED, RESERVED)
        built.job = job().ps(1, **CPU).worker(5, **CPU).metadata(labels=LABELS).build()
        assert actions(built.plan()) == [Delete(WORKLOAD, "demo", "uid-group")]


def relabelled(built, queue=None):
    """Let the user change the label, or remove it."""
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    metadata = msgspec.structs.replace(built.job.metadata, labels=labels)
    built.job = msgspec.structs.replace(built.job, metadata=metadata)
    return built


class TestAnotherQueue:
    def test_a_workload_without_quota_moves(self):
        said = condition("QuotaReserved", "False", "Pending", "queue team-a is full")
        plan = relabelled(queue(QUEUED, said), "team-b").plan()
        version = {"uid": "uid-group", "resourceVersion": "8"}
        assert actions(plan) == [PatchGroup(WORKLOAD, "demo", version, "spec", {"queueName": "team-b"})]
        assert plan.status.message == "moving Workload demo from Kueue's queue team-a to team-b"

    def test_quota_without_pods_is_given_up(self):
        plan = relabelled(queue(QUEUED, RESERVED, ADMITTED), "team-b").plan()
        assert actions(plan) == [Delete(WORKLOAD, "demo", "uid-group")]

    def test_pods_keep_their_quota(self):
        plan = relabelled(running(condition("PodsReady")), "team-b").plan()
        assert (actions(plan), plan.status.phase) == ([], Phase.RUNNING)

    def test_an_evicted_workload_moves_when_its_quota_is_back(self):
        plan = relabelled(queue(QUEUED, EVICTED), "team-b").plan()
        assert [action.changes for action in actions(plan)] == [{"queueName": "team-b"}]

    @pytest.mark.parametrize("admission", [(), (EVICTED,)])
    def test_a_running_job_without_label_is_judged_as_before(self, admission):
        plan = relabelled(running(*admission).failed("worker", 1, code=137)).plan()
        assert (plan.status.phase, plan.status.attempt) == (Phase.RESTARTING, 1)

    def test_the_queue_is_named_by_the_workload(self):
        plan = relabelled(running(EVICTED)).plan()
        assert plan.status.reason == "QuotaLost"

    def test_a_running_job_without_label_and_workload_runs_on(self):
        built = relabelled(running())
        built._pod_groups.clear()
        assert (actions(built.plan()), built.plan().status.phase) == ([], Phase.RUNNING)

    def test_the_next_attempt_of_a_job_without_label_is_in_no_queue(self):
        plan = relabelled(queue(QUEUED, RESERVED, ADMITTED)).plan()
        assert [action.kind for action in actions(plan)] == [WORKLOAD, *[Kind.POD] * 3]


class TestAdmitted:
    def test_the_pods_come(self):
        rendered = pods(queue(QUEUED, RESERVED, ADMITTED).plan())
        assert [pod["metadata"]["name"] for pod in rendered] == [
            "demo-ps-0",
            "demo-worker-0",
            "demo-worker-1",
        ]
        assert rendered[0]["metadata"]["annotations"]["batch.paddlepaddle.org/gang"] == "kueue"

    def test_they_go_to_the_nodes_of_their_flavors(self):
        of = job().ps(1, **CPU).worker(1, pod={"nodeSelector": {"disk": "ssd"}}).metadata(labels=LABELS)
        toleration = {"key": "gpu", "operator": "Exists"}
        built = queue(
            of, ADMITTED, flavors={"ps": {"cpu": "plain"}, "worker": {"cpu": "fast", "gpu": "fast"}}
        )
        built.flavor("plain", {}).flavor("fast", {"node": "fast"}, toleration)
        server, worker = (pod["spec"] for pod in pods(built.plan()))
        assert not {"nodeSelector", "tolerations"} & server.keys()
        assert worker["nodeSelector"] == {"disk": "ssd", "node": "fast"}
        assert worker["tolerations"] == [toleration]

    def test_an_unknown_flavor_is_waited_for(self):
        plan = queue(QUEUED, ADMITTED, flavors={"ps": {"cpu": "new"}}).plan()
        assert actions(plan) == []
        assert plan.status.message == "waiting for ResourceFlavor new of Kueue"

    def test_pods_do_not_carry_the_label_lest_kueue_queues_them_a_second_time(self):
        [pod, *_] = pods(queue(QUEUED, ADMITTED).plan())
        assert not [name for name in pod["metadata"]["labels"] if "kueue" in name]


def running(*conditions, of=QUEUED):
    built = queue(of, RESERVED, ADMITTED).in_gang("kueue").pods_with_addresses().config().pods_running()
    built._pod_groups = queue(of, RESERVED, ADMITTED, *conditions)._pod_groups
    return built.formed().phase(Phase.RUNNING)


class TestEvicted:
    def test_all_pods_go_and_nobody_is_blamed(self):
        plan = running(EVICTED).plan()
        assert {action.kind for action in actions(plan)} == {Kind.POD}
        assert plan.status.phase is Phase.RESTARTING
        assert plan.status.reason == "QuotaLost"
        assert plan.status.restarts == 0
        assert "Preempted: to make room" in plan.status.message

    def test_the_clock_stops_and_the_time_is_queued_until_it_runs_again(self):
        """Preempted after 600 s, admitted again three hours later, past its activeDeadlineSeconds."""
        limited = job().worker(2, **CPU).metadata(labels=LABELS).spec(activeDeadlineSeconds=7200)
        limited.metadata(creationTimestamp="2020-01-01T00:00:00Z")
        built = queue(limited, RESERVED, ADMITTED).pods_running().formed()
        built.status(built.plan().status).later(600)
        evicted = queue(limited, EVICTED)._pod_groups
        built._pod_groups = evicted
        lost = built.status(built.plan().status).job.status
        assert (lost.reason, lost.active_since, lost.active_seconds) == ("QuotaLost", None, 600)
        built._pods.clear()
        built.status(built.plan().status).later(3 * 3600)
        waiting = built.plan().status
        assert (waiting.phase, waiting.reason) == (Phase.RESTARTING, "WaitingForGang")
        built._pod_groups = queue(limited, RESERVED, ADMITTED)._pod_groups
        built.status(built.plan().status).later(30)
        built.status(built.plan().status).pods_running()
        again = built.plan().status
        assert (again.phase, again.active_since, again.active_seconds) == (Phase.RUNNING, built.now, 600)
        spent = again.goodput
        assert spent.queued_seconds - lost.goodput.queued_seconds == 3 * 3600
        assert (spent.training_seconds, spent.starting_seconds) == (600, 30)

    def test_the_clock_of_the_deadline_starts_with_the_next_pods(self):
        """Pods that never run again are within activeDeadlineSeconds too."""
        limited = job().worker(2, **CPU).metadata(labels=LABELS).spec(activeDeadlineSeconds=7200)
        built = queue(limited, RESERVED, ADMITTED).pods_running().formed()
        built.status(built.plan().status).later(600)
        built._pod_groups = queue(limited, EVICTED)._pod_groups
        built.status(built.plan().status)._pods.clear()
        built._pod_groups = queue(limited, RESERVED, ADMITTED)._pod_groups
        built.status(built.plan().status).later(30)
        assert built.plan().status.active_since is None
        again = built.pods().plan().status
        assert (again.phase, again.active_since) == (Phase.RESTARTING, built.now)
        ended = built.status(again).later(7200 - 600).plan().status
        assert (ended.phase, ended.reason) == (Phase.FAILED, "DeadlineExceeded")

    def test_the_quota_is_kept_while_pods_use_it(self):
        built = running(EVICTED)
        built.status(built.plan().status)
        assert not any(isinstance(action, PatchGroup) for action in actions(built.plan()))

    RETURNS = {"Preempted": "True", "ClusterQueueStopped": "False", "Deactivated": "False"}

    @pytest.mark.parametrize(("reason", "again"), RETURNS.items(), ids=RETURNS)
    def test_then_it_is_given_back(self, reason, again):
        said = condition("Evicted", reason=reason, message="why")
        [patch] = actions(queue(QUEUED, RESERVED, ADMITTED, said).plan())
        assert (patch.kind, patch.part) == (WORKLOAD, "status")
        assert patch.metadata == {"uid": "uid-group", "resourceVersion": "8"}
        assert patch.changes["admission"] is None
        verdicts = {one["type"]: one["status"] for one in patch.changes["conditions"]}
        lost = {"QuotaReserved": "False", "Admitted": "False", "PodsReady": "False"}
        assert verdicts == {"Evicted": "True", **lost, "Requeued": again}

    def test_what_is_given_back_is_not_given_back_again(self):
        returned = condition("QuotaReserved", "False", "Pending")
        plan = queue(QUEUED, returned, EVICTED).plan()
        assert actions(plan) == []
        assert "evicted from Kueue's queue team-a: Preempted" in plan.status.message

    def test_a_running_job_does_not_care_for_anything_else(self):
        assert actions(running(condition("PodsReady"), condition("Requeued")).plan()) == []


class TestReady:
    def test_kueue_is_told_when_all_pods_run(self):
        [patch] = actions(running().plan())
        assert (patch.part, patch.metadata["resourceVersion"]) == ("status", "8")
        verdicts = {one["type"]: one["status"] for one in patch.changes["conditions"]}
        assert verdicts == {"QuotaReserved": "True", "Admitted": "True", "PodsReady": "True"}
        assert "admission" not in patch.changes

    def test_it_is_not_told_before(self):
        plan = running().waiting("worker", 1, "ContainerCreating").plan()
        assert not any(isinstance(action, PatchGroup) for action in actions(plan))


class TestKueueIsGone:
    def test_pods_that_were_admitted_run_on(self):
        built = running().serves()
        built._pod_groups.clear()
        plan = built.plan()
        assert (actions(plan), plan.status.phase) == ([], Phase.RUNNING)


class TestAssignments:
    def test_those_of_no_role_of_ours_are_not_looked_at(self):
        flavors = {"worker": {"cpu": "gpu"}, "launcher": {"cpu": "gpu"}}
        built = queue(QUEUED, RESERVED, ADMITTED, flavors=flavors).flavor("gpu", {"gpu": "true"})
        selectors = [pod["spec"].get("nodeSelector") for pod in pods(built.plan())]
        assert selectors == [None, {"gpu": "true"}, {"gpu": "true"}]


class TestResized:
    def test_pods_that_were_not_admitted_are_not_created(self):
        of = job().ps(1, **CPU).worker(2, **CPU).spec(withGloo=0).metadata(labels=LABELS)
        built = running(of=of)
        more = job().ps(1, **CPU).worker(3, **CPU).spec(withGloo=0).metadata(labels=LABELS)
        built.job, status = more.build(), built.job.status
        built.status(status)
        built.status(built.plan().status)
        plan = built.plan()
        assert pods(plan) == []
        assert "suspend and resume the job" in plan.status.message

    def test_pods_that_have_not_trained_are_queued_again_in_their_new_number(self):
        built = queue(QUEUED, RESERVED, ADMITTED).in_gang("kueue").pod("ps", 0)
        built.job = job().ps(1, **CPU).worker(5, **CPU).metadata(labels=LABELS).build()
        plan = built.plan()
        assert [(action.kind, action.name) for action in actions(plan)] == [(Kind.POD, "demo-ps-0")]
        assert (plan.status.phase, plan.status.restarts) == (Phase.SCALING, 0)
        assert plan.status.message == "scheduling again: the job's pods changed"
        built._pods.clear()
        built.status(plan.status)
        assert actions(built.plan()) == [Delete(WORKLOAD, "demo", "uid-group")]

    def test_pods_that_are_all_there_learn_their_addresses_with_more_quota_than_they_need(self):
        more = job().ps(1, **CPU).worker(4, **CPU).metadata(labels=LABELS)
        built = queue(QUEUED, RESERVED, ADMITTED).in_gang("kueue").pods_with_addresses()
        built._pod_groups = queue(more, RESERVED, ADMITTED)._pod_groups
        written, *annotated = actions(built.plan())
        assert written.kind is Kind.CONFIG_MAP
        assert {type(each) for each in annotated} == {AnnotatePod}

    def test_pods_that_have_trained_are_kept(self):
        built = running()
        built.job = job().ps(1, **CPU).worker(5, **CPU).metadata(labels=LABELS).build()
        assert not any(isinstance(action, Delete) for action in actions(built.plan()))


class TestTheEnd:
    def test_the_workload_goes_with_the_job(self):
        plan = running().succeeded("worker", 0).succeeded("worker", 1).plan()
        assert actions(plan)[-1] == Delete(WORKLOAD, "demo", "uid-group")

    def test_a_suspended_job_gives_its_quota_back(self):
        built = running()
        built.job = msgspec.structs.replace(
            built.job, spec=msgspec.structs.replace(built.job.spec, suspend=True)
        )
        assert actions(built.plan())[-1] == Delete(WORKLOAD, "demo", "uid-group")
