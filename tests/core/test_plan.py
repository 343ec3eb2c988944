"""The order of decisions, and what each leads to."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import Phase
from paddlejob.api.validation.errors import FieldError
from paddlejob.core.actions import AnnotatePod, Create, Delete, Kind, RemoveFinalizer, ReplaceConfig
from paddlejob.core.plan import plan
from paddlejob.core.recorder import Recorder
from simkube.build import NOW, job, snapshot

PS_JOB = job().ps(2).worker(2)


def did(plan) -> list[list[str]]:
    """Return a plan's stages as words."""
    return [
        [f"{type(action).__name__} {getattr(action, 'name', '')}".strip() for action in stage]
        for stage in plan.stages
    ]


def connected(of=PS_JOB):
    """Return a snapshot whose pods run with their ConfigMap."""
    return snapshot(of).pods_with_addresses().config().pods_running()


def settled(built):
    """Write the status of a first reconcile."""
    return built.status(built.plan().status)


class TestPodAddresses:
    def test_pods_come_first_servers_before_workers(self):
        assert did(snapshot(PS_JOB).plan()) == [
            ["Create demo-ps-0", "Create demo-ps-1"],
            ["Create demo-worker-0", "Create demo-worker-1"],
        ]

    def test_nothing_happens_until_the_last_address(self):
        built = snapshot(PS_JOB).pods_with_addresses().pod("worker", 1)
        assert did(built.plan()) == []

    def test_then_comes_the_config_map_and_the_pods_are_woken(self):
        annotations = [
            "AnnotatePod demo-ps-0",
            "AnnotatePod demo-ps-1",
            "AnnotatePod demo-worker-0",
            "AnnotatePod demo-worker-1",
        ]
        assert did(snapshot(PS_JOB).pods_with_addresses().plan()) == [["Create demo"], annotations]

    def test_a_crash_before_the_wakes_is_made_good(self):
        plan = snapshot(PS_JOB).pods_with_addresses().config().plan()
        assert [len(stage) for stage in plan.stages] == [4]
        assert all(isinstance(action, AnnotatePod) for action in plan.stages[0])

    def test_a_woken_pod_is_not_woken_again(self):
        built = snapshot(job().worker(1)).pods_with_addresses().config()
        wake = built.plan().stages[0][0]
        mark = {"batch.paddlepaddle.org/config-hash": wake.config_hash}
        status = {"phase": "Pending", "podIP": "10.0.2.1"}
        assert did(built.pod("worker", 0, status, annotations=mark).plan()) == []

    def test_a_running_job_needs_nothing(self):
        assert did(connected().plan()) == []

    def test_a_second_pass_changes_nothing(self):
        built = settled(connected())
        plan = built.later(100).plan()
        assert plan.status == built.job.status
        assert (plan.stages, plan.events, plan.requeue_after_seconds) == ((), (), None)


class TestServices:
    OF = job().ps(1).worker(1).spec(intranet="Service")

    def test_services_and_config_come_before_the_pods(self):
        assert did(snapshot(self.OF).plan()) == [
            ["Create demo-ps-0", "Create demo-worker-0"],
            ["Create demo"],
            ["Create demo-ps-0"],
            ["Create demo-worker-0"],
        ]

    def test_pods_carry_the_mark_from_the_start(self):
        pod = snapshot(self.OF).plan().stages[2][0].manifest
        assert pod["metadata"]["annotations"]["batch.paddlepaddle.org/config-hash"]

    def test_a_surplus_service_goes_with_its_pod(self):
        built = snapshot(job().worker(2).spec(intranet="Service")).services().pods_running()
        smaller = built.respecified(job().worker(1).spec(intranet="Service"))
        assert did(smaller.plan())[:2] == [["Delete demo-worker-1"], ["Delete demo-worker-1"]]

    @pytest.mark.parametrize("intranet", ["PodIP", "Host"])
    def test_none_is_left_when_pods_are_no_longer_called_by_name(self, intranet):
        left = snapshot(job().worker(2).spec(intranet="Service")).services()
        changed = left.respecified(job().worker(2).spec(intranet=intranet))
        assert did(changed.plan())[0] == ["Delete demo-worker-0", "Delete demo-worker-1"]
        assert {action.kind for action in changed.plan().stages[0]} == {Kind.SERVICE}


