"""Pods in the networks of two nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devcluster import Cluster
from devcluster.control_plane.extra_node import extra_node
from devcluster.images.build import Image
from devcluster.node.runtime import NodeRuntime
from e2e.images import OPERATOR
from e2e.jobs import Space, collective

MEET = """
import os, socket, time
first = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0].rsplit(":", 1)
if os.environ["PADDLE_TRAINER_ID"] == "0":
    connection, peer = socket.create_server(("", int(first[1]))).accept()
    print("heard", connection.recv(99).decode(), "of", peer[0])
else:
    while True:
        try:
            connection = socket.create_connection((first[0], int(first[1])))
            break
        except OSError:
            time.sleep(0.2)
    connection.sendall(os.environ["POD_IP"].encode())
"""


@pytest.fixture
def second_node(node: Cluster, images: list[Image]) -> Iterator[NodeRuntime]:
    with extra_node(node) as second:
        second.import_images(image for image in images if image.name == OPERATOR)
        yield second


@pytest.mark.usefixtures("second_node")
def test_two_workers_in_the_networks_of_their_nodes_meet(space: Space) -> None:
    """On two nodes, because both have the same ports of the host; the image is a small one with Python."""
    job = space.submit(collective("two", OPERATOR, ["python3", "-c", MEET], replicas=2, intranet="Host"))
    job.await_phase("Completed", within_seconds=120)
    addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in job.pods()}
    assert len(set(addresses.values())) == 2
    assert all(pod["status"]["podIP"] == pod["status"]["hostIP"] for pod in job.pods())
    other = addresses["two-worker-1"]
    assert job.log("worker-0") == f"heard {other} of {other}\n"
