"""An operator on an API server whose CustomResourceDefinition is of an older release, and its upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from behaviour.stage import Stage
from devcluster import ControlPlane
from paddlejob.api.crd.definition import CRD_NAME
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job
from simkube.kubelet.outcomes import crash
from tests.apiserver import installed
from tests.support import inherited
from tests.support.waiting import eventually_async

RELEASED = Path(__file__).parents[1] / "release" / "released"
OPERATOR = RELEASED / "operator-0.1.0.yaml"
"""Its role does not grant the right to read definitions."""

OLD = {"0.1.0": RELEASED / "crd-0.1.0.yaml", "paddle-operator": inherited.definition()}


@pytest.fixture(params=OLD)
def old_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane of its own: all tests share the definitions of an API server."""
    with ControlPlane.start() as plane:
        plane.apply(OLD[request.param])
        yield plane


@pytest.mark.parametrize("may_read_definition", [True, False])
async def test_a_job_that_crashes_gets_no_pods_until_the_definition_is_upgraded(
    old_plane, may_read_definition
) -> None:
    installed.apply(old_plane, installed.OPERATOR if may_read_definition else OPERATOR)
    account = installed.account_kubeconfig(old_plane)
    async with (
        Client(HttpTransport(load_config(old_plane.kubeconfig))) as client,
        Client(HttpTransport(load_config(account))) as operator_client,
    ):
        stage = Stage(client, "default", operator_client=operator_client)
        stage.fates.otherwise = lambda _: crash(137, after_seconds=0.1)
        operator = stage.operator()
        stage.operator = lambda: operator
        await stage.play(lambda stage: _act(stage, operator.controller.schema, old_plane))


async def _act(stage: Stage, schema, plane: ControlPlane) -> None:
    await stage.submit(job().worker(1).spec(restartPolicy={"delaySeconds": 0}))
    await eventually_async(schema.problems, says=lambda: "no problem was found")
    assert CRD_NAME in schema.problems()[0]
    assert await stage.status() == {}
    await stage.submit(job("other").worker(1))
    assert await stage.names() == []
    installed.apply(plane, installed.CRD)
    # The job itself ends within its budget: the restarts are on record from now on.
    await stage.phase("Failed")
    assert len({start.pod for start in stage.kubelet.starts}) == 2
    assert (await stage.status())["restarts"] == 3
    assert schema.problems() == []
