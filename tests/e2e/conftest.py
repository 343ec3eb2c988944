"""One real node with the operator installed as the documents say, and the images of the examples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from devcluster import Cluster, ensure
from devcluster.build.programs import CONTROL_PLANE_PROGRAMS, NODE_PROGRAMS
from devcluster.cache import cache_directory, locked
from devcluster.control_plane.background import Background
from devcluster.images.build import Image
from devcluster.node.runtime import NodeRuntime
from devcluster.requirements import require_node
from devcluster.settings import ClusterSettings
from e2e.images import ROOT, recipes
from e2e.jobs import Space
from e2e.report import REPORT

HERE = Path(__file__).parent
TEST_SECONDS = 600
IMAGES = pytest.StashKey[list[Image]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory, so that `-m "not node"` leaves them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("node")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: the first builds take minutes, a test's time limit does not."""
    needed = any(item.get_closest_marker("node") for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        require_node()
        with REPORT.timed("build programs and images"):
            session.config.stash[IMAGES] = build_everything()


def build_everything() -> list[Image]:
    """Build programs and images side by side: the ones wait for the compiler, the others for downloads."""
    with ThreadPoolExecutor(1) as aside:
        programs = aside.submit(ensure, (*CONTROL_PLANE_PROGRAMS, *NODE_PROGRAMS, "gpus"))
        images = [recipe.build() for recipe in recipes()]
        programs.result()
    return images


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured."""
    lines = REPORT.lines()
    if lines:
        terminalreporter.section("measured on the node")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def images(pytestconfig: pytest.Config) -> list[Image]:
    """The images that were built."""
    return pytestconfig.stash[IMAGES]


@pytest.fixture(scope="session")
def bare_node(images: list[Image]) -> Iterator[Cluster]:
    """A cluster with a node that has the images.

    One that runs already (`python -m devcluster up --node --name e2e`) is used, and left running.
    """
    for image in images:
        REPORT.note(f"image {image.name}", image.size)
    with (
        locked(cache_directory() / "e2e.lock"),
        running(Background(cache_directory() / "clusters" / "e2e")) as cluster,
    ):
        with REPORT.timed("give the images to the node"):
            NodeRuntime(cluster.directory).import_images(images)
        yield cluster


@contextmanager
def running(background: Background) -> Iterator[Cluster]:
    """Start the cluster and end it, unless it runs already."""
    if background.records():
        yield background.up(ClusterSettings.with_node())
        return
    with REPORT.timed("start the cluster"):
        cluster = background.up(ClusterSettings.with_node(), owner_pid=os.getpid())
    try:
        yield cluster
    finally:
        background.down()


@pytest.fixture(scope="session")
def node(bare_node: Cluster) -> Cluster:
    """The cluster with the operator, from the shipped manifests."""
    install_operator(bare_node)
    return bare_node


def install_operator(cluster: Cluster) -> None:
    """Install the operator of this tree, and wait until it runs."""
    files = [f"--filename={ROOT / 'deploy' / 'v1' / name}" for name in ("crd.yaml", "operator.yaml")]
    with REPORT.timed("install the operator"):
        answer = cluster.kubectl("apply", "--server-side", *files)
        if "paddle-controller-manager serverside-applied" in answer:
            # On a cluster that runs since yesterday the pod may be one of yesterday's image.
            cluster.kubectl("--namespace=paddle-system", "delete", "pods", "--all", "--wait=false")
        await_operator(cluster)


def await_operator(cluster: Cluster) -> None:
    """Wait until the operator's Deployment has the pods it wants."""
    deployment = "deployment/paddle-controller-manager"
    cluster.kubectl("--namespace=paddle-system", "rollout", "status", deployment, "--timeout=55s")


@pytest.fixture
def space(node: Cluster) -> Iterator[Space]:
    """A fresh namespace, emptied at once when the test is over: the node is small."""
    yield from fresh_namespace(node)


def fresh_namespace(cluster: Cluster) -> Iterator[Space]:
    name = cluster.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "e2e-"}})["metadata"][
        "name"
    ]
    cluster.kubectl(f"--namespace={name}", "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    yield Space(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    cluster.kubectl(f"--namespace={name}", "delete", "pods", "--all", "--force", "--grace-period=0")