class TestHostNetwork:
    OF = job().worker(2).spec(intranet="Host")

    def test_the_port_is_recorded_with_the_pods(self):
        plan = snapshot(self.OF).plan()
        assert plan.status.host_port
        ports = plan.stages[0][0].manifest["spec"]["containers"][0]["ports"]
        assert ports[0]["hostPort"] == plan.status.host_port

    def test_the_port_stays(self):
        built = settled(snapshot(self.OF))
        assert (
            built.host_ports_taken(built.job.status.host_port).plan().status.host_port
            == built.job.status.host_port
        )

    @pytest.mark.parametrize("field", ["containers", "initContainers"])
    def test_the_block_has_no_port_that_a_template_declares(self, field):
        chosen = snapshot(self.OF).plan().status.host_port
        sidecar = {"name": "log", "image": "log:1", "ports": [{"containerPort": chosen + 7}]}
        of = job().worker(2).spec(intranet="Host")
        of.manifest["spec"]["worker"]["template"]["spec"].setdefault(field, []).append(sidecar)
        port = snapshot(of).plan().status.host_port
        assert port
        assert not port <= chosen + 7 < port + 20

    def test_without_a_free_port_it_waits_and_says_so(self):
        plan = snapshot(self.OF).with_settings(host_port_range=(40000, 40019)).host_ports_taken(40000).plan()
        assert (plan.stages, plan.status.reason, plan.requeue_after_seconds) == ((), "NoHostPort", 30)
        assert "40000 to 40019" in plan.status.message

    @pytest.mark.parametrize(
        ("taken", "of_namespace", "is_refused"),
        [
            pytest.param(4, 4, False, id="a namespace alone has less than half"),
            pytest.param(5, 5, True, id="a namespace alone has half"),
            pytest.param(7, 2, False, id="others have most blocks"),
            pytest.param(7, 3, True, id="it holds as many as are free"),
            pytest.param(9, 0, False, id="the last block is for a namespace without one"),
        ],
    )
    def test_a_namespace_has_a_share_of_the_blocks(self, taken, of_namespace, is_refused):
        built = snapshot(self.OF).with_settings(host_port_range=(40000, 40199))
        built.host_ports_taken(*range(40000, 40000 + 20 * taken, 20), of_namespace=of_namespace)
        plan = built.plan()
        assert (plan.status.reason == "NoHostPort", plan.status.host_port == 0) == (is_refused, is_refused)
        if is_refused:
            assert plan.status.message == (
                f"intranet Host: namespace default already holds {of_namespace} of 10 port blocks, its share "
                f"while {10 - taken} are free; wait for a job of the namespace to end, suspend one or widen "
                "--port-range"
            )

    def test_a_suspended_job_gives_its_block_back_with_its_last_pod(self):
        running = settled(snapshot(self.OF)).pods_running()
        port = running.job.status.host_port
        suspended = running.respecified(job().worker(2).spec(intranet="Host", suspend=True))
        suspended.status(suspended.plan().status)
        assert suspended.plan().status.host_port == port
        suspended.gone("worker", 0).gone("worker", 1)
        suspended.status(suspended.plan().status)
        assert suspended.job.status.host_port == 0
        resumed = suspended.respecified(self.OF).host_ports_taken(port).plan()
        assert resumed.status.host_port not in (0, port)

    def test_other_networks_have_none(self):
        assert snapshot(PS_JOB).plan().status.host_port == 0


