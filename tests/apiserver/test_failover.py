"""Two replicas of the operator, as processes, with the rights and arguments that its file gives it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from devcluster import Cluster
from paddlejob.kube.lease import LeaseTiming
from paddlejob.kube.resource import LEASES
from paddlejob.operator.manager import LEASE_NAME
from simkube.build import job
from tests.apiserver import installed
from tests.apiserver.installed import OperatorProcess

TIMING = LeaseTiming()
SLACK_SECONDS = 10.0
"""For processes that share a machine with a whole control plane."""


@pytest.fixture
def installation(control_plane: Cluster, namespace: str, tmp_path: Path) -> Path:
    """The operator's file for this namespace, installed by the command that the guide shows."""
    file = tmp_path / "operator.yaml"
    file.write_text(installed.NAMESPACED.read_text().replace(installed.NAMESPACE, namespace))
    installed.apply(control_plane, installed.CRD, file)
    return file


async def test_a_stand_by_takes_over_when_the_leader_is_killed(
    control_plane: Cluster, namespace: str, installation: Path, tmp_path: Path
) -> None:
    kubeconfig = installed.account_kubeconfig(control_plane, namespace)
    arguments = installed.container_arguments(installation)
    assert arguments == ["--leader-elect", f"--namespace={namespace}"]
    async with installed.simulated_node(control_plane, namespace) as stage:
        with installed.operators(kubeconfig, arguments, tmp_path, count=2) as pair:
            await stage.submit(job("before").ps(1).worker(1))
            await stage.phase("Running", "before")
            pods = await uids(stage)
            leader, stand_by = sorted(pair, key=lambda each: not each.leads)
            assert (leader.leads, stand_by.leads) == (True, False)
            leader.kill()
            killed = await lease(stage)
            await stage.submit(job("after").worker(1))
            await stage.phase("Running", "after")
            taken = await lease(stage)
            assert (await uids(stage)).items() >= pods.items()
            assert (await stage.status("before"))["phase"] == "Running"
            await steps_down(stage, stand_by)
    assert taken["holderIdentity"] != killed["holderIdentity"]
    silent = moment(taken["acquireTime"]) - moment(killed["renewTime"])
    assert (
        silent.total_seconds() < TIMING.lease_duration_seconds + TIMING.retry_period_seconds + SLACK_SECONDS
    )


async def steps_down(stage, operator: OperatorProcess) -> None:
    """See that an operator that is asked to end gives its place to the next one at once."""
    assert operator.stop() == 0
    assert (await lease(stage))["holderIdentity"] == ""


async def uids(stage) -> dict[str, str]:
    return {name: (await stage.pod(name))["metadata"]["uid"] for name in await stage.names()}


async def lease(stage) -> dict:
    return (await stage.client.get(LEASES, stage.namespace, LEASE_NAME))["spec"]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
