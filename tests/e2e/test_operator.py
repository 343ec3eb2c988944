from __future__ import annotations

from devcluster import Cluster
from e2e.conftest import await_operator
from e2e.jobs import Space, eventually, example, losses, result, with_environment
from paddlejob.api import names

SYSTEM = "--namespace=paddle-system"


def test_its_metrics_are_served_by_the_service_that_comes_with_it(node: Cluster) -> None:
    path = "/api/v1/namespaces/paddle-system/services/paddle-controller-manager-metrics:8080/proxy/metrics"
    assert "\npaddlejob_" in node.kubectl("get", "--raw", path)


def test_its_log_is_read_with_kubectl_as_the_guide_does(node: Cluster) -> None:
    [pod] = node.kubectl(SYSTEM, "get", "pods", "--output=name").split()
    assert pod.startswith("pod/paddle-controller-manager-")
    eventually(lambda: "reconciling jobs" in node.kubectl(SYSTEM, "logs", pod), within_seconds=60)


def test_it_runs_on_uvloop(node: Cluster) -> None:
    program = (
        "from paddlejob.operator.ports.server import new_event_loop; print(type(new_event_loop()).__module__)"
    )
    deployment = "deployment/paddle-controller-manager"
    assert node.kubectl(SYSTEM, "exec", deployment, "--", "python", "-c", program) == "uvloop\n"


def test_it_goes_on_where_it_was_when_it_is_restarted_in_the_middle(space: Space, node: Cluster) -> None:
    job = space.submit(with_environment(example("wide_and_deep"), {"EPOCHS": 1}))
    job.await_phase("Running")
    before = job.uids()
    node.kubectl(SYSTEM, "delete", "pods", "--selector=control-plane=controller-manager")
    await_operator(node)
    job.await_phase("Completed", within_seconds=300)
    assert job.uids() == before
    assert job.status().get("restarts", 0) == 0
    log = job.log("worker-0").splitlines()
    assert losses(log)[-1] < losses(log)[0] / 1.5
    assert result(log, "auc") > 0.9


def test_deleting_a_job_in_the_middle_leaves_its_record_and_nothing_else(space: Space) -> None:
    job = space.submit(with_environment(example("wide_and_deep_service"), {"EPOCHS": 50}))
    job.await_phase("Running")
    space.kubectl("delete", "pdj", job.name)
    assert not job.exists()
    for kind in ("pods", "services"):
        eventually(lambda kind=kind: space.names(kind) == [], within_seconds=60)
    eventually(lambda: len(space.names("configmaps")) == 2, within_seconds=60)
    [record] = (item for item in space.list("configmaps") if item["metadata"]["name"] != "kube-root-ca.crt")
    assert names.LABEL_HISTORY in record["metadata"]["labels"]
