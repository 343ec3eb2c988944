"""One tenant with many jobs does not keep the others waiting, though all share one slow API server."""

from __future__ import annotations

import asyncio
import random

import pytest

from paddlejob.kube.client import Client
from paddlejob.operator.history import LOOK_SECONDS
from paddlejob.operator.progress import READ_SECONDS
from paddlejob.operator.settings import OperatorSettings
from simkube import virtual_loop
from simkube.build import job
from simkube.faults.tenants import LimitedTransport
from simkube.operator import Operator
from tests.support.simulated import simulated
from tests.support.tenants import WORST, Tenants

pytestmark = pytest.mark.slow

REQUEST_SECONDS = 0.15
"""Over all connections that makes about 200 a second, as a server on two cores answers."""
JOBS = 500
LATE_SECONDS = 2.0


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(OperatorSettings(), id="defaults"),
        # Then there are many more requests than connections.
        pytest.param(OperatorSettings(workers=100), id="many workers"),
    ],
)
@simulated
async def test_many_jobs_of_one_tenant_delay_those_of_others_by_less_than_two_seconds(cluster, settings):
    client = Client(LimitedTransport(cluster.server.transport("operator"), REQUEST_SECONDS))
    operator = asyncio.create_task(Operator(client, settings).run())
    loop = asyncio.get_running_loop()

    async def seconds_to_pods(name: str, namespace: str) -> float:
        began = loop.time()
        cluster.submit(job(name, namespace).ps(2).worker(2))
        await cluster.until(lambda: sum(pod.startswith(name) for pod in cluster.pod_names()) == 4)
        return loop.time() - began

    await asyncio.sleep(5)
    alone = await seconds_to_pods("alone", "small")
    for number in range(JOBS):
        cluster.submit(job(f"many-{number}", "large").ps(2).worker(2))
    delays = []
    for number in range(3):
        delays.append(await seconds_to_pods(f"beside-{number}", "small") - alone)
        await asyncio.sleep(1)
    assert max(delays) < LATE_SECONDS, delays
    assert len(cluster.pod_names()) < 4 * JOBS, "the many jobs were over before the others were measured"
    operator.cancel()
    await asyncio.wait([operator])


@pytest.fixture(scope="module")
def alone() -> dict[str, float]:
    """How long each thing takes while there is no other tenant."""

    async def main() -> dict[str, float]:
        return await Tenants().play()

    return virtual_loop.run(main())


ALLOWED_SECONDS = {"first step": READ_SECONDS, "next step": READ_SECONDS, "record": LOOK_SECONDS}
"""How much longer it may take for the quiet tenant because of the others: a second, or one more look."""


def check(beside: dict[str, float], alone: dict[str, float]) -> None:
    late = {name: beside[name] - alone[name] for name in alone}
    assert not {name for name in late if late[name] > ALLOWED_SECONDS.get(name, 1.0)}, late


@pytest.mark.timeout(300)
@pytest.mark.parametrize("worst", WORST.values(), ids=WORST.keys())
@simulated
async def test_a_tenant_is_as_fast_next_to_one_with(alone, worst):
    check(await Tenants().play(worst), alone)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
@simulated
async def test_a_tenant_is_as_fast_next_to_several_others(alone, seed):
    rng = random.Random(f"tenants {seed}")
    check(await Tenants().play(*rng.sample(list(WORST.values()), k=rng.choice((2, 3)))), alone)
