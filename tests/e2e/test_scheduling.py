from __future__ import annotations

import pytest

from devcluster import Cluster
from devcluster.settings import NODE_NAME
from e2e.images import WIDE_AND_DEEP
from e2e.jobs import Body, Space, collective, templates

P100 = {"accelerator": "nvidia-tesla-p100"}


@pytest.fixture
def labelled(node: Cluster):
    """The node says that it has a P100."""
    label = "accelerator=nvidia-tesla-p100"
    node.kubectl("label", "node", NODE_NAME, label)
    yield
    node.kubectl("label", "node", NODE_NAME, "accelerator-")


def selecting(selector: dict[str, str], image: str = WIDE_AND_DEEP) -> Body:
    job = collective("choosy", image, ["true"])
    for template in templates(job):
        template["nodeSelector"] = selector
    return job


@pytest.mark.usefixtures("labelled")
def test_a_node_selector_that_fits_is_followed(space: Space) -> None:
    job = space.submit(selecting(P100))
    job.await_phase("Completed")


def test_a_node_selector_that_fits_no_node_is_named(space: Space) -> None:
    status = space.submit(selecting(P100)).await_message("node affinity/selector")
    assert status["phase"] == "Pending"
    assert status["message"].startswith("waiting for worker-0: unschedulable: 0/1 nodes are available")


def test_an_image_that_does_not_exist_is_named(space: Space) -> None:
    image = "registry.baidubce.com/paddle-operator/no-such-image:v1"
    status = space.submit(collective("wrong", image, ["true"])).await_message("Image")
    assert status["phase"] in ("Pending", "Starting")
    assert "waiting for worker-0: " in status["message"]
    assert image in status["message"]
