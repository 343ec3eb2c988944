from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.attempts.elastic import WorkerRange, worker_range
from simkube.build import job, snapshot


def elastic_job(replicas: int = 3, **fields):
    of = job().worker(replicas).spec(elastic=1)
    of.manifest["spec"]["worker"].update(fields)
    return of


def live(of):
    built = snapshot(of).pods_with_addresses().config().pods_running()
    return built.status(built.plan().status)


def resized(built, replicas: int):
    """Let the user change the number of workers of a live job."""
    bigger = snapshot(elastic_job(replicas)).status(built.job.status)
    bigger._pods, bigger._config = built._pods, built._config
    return bigger


def names_of(plan, kind: str) -> list[str]:
    return [action.name for stage in plan.stages for action in stage if type(action).__name__ == kind]


RANGES = {
    "fixed size": (job().worker(2), None),
    "the field": (elastic_job(3), WorkerRange(1, 3)),
    "even when it says 0": (job().worker(2).spec(elastic=0), WorkerRange(1, 2)),
    "the bounds": (elastic_job(3, requests=2, limits=5), WorkerRange(2, 5)),
}


@pytest.mark.parametrize(("of", "expected"), RANGES.values(), ids=RANGES.keys())
def test_a_job_is_elastic_by(of, expected):
    assert worker_range(of.build().spec) == expected


@pytest.mark.parametrize("replicas", [2, 4])
def test_scaling_a_live_job_puts_it_together_anew(replicas):
    plan = resized(live(elastic_job(3)), replicas).plan()
    assert (plan.status.phase, plan.status.attempt, plan.status.restarts) == (Phase.SCALING, 1, 0)
    assert plan.status.message == f"scaling worker from 3 to {replicas}"
    assert names_of(plan, "Delete") == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
    assert [event.reason for event in plan.events] == ["Scaled"]


def test_after_scaling_all_pods_are_of_the_new_attempt():
    built = resized(live(elastic_job(2)), 3)
    built.status(built.plan().status)
    built._pods = {}
    plan = built.plan()
    assert names_of(plan, "Create") == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
    assert plan.status.phase is Phase.SCALING


def test_workers_that_nobody_waits_for_join_alone():
    of = job().ps(1).worker(2).spec(withGloo=0)
    built = live(of)
    bigger = snapshot(job().ps(1).worker(3).spec(withGloo=0)).status(built.job.status)
    bigger._pods, bigger._config = built._pods, built._config
    plan = bigger.plan()
    assert (names_of(plan, "Delete"), plan.status.base_attempt) == ([], 0)
    assert names_of(bigger.status(plan.status).plan(), "Create") == ["demo-worker-2"]


def crowded(of, placed: int):
    """Return a snapshot in which only some workers found a place."""
    built = snapshot(of.metadata(creationTimestamp="2026-01-01T12:00:00Z"))
    for index in range(built.spec.roles[0][1].replicas):
        if index < placed:
            built.waiting("worker", index)
        else:
            built.pod("worker", index)
    return built


def test_an_elastic_job_waits_for_all_its_workers_for_a_while():
    assert crowded(elastic_job(3), 2).later(20).plan().requeue_after_seconds == 40


def test_then_goes_on_with_fewer():
    plan = crowded(elastic_job(3), 2).later(60).plan()
    assert (plan.status.phase, plan.status.workers, plan.status.reason) == (Phase.SCALING, 2, "Shrunk")
    assert plan.status.message == "running with 2 of 3 workers"


def test_but_not_with_fewer_than_its_minimum():
    assert crowded(elastic_job(3, requests=3), 2).later(3600).plan().status.attempt == 0


def test_a_job_of_fixed_size_waits_for_ever():
    assert crowded(job().worker(3), 2).later(3600).plan().status.attempt == 0


def shrunk():
    """Return a job that runs with two of three workers."""
    built = crowded(elastic_job(3), 2).later(60)
    built.status(built.plan().status)
    built._pods, built._config = {}, None
    built.pods_with_addresses().config().pods_running()
    return built.status(built.plan().status)


def test_a_shrunk_job_runs():
    status = shrunk().job.status
    assert (status.phase, status.worker.ready, status.workers) == (Phase.RUNNING, "2/2", 2)