class TestChange:
    def test_scaling_up_creates_the_missing_pods(self):
        built = snapshot(job().worker(3)).running("worker", 0).running("worker", 1)
        assert did(built.plan()) == [["Create demo-worker-2"]]

    def test_the_config_follows_once_all_have_addresses(self):
        built = snapshot(job().worker(2)).pods_running().config({"PADDLE_TRAINERS_NUM": "1"})
        plan = built.plan()
        assert isinstance(plan.stages[0][0], ReplaceConfig)
        assert plan.stages[0][0].manifest["data"]["PADDLE_TRAINERS_NUM"] == "2"
        assert plan.stages[0][0].resource_version == "7"

    def test_scaling_down_deletes_the_highest(self):
        built = snapshot(job().worker(2)).pods_running().running("worker", 2).running("worker", 3)
        plan = built.plan()
        assert did(plan)[0] == ["Delete demo-worker-2", "Delete demo-worker-3"]
        assert plan.stages[0][0].uid == "uid-demo-worker-2"

    def test_a_vanished_pod_is_replaced(self):
        built = snapshot(job().worker(2)).running("worker", 0)
        assert did(built.plan()) == [["Create demo-worker-1"]]

    def test_a_leaving_pod_is_not_replaced_before_it_is_gone(self):
        assert did(snapshot(job().worker(2)).pods_running().leaving("worker", 1).plan()) == []

    def test_a_running_pod_keeps_the_mark_of_its_own_start(self):
        plan = snapshot(job().worker(2)).pods_running().waiting("worker", 1).plan()
        assert [action.name for action in plan.stages[-1]] == ["demo-worker-1"]


class TestEnding:
    def ended(self, policy: str, **kwargs):
        of = job().ps(1).worker(1).spec(cleanPodPolicy=policy, **kwargs)
        return snapshot(of).pods_running().config({}).phase(Phase.RUNNING)

    @pytest.mark.parametrize("policy", ["OnCompletion", ""])
    def test_without_a_policy_it_is_on_completion(self, policy):
        assert did(self.ended(policy).succeeded("worker", 0).plan()) == [
            ["Delete demo-ps-0", "Delete demo-worker-0"]
        ]
        assert did(self.ended(policy).failed("worker", 0).plan()) == [["StopPod demo-ps-0"]]

    def test_services_go_after_the_pods(self):
        built = snapshot(job().worker(1).spec(intranet="Service")).services().pods_running()
        assert did(built.succeeded("worker", 0).plan()) == [
            ["Delete demo-worker-0"],
            ["Delete demo-worker-0"],
        ]

    def test_the_status_shows_servers_that_still_run(self):
        status = snapshot(PS_JOB).pods_running().succeeded("worker", 0).succeeded("worker", 1).plan().status
        assert (status.ps.ready, status.worker.ready) == ("2/2", "0/2")
        assert (status.worker.succeeded, status.completion_time) == (2, NOW)

    def test_no_pod_counts_as_running_that_is_deleted_with_the_end(self):
        of = job().ps(2).worker(2).spec(cleanPodPolicy="Always")
        status = snapshot(of).pods_running().failed("worker", 1).plan().status
        assert (status.ps.ready, status.ps.running, status.ps.replicas) == ("0/2", 0, 0)
        assert (status.worker.ready, status.worker.running, status.worker.failed) == ("0/2", 0, 1)
        assert status.worker.replicas == 0

    @pytest.mark.parametrize("policy", ["Always", "OnFailure", "OnCompletion", "Never"])
    @pytest.mark.parametrize("ending", ["succeeded", "failed"])
    def test_counts_of_an_ended_job_follow_its_pods(self, policy, ending):
        built = snapshot(job().ps(1).worker(2).spec(cleanPodPolicy=policy, successPolicy="Worker0"))
        getattr(built.pods_running(), ending)("worker", 0)
        ended = built.status(built.plan().status)
        at_the_end = (ended.job.status.worker.succeeded, ended.job.status.worker.failed)
        for replica in built.replicas():
            built.gone(replica.role, replica.index)
        status = ended.plan().status
        assert (status.ps.running, status.ps.replicas) == (0, 0)
        assert (status.worker.running, status.worker.replicas, status.worker.ready) == (0, 0, "0/2")
        assert (status.worker.succeeded, status.worker.failed) == at_the_end

    def test_a_kept_pod_counts_as_running_until_it_ends(self):
        built = snapshot(job().worker(2).spec(cleanPodPolicy="Never")).pods_running().failed("worker", 1)
        ended = built.status(built.plan().status)
        assert ended.job.status.worker.ready == "1/2"
        assert ended.unsettled("worker", 0).plan().status.worker.ready == "0/2"

    def test_counts_survive_cleaning(self):
        done = snapshot(PS_JOB).pods_running().succeeded("worker", 0).succeeded("worker", 1).plan().status
        plan = snapshot(PS_JOB).status(done).plan()
        assert plan.status == done
        assert plan.stages == ()

    @pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED])
    def test_a_finished_job_never_starts_a_pod(self, phase):
        assert snapshot(job().worker(2).spec(cleanPodPolicy="Never")).phase(phase).plan().stages == ()

    def test_pods_that_are_kept_keep_their_services(self):
        built = snapshot(job().worker(2).spec(intranet="Service")).services().pods_running()
        assert did(built.failed("worker", 0).plan()) == [["StopPod demo-worker-1"]]

    def test_cleaning_goes_on_where_a_crash_interrupted_it(self):
        built = (
            snapshot(job().worker(2).spec(cleanPodPolicy="Always")).running("worker", 1).phase(Phase.FAILED)
        )
        assert did(built.plan()) == [["Delete demo-worker-1"]]

    def test_pods_on_their_way_out_are_not_deleted_twice(self):
        built = self.ended("Always").phase(Phase.FAILED).leaving("ps", 0)
        assert did(built.plan()) == [["Delete demo-worker-0"]]

    def test_a_job_that_was_never_seen_running_has_a_start_all_the_same(self):
        ended = {"exitCode": 0, "startedAt": "2026-01-01T11:00:00Z", "finishedAt": "2026-01-01T11:30:00Z"}
        container = {"name": "paddle", "state": {"terminated": ended}}
        built = snapshot(job().worker(1)).pod(
            "worker", 0, {"phase": "Succeeded", "containerStatuses": [container]}
        )
        assert built.plan().status.start_time == NOW.replace(hour=11)


