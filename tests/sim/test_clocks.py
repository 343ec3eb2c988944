"""Clocks that are wrong by ten minutes: of the operator, and of the nodes."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import PODS
from sim.deadlines import BOUND_SECONDS, LOOK_SECONDS, DeadlineMissedError, Deadlines
from sim.simulation import DEFINITION, SEEDS, play
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.build import job

pytestmark = pytest.mark.slow

SEEDS_PER_TEST = 5
TESTS = SEEDS // 150
"""Each seed is played five times; a few show whether any decision compares two clocks."""


def history(seed: int, **skew: float) -> list[tuple[float, str, str, str]]:
    writes = play(seed, **{"operator_skew_seconds": 0.0, "node_skew_seconds": 0.0} | skew).server.log.writes
    return [(write.at_seconds, write.identity, write.verb, write.name) for write in writes]


@pytest.mark.parametrize("batch", range(TESTS))
@pytest.mark.timeout(600)
def test_a_wrong_clock_changes_nothing(batch):
    """The times of all writes do not depend on the clocks of the operator and of the nodes."""
    for seed in range(batch * SEEDS_PER_TEST, (batch + 1) * SEEDS_PER_TEST):
        true = history(seed)
        for whose, skew in product(("operator_skew_seconds", "node_skew_seconds"), (600.0, -600.0)):
            assert history(seed, **{whose: skew}) == true, f"seed {seed}, {whose} {skew}"


OWNER = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "name": "demo"}
LATE = {
    "active": ({"activeDeadlineSeconds": 30}, {"phase": "Running", "startTime": "2030-01-01T00:00:00Z"}),
    "startup": ({"startupDeadlineSeconds": 30}, {"phase": "Pending"}),
    "failed by it": (
        {"startupDeadlineSeconds": 30},
        {"phase": "Failed", "reason": "StartupDeadlineExceeded"},
    ),
}
IN_TIME = {"phase": "Failed", "reason": "BackoffLimitExceeded"}
"""Other rules apply to its pods."""


@pytest.mark.parametrize(("limits", "status"), LATE.values(), ids=LATE)
def test_a_pod_that_outlives_a_deadline_is_noticed(limits, status):
    async def main() -> None:
        server = ApiServer()
        server.install(DEFINITION)
        rules = Deadlines(server)
        rules.enforce()
        of = job().worker(1).spec(**limits).metadata(uid="")
        stored = server.create(PADDLE_JOBS, of.manifest)
        owner = {**OWNER, "uid": stored["metadata"]["uid"]}
        metadata = {"name": "demo-worker-0", "namespace": "default", "ownerReferences": [owner]}
        containers = [{"name": "paddle", "image": "paddle"}]
        server.create(PODS, {"metadata": metadata, "spec": {"containers": containers}})
        late = {**stored, "status": status}
        for _ in range(int((30 + BOUND_SECONDS) / LOOK_SECONDS)):
            await asyncio.sleep(LOOK_SECONDS)
            rules.look(late)
        await asyncio.sleep(LOOK_SECONDS)
        rules.look({**stored, "status": IN_TIME})
        with pytest.raises(DeadlineMissedError, match="is out of time, but has"):
            rules.look(late)

    virtual_loop.run(main())
