"""The recorder is code that runs in pods: no pod mounts a ConfigMap unless it has our files."""

from __future__ import annotations

from typing import Any

import pytest

from paddlejob.api import names
from paddlejob.core.recorder import Recorder
from paddlejob.kube.resource import CONFIG_MAPS
from simkube.apiserver import refusals
from simkube.build import job
from simkube.kubelet.outcomes import RunForever
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

FILES = {"__init__.py": "code", "site/sitecustomize.py": "start"}
RECORDER = Recorder.of(FILES, "https://reports:8443")
DATA = {"__init__.py": "code", "site.sitecustomize.py": "start"}
OURS = {"data": DATA, "immutable": True}
LABELS = {names.LABEL_RESOURCE_NAME: RECORDER.name}
REMEDY = f"delete it with kubectl -n default delete configmap {RECORDER.name}"


def put(cluster: SimulatedCluster, labels: dict[str, str], content: dict[str, Any]) -> None:
    metadata = {"name": RECORDER.name, "namespace": "default", "labels": labels}
    cluster.server.create(CONFIG_MAPS, {"metadata": metadata, **content})


def mounts(cluster: SimulatedCluster) -> set[bool]:
    """Return whether pods mount the recorder."""
    names_of = ([each["name"] for each in pod["spec"].get("volumes", ())] for pod in cluster.pods())
    return {names.RECORDER in found for found in names_of}


def running_forever() -> SimulatedCluster:
    return SimulatedCluster(behaviour=lambda *_: RunForever())


@pytest.mark.parametrize(
    ("content", "is_ours"),
    [
        pytest.param(OURS, True, id="ours"),
        pytest.param({**OURS, "data": {**DATA, "site.sitecustomize.py": "evil"}}, False, id="other code"),
        pytest.param({**OURS, "data": {**DATA, "more.py": "evil"}}, False, id="one file more"),
        pytest.param({**OURS, "data": {}}, False, id="empty"),
        pytest.param({**OURS, "binaryData": {"evil.so": "AAAA"}}, False, id="binary data"),
        pytest.param({"data": DATA}, False, id="ours, but it can be changed later"),
    ],
)
@pytest.mark.parametrize("labels", [LABELS, {}], ids=["labelled", "not labelled"])
@simulated
async def test_a_config_map_that_is_there_is_mounted_only_with_our_files(labels, content, is_ours):
    cluster = running_forever()
    put(cluster, labels, content)
    async with cluster.running(volcano=False):
        cluster.controller.state.recorder = RECORDER
        cluster.submit(job().worker(2).spec(recorder=True))
        await cluster.until_phase("Running")
        assert mounts(cluster) == {is_ours}
        assert (REMEDY in cluster.status()["message"]) is not is_ours
    stored = cluster.server.get(CONFIG_MAPS, "default", RECORDER.name)
    assert stored["data"] == content["data"]


@simulated
async def test_pods_that_are_created_after_a_swap_have_none_until_it_is_deleted():
    cluster = running_forever()
    async with cluster.running(volcano=False):
        cluster.controller.state.recorder = RECORDER
        cluster.submit(job().worker(1).spec(recorder=True))
        await cluster.until_phase("Running")
        assert mounts(cluster) == {True}
        cluster.server.delete(CONFIG_MAPS, "default", RECORDER.name)
        put(cluster, LABELS, {"data": {"evil.py": "evil"}, "immutable": True})
        await cluster.until_it_says(REMEDY)
        cluster.edit(suspend=True)
        await cluster.until_phase("Suspended")
        await cluster.until(lambda: not cluster.pods())
        cluster.edit(suspend=False)
        await cluster.until_phase("Running")
        assert mounts(cluster) == {False}
        cluster.server.delete(CONFIG_MAPS, "default", RECORDER.name)
        await cluster.until(lambda: REMEDY not in cluster.status()["message"])
        cluster.submit(job("next").worker(1).spec(recorder=True))
        await cluster.until_phase("Running", "next")
        assert mounts(cluster) == {False, True}


@simulated
async def test_while_it_cannot_be_created_no_pod_mounts_its_name():
    """A tenant who has used up the quota could create it when the pods exist."""
    cluster = running_forever()

    def refuse(request: Any) -> None:
        if request.name == RECORDER.name:
            raise refusals.forbidden(request.resource, request.name, "exceeded quota: team")

    cluster.server.admission.append(refuse)
    async with cluster.running(volcano=False):
        cluster.controller.state.recorder = RECORDER
        cluster.submit(job().worker(1).spec(recorder=True))
        await cluster.until_phase("Running")
        assert mounts(cluster) == {False}
        assert (
            f"new pods get no recorder: cannot create ConfigMap {RECORDER.name}"
            in cluster.status()["message"]
        )