class TestDeletion:
    OF = job().worker(2).metadata(deletionTimestamp="2026-01-01T12:00:00Z")

    def test_nothing_is_created_any_more(self):
        plan = snapshot(self.OF).plan()
        assert (plan.stages, plan.status.phase) == ((), Phase.TERMINATING)

    def test_the_finalizer_of_an_earlier_operator_is_removed(self):
        of = (
            job()
            .worker(1)
            .metadata(deletionTimestamp="2026-01-01T12:00:00Z", finalizers=["finalizers.paddlepaddle.org"])
        )
        assert snapshot(of).plan().stages == ((RemoveFinalizer("finalizers.paddlepaddle.org"),),)


class TestBadInput:
    def test_a_refused_spec_creates_nothing_and_says_why(self):
        plan = snapshot(job().ps(1)).plan()
        assert (plan.stages, plan.status.phase, plan.status.reason) == ((), Phase.PENDING, "InvalidSpec")
        assert "worker" in plan.status.message
        assert [event.reason for event in plan.events] == ["InvalidSpec"]

    def test_it_is_told_once(self):
        assert settled(snapshot(job().ps(1))).plan().events == ()

    def test_an_undecodable_object_is_told_too(self):
        import msgspec

        broken = msgspec.structs.replace(job().build(), undecodable="spec.worker.replicas: expected int")
        assert "expected int" in snapshot(broken).plan().status.message

    def test_a_refused_creation_is_told_and_tried_again(self):
        built = snapshot(job().worker(2)).refused("create", "Pod", "demo-worker-0", "exceeded quota: team")
        plan = built.plan()
        assert plan.status.message == "cannot create Pod demo-worker-0: exceeded quota: team; retrying"
        assert did(plan) == [["Create demo-worker-0", "Create demo-worker-1"]]
        assert [event.reason for event in plan.events] == ["CreateFailed"]
        assert built.status(plan.status).plan().events == ()

    def test_zero_servers_is_no_servers(self):
        plan = snapshot(job().ps(0).worker(2)).plan()
        assert (plan.status.mode, did(plan)) == (
            "Collective",
            [["Create demo-worker-0", "Create demo-worker-1"]],
        )

    def test_spellings_found_in_the_wild_are_told_once_a_generation(self):
        built = snapshot(job().worker(1).spec(cleanPolicy="OnCompletion"))
        assert [event.reason for event in built.plan().events] == ["AliasUsed"]
        assert settled(built).plan().events == ()

    def test_idle_cards_and_another_master_are_told_once_a_generation(self):
        env = [{"name": "MASTER_ADDR", "value": "10.0.0.1"}]
        limits = {"limits": {"nvidia.com/gpu": 8}}
        built = snapshot(job().worker(2, command=["python", "train.py"], env=env, resources=limits))
        idle, overridden = built.plan().events
        assert (idle.reason, overridden.reason) == ("IdleAccelerators", "MasterOverridden")
        assert overridden.message.startswith(
            "spec.worker.template.spec.containers[0].env[0]: Paddle prefers MASTER_ADDR and MASTER_PORT to"
        )
        assert settled(built).plan().events == ()

    @pytest.mark.parametrize("of", [job().worker(1), job().ps(1).worker(2)], ids=["single", "ps"])
    def test_another_master_matters_to_collective_jobs_only(self, of):
        first = of.manifest["spec"]["worker"]["template"]["spec"]["containers"][0]
        first["env"] = [{"name": "MASTER_PORT", "value": "1"}]
        assert snapshot(of).plan().events == ()

    def test_a_field_without_effect_is_reported_once_a_generation(self):
        built = snapshot(job().worker(1).spec(sampleSetRef={"name": "imagenet", "mountPath": "/data"}))
        assert [event.reason for event in built.plan().events] == ["NoEffect"]
        assert settled(built).plan().events == ()

    @pytest.mark.parametrize("recorder", [None, Recorder.of({}, "https://operator:8443", by_default=True)])
    def test_a_parked_process_without_the_recorder_is_reported(self, recorder):
        built = snapshot(job().worker(1).spec(restartPolicy={"parked": True}))
        built.recorder = recorder
        assert [event.reason for event in built.plan().events] == ([] if recorder else ["NoEffect"])


