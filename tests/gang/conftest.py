"""A control plane of Kubernetes 1.36 with gang scheduling switched on, built on first use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster import ControlPlane, ensure
from devcluster.settings import DEFAULT_CONTROLLERS
from paddlejob.kube.resource import CUSTOM_RESOURCE_DEFINITIONS

KUBERNETES = "kubernetes-1.36"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CRD = Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml"


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
        controllers=(*DEFAULT_CONTROLLERS, "podgroup-protection-controller"),
        feature_gates={"GenericWorkload": True, "GangScheduling": True},
        runtime_config={"scheduling.k8s.io/v1alpha2": True},
        kubernetes=KUBERNETES,
    ) as plane:
        plane.request("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), yaml.safe_load(CRD.read_text()))
        plane.await_found("/apis/batch.paddlepaddle.org/v1/paddlejobs")
        yield plane