def test_a_pod_for_the_missing_worker_waits_in_the_wings():
    plan = shrunk().plan()
    assert names_of(plan, "Create") == ["demo-worker-2"]
    assert plan.stages[0][0].manifest["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] == "2"


def with_probe(address: str):
    built = shrunk()
    status = {"phase": "Pending", **({"podIP": address} if address else {})}
    built.pod("worker", 2, status)
    built._pods[list(built._pods)[-1]]["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] = "2"
    return built


def test_while_it_has_no_place_the_job_trains_on():
    plan = with_probe("").plan()
    assert (plan.stages, plan.status.phase) == ((), Phase.RUNNING)


def test_when_it_finds_a_place_the_job_grows_back_around_it():
    plan = with_probe("10.0.2.3").plan()
    assert (plan.status.phase, plan.status.reason, plan.status.workers) == (Phase.SCALING, "Grown", 0)
    assert plan.status.attempt == 2
    assert names_of(plan, "Delete") == ["demo-worker-0", "demo-worker-1"]


def test_it_grows_more_slowly_the_more_often_it_has_restarted():
    built = with_probe("10.0.2.3")
    built.phase(Phase.RUNNING, consecutive_restarts=3, attempt_time=built.now)
    plan = built.plan()
    assert (plan.status.phase, names_of(plan, "Delete")) == (Phase.RUNNING, [])
    assert plan.requeue_after_seconds == 20
    assert built.later(20).plan().status.reason == "Grown"


def test_it_does_not_grow_while_a_worker_is_done():
    """A new attempt would train again what is done."""
    plan = with_probe("10.0.2.3").succeeded("worker", 0).plan()
    assert (plan.status.phase, names_of(plan, "Delete")) == (Phase.RUNNING, [])


@pytest.mark.parametrize("address", ["", "10.0.2.3"])
def test_a_standby_pod_that_has_ended_is_replaced(address):
    built = with_probe(address)
    built._pods[list(built._pods)[-1]]["status"] |= {"phase": "Failed", "reason": "OutOfcpu"}
    plan = built.plan()
    assert (plan.status.phase, names_of(plan, "Delete")) == (Phase.RUNNING, ["demo-worker-2"])


def test_a_standby_pod_that_is_no_longer_wanted_goes():
    built = with_probe("10.0.2.3")
    plan = built.respecified(elastic_job(2)).plan()
    assert (plan.status.phase, names_of(plan, "Delete")) == (Phase.RUNNING, ["demo-worker-2"])


def test_a_job_that_is_no_longer_elastic_gets_all_its_workers():
    plan = shrunk().respecified(job().worker(3)).plan()
    assert (plan.status.phase, plan.status.reason, plan.status.workers) == (Phase.SCALING, "Scaled", 0)


def test_pods_that_were_just_created_are_waited_for_however_old_their_job_is():
    built = crowded(elastic_job(3), 2).later(3600)
    for pod in built._pods.values():
        pod["metadata"]["creationTimestamp"] = "2026-01-01T12:59:50Z"
    plan = built.plan()
    assert (plan.status.attempt, plan.requeue_after_seconds) == (0, 50)


def without_place(of, index: int, seconds: float = 60):
    """Return a job whose workers train alone, one of which was lost and has found no node for some time."""
    built = live(of).gone("worker", index)
    built.status(built.plan().status).later(10).pod("worker", index)
    pod = next(pod for pod in built._pods.values() if pod["metadata"]["name"] == f"demo-worker-{index}")
    pod["metadata"]["creationTimestamp"] = built.now
    assert built.job.status.reason == "ReplacedPod"
    return built.later(seconds)


ALONE = elastic_job(3).ps(1).spec(withGloo=0)


@pytest.mark.parametrize("index", [0, 2])
class TestWorkersThatTrainOnWithoutOneThatFindsNoPlace:
    """Shrinking restarts all pods; these workers do not need the missing one."""

    def test_the_job_runs_after_a_while(self, index):
        plan = without_place(ALONE, index).plan()
        assert (plan.status.attempt, plan.status.workers, names_of(plan, "Delete")) == (1, 0, [])
        assert plan.status.phase is Phase.RUNNING
        assert plan.status.message == (
            f"1 ps and 2 of 3 workers running; waiting for worker-{index}: no node yet"
        )

    def test_it_is_waited_for_before(self, index):
        plan = without_place(ALONE, index, 59).plan()
        assert (plan.status.phase, plan.requeue_after_seconds) == (Phase.RESTARTING, 1)

    def test_the_others_do_not_complete_the_job_while_a_node_may_be_found(self, index):
        """The pod of a drained worker is Pending for minutes, and has work left."""
        built = without_place(ALONE, index, 599).succeeded("worker", 1).succeeded("worker", 2 - index)
        plan = built.plan()
        assert (plan.status.phase, plan.requeue_after_seconds) == (Phase.RUNNING, 1)

    def test_the_others_complete_the_job(self, index):
        built = without_place(ALONE, index, 600).succeeded("worker", 1)
        assert built.plan().status.phase is Phase.RUNNING
        status = built.succeeded("worker", 2 - index).plan().status
        assert status.phase is Phase.COMPLETED
        assert status.message == f"2 of 3 workers succeeded; worker-{index} found no node"

    def test_one_that_is_on_its_way_out_is_waited_for(self, index):
        built = live(ALONE).later(3600).succeeded("worker", 1).succeeded("worker", 2 - index)
        assert built.leaving("worker", index).plan().status.phase is not Phase.COMPLETED

    def test_fewer_than_the_job_asks_for_are_not_enough(self, index):
        of = elastic_job(3, requests=3).ps(1).spec(withGloo=0)
        assert without_place(of, index, 3600).plan().status.phase is Phase.RESTARTING

    def test_it_joins_when_it_has_found_one(self, index):
        built = without_place(ALONE, index, 3600)
        built.status(built.plan().status).running("worker", index)
        assert built.plan().status.message == "1 ps and 3 workers running"


def test_a_job_of_fixed_size_waits_for_all():
    built = without_place(job().ps(1).worker(3).spec(withGloo=0), 2, 3600)
    assert built.plan().status.phase is Phase.RESTARTING


def by_etcd(of=None):
    return snapshot(of or elastic_job(2, requests=1, limits=4)).with_settings(etcd_server="10.0.0.9:2379")


class TestWithAnEtcd:
    def test_the_launcher_gets_what_it_reads_and_nothing_that_switches_it_off(self):
        config, pods = by_etcd().plan().stages
        data = config[0].manifest["data"]
        assert data["PADDLE_MASTER"] == "etcd://10.0.0.9:2379"
        assert (data["PADDLE_NNODES"], data["PADDLE_ELASTIC_LEVEL"]) == ("1:4", "1")
        assert data["PADDLE_JOB_ID"].startswith("default-demo-")
        assert "PADDLE_TRAINER_ENDPOINTS" not in data
        container = pods[0].manifest["spec"]["containers"][0]
        env = {one["name"]: one.get("value") for one in container["env"]}
        assert ("PADDLE_TRAINER_ID" in env, env["PADDLE_RANK"]) == (False, "-1")
        assert pods[0].manifest["spec"]["restartPolicy"] == "OnFailure"

    def test_scaling_adds_and_removes_pods_and_leaves_the_others_alone(self):
        built = by_etcd().pods_running().formed()
        bigger = by_etcd(elastic_job(3, requests=1, limits=4)).status(built.job.status)
        bigger._pods = built._pods
        plan = bigger.plan()
        assert (names_of(plan, "Delete"), plan.status.base_attempt) == ([], 0)
        assert names_of(bigger.status(plan.status).plan(), "Create") == ["demo", "demo-worker-2"]

    def test_a_lost_worker_is_replaced_alone(self):
        built = by_etcd().pods_running().formed()
        del built._pods[built.replicas()[1]]
        plan = built.plan()
        assert (names_of(plan, "Delete"), plan.status.reason) == ([], "ReplacedPod")

    def test_it_runs_without_a_worker_that_finds_no_node(self):
        built = by_etcd().pods_running().formed()
        built.status(built.gone("worker", 1).plan().status).pod("worker", 1)
        assert built.plan().status.phase is Phase.RESTARTING
        assert built.later(60).plan().status.phase is Phase.RUNNING
        assert built.succeeded("worker", 0).plan().status.phase is Phase.COMPLETED

    def test_jobs_with_servers_do_not_use_it(self):
        data = (
            by_etcd(job().ps(1).worker(1).spec(elastic=1))
            .pods_with_addresses()
            .plan()
            .stages[0][0]
            .manifest["data"]
        )
        assert "PADDLE_TRAINER_ENDPOINTS" in data


REFUSED = {
    "a pod that waits in the wings": ("create", "Pod", "demo-worker-2"),
    "a pod to be annotated": ("annotate", "Pod", "demo-worker-0"),
    "a deletion": ("delete", "Pod", "demo-worker-1"),
    "a service": ("delete", "Service", "demo-worker-1"),
    "the environment": ("update", "ConfigMap", "demo"),
}


@pytest.mark.parametrize("write", REFUSED.values(), ids=REFUSED)
def test_a_refused_write_does_not_make_a_running_job_pending(write):
    plan = shrunk().refused(*write, "exceeded quota: team").plan()
    assert (plan.status.phase, plan.status.reason) == (Phase.RUNNING, "PodsRunning")
    what = " ".join(write)
    assert plan.status.message == f"2 of 3 workers running; cannot {what}: exceeded quota: team; retrying"
    assert plan.status.conditions[0].status == "True"


def test_a_refused_write_is_the_reason_where_a_pod_is_not_up():
    plan = shrunk().waiting("worker", 1).refused(*REFUSED["a deletion"], "no").plan()
    assert (plan.status.phase, plan.status.reason) == (Phase.STARTING, "CreateFailed")


def test_a_pod_in_the_wings_is_not_what_a_job_waits_for():
    plan = shrunk().waiting("worker", 1).refused(*REFUSED["a pod that waits in the wings"], "no").plan()
    assert (plan.status.phase, plan.status.reason) == (Phase.STARTING, "PodsStarting")
