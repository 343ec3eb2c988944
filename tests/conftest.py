"""One real control plane for all tests that ask for it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator

import pytest

from devcluster import ApiError, Cluster, ControlPlane, ensure
from devcluster.background import Background
from devcluster.programs import CONTROL_PLANE_PROGRAMS

if os.environ.get("PADDLEJOB_TEST_LOOP") == "uvloop":
    import uvloop

    def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
        """Run the tests that need a real event loop on uvloop: make test-unit LOOP=uvloop."""
        return {"uvloop": uvloop.new_event_loop}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a first build takes minutes, a test's time limit does not."""
    needed = any(item.get_closest_marker("apiserver") for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ensure(CONTROL_PLANE_PROGRAMS)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster; the workers of a parallel run share one, which ends with the run."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared_by_the_run = tmp_path_factory.getbasetemp().parent
        yield Background(shared_by_the_run / "control-plane").up(owner_pid=os.getppid())
        return
    with ControlPlane.start() as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A fresh namespace that is ready for pods."""
    body = {"metadata": {"generateName": "test-"}}
    name = control_plane.request("POST", "/api/v1/namespaces", body)["metadata"]["name"]
    path = f"/api/v1/namespaces/{name}"
    _await_service_account(control_plane, f"{path}/serviceaccounts/default")
    yield name
    control_plane.request("DELETE", path)


def _await_service_account(cluster: Cluster, path: str) -> None:
    """Pods are refused until the controller has made the namespace's service account."""
    deadline = time.monotonic() + 30
    while True:
        try:
            cluster.request("GET", path)
        except ApiError as error:
            if error.code != 404 or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