BEING_CREATED = {
    "containerStatuses": [{"name": "paddle", "state": {"waiting": {"reason": "ContainerCreating"}}}]
}

PHASES = {
    "no pods yet": (snapshot(PS_JOB), Phase.PENDING, "waiting for 4 of 4 pods to start"),
    "one not scheduled": (
        snapshot(PS_JOB).pods_with_addresses().pod("worker", 1),
        Phase.PENDING,
        "waiting for worker-1 (no node yet) to get an address; 3 of 4 pods have one",
    ),
    "none scheduled": (snapshot(PS_JOB).pods(), Phase.PENDING, "waiting for 4 of 4 pods to start"),
    "one waits for its volumes": (
        snapshot(PS_JOB).pods_with_addresses().pod("worker", 1, BEING_CREATED, node="node-a"),
        Phase.PENDING,
        "waiting for worker-1 (ContainerCreating, on node node-a) to get an address; 3 of 4 pods have one",
    ),
    "one that its kubelet has not looked at": (
        snapshot(PS_JOB).pods_with_addresses().pod("ps", 0, node="node-a"),
        Phase.PENDING,
        "waiting for ps-0 (on node node-a) to get an address; 3 of 4 pods have one",
    ),
    "two of them": (
        snapshot(PS_JOB).pods_with_addresses().pod("ps", 1).pod("worker", 0, BEING_CREATED, node="b"),
        Phase.PENDING,
        (
            "waiting for ps-1 (no node yet) and worker-0 (ContainerCreating, on node b) to get an address; "
            "2 of 4 pods have one"
        ),
    ),
    "many of them": (
        snapshot(job().worker(9)).waiting("worker", 0).waiting("worker", 1),
        Phase.PENDING,
        (
            "waiting for worker-2 (not created yet), worker-3 (not created yet), worker-4 (not created yet) "
            "and 4 more to get an address; 2 of 9 pods have one"
        ),
    ),
    "one that is in trouble is told before one that is late": (
        snapshot(PS_JOB).pods_with_addresses().pod("ps", 0).waiting("worker", 1, "ErrImagePull", "denied"),
        Phase.PENDING,
        "waiting for worker-1: ErrImagePull: denied (3 more of 4 pods are not running)",
    ),
    "all have addresses": (
        snapshot(PS_JOB).pods_with_addresses(),
        Phase.STARTING,
        "waiting for 4 of 4 pods to start",
    ),
    "an image is missing": (
        snapshot(PS_JOB).pods_running().waiting("worker", 1, "ErrImagePull", "denied"),
        Phase.STARTING,
        "waiting for worker-1: ErrImagePull: denied",
    ),
    "all run": (snapshot(PS_JOB).pods_running(), Phase.RUNNING, "2 ps and 2 workers running"),
    "one worker done": (
        snapshot(PS_JOB).pods_running().succeeded("worker", 0),
        Phase.RUNNING,
        "1 worker done, 2 ps and 1 worker running",
    ),
    "a pod is being replaced": (
        snapshot(PS_JOB).pods_running().leaving("worker", 0),
        Phase.PENDING,
        "waiting for worker-0: its old pod is still terminating",
    ),
}


