"""A control plane of Kubernetes 1.36 with gang scheduling switched on, built on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from devcluster import ControlPlane, ensure
from devcluster.settings import DEFAULT_CONTROLLERS
from paddlejob.api.resources import POD_GROUPS_V1ALPHA2
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CUSTOM_RESOURCE_DEFINITIONS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from tests.gang.nodes import Nodes
from tests.operator.gang_stage import GangStage
from tests.support.definitions import PADDLE_JOB_CRD

KUBERNETES = "kubernetes-1.36"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CONTROLLERS = (
    *DEFAULT_CONTROLLERS,
    "persistentvolume-binder-controller",
    "podgroup-protection-controller",
    "resourcequota-controller",
)
CRD = Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml"

Act = Callable[[GangStage], Awaitable[None]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a first build takes minutes, a test's time limit does not."""
    needed = any(item.get_closest_marker("gang") for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ensure((*COMPONENTS, "pki"), kubernetes=KUBERNETES)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A running cluster that knows PodGroups, with a real scheduler and no nodes."""
    with ControlPlane.start(
        COMPONENTS,
        controllers=CONTROLLERS,
        feature_gates={"GenericWorkload": True, "GangScheduling": True},
        runtime_config={"scheduling.k8s.io/v1alpha2": True},
        extra_args={"kube-controller-manager": ("--pvclaimbinder-sync-period=1s",)},
        kubernetes=KUBERNETES,
    ) as plane:
        plane.request("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), PADDLE_JOB_CRD)
        plane.await_found("/apis/batch.paddlepaddle.org/v1/paddlejobs")
        yield plane


@pytest.fixture
def nodes(plane: ControlPlane) -> Iterator[Nodes]:
    nodes = Nodes(plane)
    yield nodes
    nodes.remove_all()


@pytest.fixture
def perform(plane: ControlPlane) -> Iterator[Callable[..., None]]:
    """Return a function that plays an act in a fresh namespace, which is removed afterwards."""
    body = {"metadata": {"generateName": "gang-"}}
    name = plane.request("POST", "/api/v1/namespaces", body)["metadata"]["name"]
    plane.await_found(f"/api/v1/namespaces/{name}/serviceaccounts/default")

    async def main(act: Act, scheduling: str) -> None:
        async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
            await GangStage(client, name, scheduling, POD_GROUPS_V1ALPHA2).play(act)

    yield lambda act, scheduling="native": asyncio.run(main(act, scheduling))
    plane.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
    plane.request("DELETE", f"/api/v1/namespaces/{name}")
