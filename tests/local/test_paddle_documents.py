"""Every job of the documents trains with real Paddle as it is written, with EPOCHS=1."""

from __future__ import annotations

import shutil

import pytest

from documents import files
from local.test_paddle import collective_python, found, made_by, parameter_server_python
from paddlejob.client.manifest import Overrides, override
from paddlejob.local.runner import Ending

__all__ = ["collective_python", "parameter_server_python"]

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]

DOCUMENTS = {
    name: documents for name, documents in files.manifests(wild=False).items() if "-paddlejob" in name
}
RESNET = "registry.baidubce.com/paddle-operator/demo-resnet:v1"


def distinct() -> list[str]:
    """Return the files once for each content; several documents show the same job."""
    firsts: list[str] = []
    for name, documents in DOCUMENTS.items():
        if all(DOCUMENTS[first] != documents for first in firsts):
            firsts.append(name)
    return firsts


@pytest.mark.parametrize("name", distinct())
async def test_a_job_of_the_documents_trains(start, request, directory, name):
    job, *others = sorted(DOCUMENTS[name], key=lambda document: document["kind"] != "PaddleJob")
    pod = job["spec"]["worker"]["template"]["spec"]
    [container] = pod["containers"]
    is_collective = container["image"] == RESNET
    python = request.getfixturevalue("collective_python" if is_collective else "parameter_server_python")
    if any("persistentVolumeClaim" in volume for volume in pod.get("volumes", ())):
        shutil.copytree(made_by("example_data.py", "wide_and_deep"), directory / "wide_and_deep" / "data")
        made_by("../examples/data_demo/lay_out.py", f"--volume={directory}")
    one_epoch = override(job, Overrides(env={"EPOCHS": "1"}))
    run = await start(one_epoch, *others, python=python, volumes=(f"nfs-pvc={directory}",))
    assert await run.ended() is Ending.COMPLETED
    result, least = ("accuracy", 0.85) if is_collective else ("auc", 0.92)
    assert float(found(rf"^done {result} (\S+) ", run.log("worker-0", container["name"]))) >= least