@pytest.mark.parametrize(("built", "phase", "message"), PHASES.values(), ids=PHASES.keys())
def test_the_phase_and_what_it_waits_for(built, phase, message):
    status = built.plan().status
    assert (status.phase, status.message) == (phase, message)


def test_conditions_follow_the_phase_and_keep_their_time():
    built = settled(connected())
    again = built.later(60).plan().status
    running, completed, failed, suspended, hung = again.conditions
    assert (running.type, running.status, running.last_transition_time) == ("Running", "True", NOW)
    assert {completed.status, failed.status, suspended.status, hung.status} == {"False"}
    done = built.succeeded("worker", 0).succeeded("worker", 1).plan().status
    assert [(one.type, one.status) for one in done.conditions] == [
        ("Running", "False"),
        ("Completed", "True"),
        ("Failed", "False"),
        ("Suspended", "False"),
        ("Hung", "False"),
    ]


def test_phase_changes_are_events():
    assert [event.reason for event in connected().plan().events] == ["Running"]
    failed = settled(connected()).failed("worker", 0).plan()
    assert [(event.type, event.reason) for event in failed.events] == [("Warning", "Failed")]


def test_pods_that_come_later_are_told_when_they_are_there():
    assert snapshot(PS_JOB).plan().events_when_done == ()
    waiting = settled(snapshot(PS_JOB)).plan()
    assert [event.message for event in waiting.events_when_done] == ["created 2 ps and 2 workers"]


def test_the_scale_subresource_can_count_and_select():
    status = connected().plan().status
    assert status.worker.replicas == 2
    assert status.selector == "batch.paddlepaddle.org/job-name=demo,batch.paddlepaddle.org/role=worker"


def test_a_server_exit_is_looked_at_again_while_the_rest_converges():
    plan = connected().succeeded("ps", 0, seconds_ago=10).plan()
    assert plan.requeue_after_seconds == 20


def test_every_action_is_one_of_the_closed_set():
    worlds = [snapshot(PS_JOB), snapshot(PS_JOB).pods_with_addresses(), connected()]
    kinds = {type(action) for built in worlds for stage in built.plan().stages for action in stage}
    assert kinds <= {Create, Delete, AnnotatePod, ReplaceConfig, RemoveFinalizer}


def test_pods_of_a_deleted_job_of_the_same_name_are_waited_for():
    built = snapshot(job().worker(2)).pods_running()
    given = msgspec.structs.replace(built.build(), pods=(), predecessors=built.build().pods)
    decided = plan(given)
    assert decided.stages == ()
    assert (decided.status.phase, decided.status.message) == (
        Phase.PENDING,
        "waiting for 2 pods of a deleted job with the same name to terminate",
    )


def test_what_is_known_to_be_wrong_with_a_spec_is_not_looked_for_again():
    given = snapshot(job().worker(2)).build()
    wrong = (FieldError("spec.worker", "as somebody else has found"),)
    assert plan(given).status.reason == "WaitingForPods"
    assert plan(msgspec.structs.replace(given, spec_errors=wrong)).status.reason == "InvalidSpec"
