"""Pods in the networks of two nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devcluster import Cluster
from devcluster.control_plane.extra_node import extra_node
from devcluster.images.build import Image
from devcluster.node.runtime import NodeRuntime
from e2e.images import RESNET
from e2e.jobs import Space, collective, with_environment

MEET = """
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
total = paddle.to_tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "has the sum", total.item())
"""
START = 'echo "$MEET" >/tmp/meet.py && exec python -m paddle.distributed.launch /tmp/meet.py'


@pytest.fixture
def second_node(node: Cluster, images: list[Image]) -> Iterator[NodeRuntime]:
    with extra_node(node) as second:
        second.import_images(image for image in images if image.name == RESNET)
        yield second


@pytest.mark.usefixtures("second_node")
def test_two_workers_in_the_networks_of_their_nodes_train_together(space: Space) -> None:
    """On two nodes, because both have the same ports of the host."""
    body = collective("two", RESNET, ["sh", "-c", START], replicas=2, intranet="Host")
    job = space.submit(with_environment(body, {"MEET": MEET}))
    job.await_phase("Completed", within_seconds=240)
    assert len({pod["status"]["podIP"] for pod in job.pods()}) == 2
    assert all(pod["status"]["podIP"] == pod["status"]["hostIP"] for pod in job.pods())
    for rank in range(2):
        assert f"rank {rank} of 2 has the sum 3" in job.log(f"worker-{rank}").splitlines()
