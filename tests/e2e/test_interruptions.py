from __future__ import annotations

from devcluster import Cluster
from e2e.conftest import await_operator
from e2e.jobs import Space, eventually, example, with_environment


def test_deleting_a_job_in_the_middle_leaves_nothing_of_it(space: Space) -> None:
    job = space.submit(with_environment(example("wide_and_deep_service"), {"EPOCHS": 50}))
    job.await_phase("Running")
    space.kubectl("delete", "pdj", job.name)
    assert not job.exists()
    for kind in ("pods", "services"):
        eventually(
            lambda kind=kind: not space.list(kind),
            within_seconds=60,
            says=lambda: space.kubectl("get", "all"),
        )
    eventually(
        lambda: [each["metadata"]["name"] for each in space.list("configmaps")] == ["kube-root-ca.crt"],
        within_seconds=30,
    )


def test_an_operator_that_is_restarted_goes_on_where_it_was(space: Space, node: Cluster) -> None:
    job = space.submit(with_environment(example("wide_and_deep"), {"EPOCHS": 1}))
    job.await_phase("Running")
    before = job.uids()
    node.kubectl("--namespace=paddle-system", "delete", "pods", "--selector=control-plane=controller-manager")
    await_operator(node)
    job.await_phase("Completed", within_seconds=300)
    assert job.uids() == before
    assert job.status().get("restarts", 0) == 0
