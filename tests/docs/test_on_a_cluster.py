"""Commands of the documentation that need a cluster, run as they are written: kubectl and a real API server.

An operator runs, pods are simulated, and each page finds the cluster as it expects it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.real_cluster import RealCluster
from apiserver.test_crd import open_crd
from devcluster import Cluster, ControlPlane, ensure
from docs.blocks import ENGLISH, ROOT, RUN_ELSEWHERE, Command, blocks, matches
from docs.endless import until_it_speaks
from paddlejob.operator.settings import HistorySettings
from simkube.build import job
from simkube.kubelet.outcomes import Exit, Outcome, RunForever
from tests.support.waiting import eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

CRDS = (
    ROOT / "tests/schemas/volcano_podgroups.yaml",
    ROOT / "tests/kubeflow/definition.yaml",
)
BLOCKS = {
    page: [each for each in blocks(page, "bash", "console") if each.commands() and each.is_for_a_cluster]
    for page in ENGLISH
    if page not in RUN_ELSEWHERE
}
ENDLESS = re.compile(r" (?:-w|ui)\b")
PATIENCE_SECONDS = 240.0
PROGRESS = "epoch 1/3 step {}/{} loss {} eta: 0:09:00"


class Scene:
    """The cluster, and the shell of somebody who reads a page."""

    def __init__(self, real: RealCluster, shell: dict[str, Any]) -> None:
        self.real = real
        self.shell = shell

    def run(self, command: str) -> str:
        """Run a command that has to succeed, and return what it printed."""
        done = self._run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def shows(self, command: str, output: str) -> None:
        """Run a command that only looks, until it prints this."""
        last: list[str] = []

        def is_shown() -> bool:
            last[:] = [self._run(command).stdout]
            return matches(output, last[0])

        eventually(
            is_shown,
            within_seconds=PATIENCE_SECONDS,
            says=lambda: f"$ {command}\n{last[0]}--- instead of\n{output}",
        )

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            **self.shell,
        )

    def submit(self, name: str, *, workers: int = 2, ps: int = 0, **spec: Any) -> None:
        """Create a job."""
        built = job(name).worker(workers).spec(cleanPodPolicy="Never", **spec)
        built = built.ps(ps) if ps else built
        self.real.do(lambda: self.real.stage.submit(built))

    def path(self, plural: str, group: str = "batch.paddlepaddle.org/v1") -> str:
        return f"/apis/{group}/namespaces/{self.real.namespace}/{plural}"

    def is_(self, phase: str, name: str) -> None:
        eventually(
            lambda: (
                self.real.cluster.request("GET", self.path(f"paddlejobs/{name}"))
                .get("status", {})
                .get("phase")
                == phase
            )
        )


@pytest.fixture(scope="module")
def plane(kubectl: None) -> Iterator[Cluster]:
    """A cluster of its own: pages install what others must not find."""
    del kubectl
    with ControlPlane.start() as started:
        # As the pages do it, so that they own its fields.
        started.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/v1/crd.yaml"))
        started.apply(*CRDS, open_crd("kueue.x-k8s.io", "v1beta1", "ResourceFlavor"))
        yield started


@pytest.fixture
def scene(plane: Cluster, tmp_path: Path) -> Iterator[Scene]:
    """A namespace of its own, which kubectl uses, and a directory like a clone."""
    made = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "docs-"}})
    namespace = made["metadata"]["name"]
    plane.await_found(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    directory, programs = tmp_path / "clone", tmp_path / "bin"
    directory.mkdir()
    programs.mkdir()
    for name in ("deploy", "examples"):
        (directory / name).symlink_to(ROOT / name)
    (programs / "kubectl").symlink_to(ensure(["kubectl"])["kubectl"])
    path = os.pathsep.join((str(programs), f"{sys.prefix}/bin", os.environ["PATH"]))
    environ = {
        **os.environ,
        "PATH": path,
        "HOME": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "BROWSER": "true",
    }
    with RealCluster(plane, namespace, history=HistorySettings(), reads_progress=True).running() as real:
        yield Scene(real, {"cwd": directory, "env": environ})


def completing(pod: str) -> Outcome:
    """Servers serve, workers are done soon."""
    return RunForever() if "-ps-" in pod else Exit(0, 0.5)


def jobs_complete(scene: Scene) -> None:
    scene.real.stage.fates.otherwise = completing
    # For `submit job.yaml`, of the job that other commands call resnet.
    shutil.copy(ROOT / "deploy/examples/resnet.yaml", scene.shell["cwd"] / "job.yaml")


def resnet_runs(scene: Scene) -> None:
    scene.submit("resnet")
    scene.is_("Running", "resnet")


def a_module_is_missing(scene: Scene) -> None:
    error = "ModuleNotFoundError: No module named 'pandas'"
    scene.real.hold("wide-and-deep-worker-1", 1, error)
    scene.submit("wide-and-deep", ps=1)
    where = '  File "/app/train.py", line 3, in <module>'
    lines = ("Traceback (most recent call last):", where, "    import pandas", error)
    scene.real.write("wide-and-deep-worker-1", *lines)
    scene.is_("Running", "wide-and-deep")
    # Where the time went is told in whole seconds, and of a job that had none nothing is.
    time.sleep(2)
    scene.real.let_go("wide-and-deep-worker-1")
    scene.is_("Failed", "wide-and-deep")


def out_of_memory(scene: Scene) -> None:
    scene.real.hold("resnet-worker-1", 137, reason="OOMKilled")
    scene.submit("resnet", restartPolicy={"delaySeconds": 600, "maxDelaySeconds": 600})
    scene.real.write("resnet-worker-0", PROGRESS.format(340, 1000, 0.412))
    progress_is_known(scene, "resnet")
    scene.real.let_go("resnet-worker-1")


def progress_is_known(scene: Scene, name: str) -> None:
    eventually(
        lambda: "progress" in scene.real.cluster.request("GET", scene.path(f"paddlejobs/{name}"))["status"]
    )


def wide_and_deep_trains(scene: Scene) -> None:
    scene.submit("wide-and-deep", ps=2)
    scene.real.write("wide-and-deep-worker-0", PROGRESS.format(180, 1000, 0.1432))
    progress_is_known(scene, "wide-and-deep")


def resnet_completed_and_failed(scene: Scene) -> None:
    scene.real.stage.fates.otherwise = completing
    scene.submit("resnet")
    scene.is_("Completed", "resnet")
    scene.run("kubectl delete pdj resnet")
    scene.real.stage.fates.set("resnet-worker-1", Exit(1, 0.5, message="ValueError: bad shape"))
    scene.submit("resnet")
    scene.is_("Failed", "resnet")


def jobs_of_kubeflow(scene: Scene) -> None:
    corpus = ROOT / "tests/kubeflow/corpus/collective.yaml"
    shutil.copy(corpus, scene.shell["cwd"] / "kubeflow-job.yaml")
    for name in ("resnet", "another"):
        body = yaml.safe_load(corpus.read_text())
        body["metadata"] = {"name": name}
        scene.real.cluster.request("POST", scene.path("paddlejobs", "kubeflow.org/v1"), body)


def volcano_was_uninstalled(scene: Scene) -> None:
    text = (ROOT / "docs/volcano.md").read_text()
    group = "/apis/admissionregistration.k8s.io/v1"
    for name in sorted(set(re.findall(r"volcano-admission-service-\w+-(?:mutate|validate)", text))):
        kind = "mutatingwebhookconfigurations" if "mutate" in name else "validatingwebhookconfigurations"
        scene.real.cluster.request("POST", f"{group}/{kind}", {"metadata": {"name": name}})


SCENES: dict[str, Callable[[Scene], None]] = {
    "README.md": jobs_complete,
    "docs/cli.md": jobs_complete,
    "docs/elastic.md": resnet_runs,
    "docs/explain.md": a_module_is_missing,
    "docs/fault-tolerance.md": out_of_memory,
    "docs/history.md": resnet_completed_and_failed,
    "docs/kubeflow.md": jobs_of_kubeflow,
    "docs/progress.md": wide_and_deep_trains,
    "docs/volcano.md": volcano_was_uninstalled,
}
"""What has happened before the first command of a page; nothing on the others."""


def training_says_its_step(scene: Scene) -> None:
    scene.real.write("wide-ande-deep-worker-0", "epoch 1 step 49/392 loss 0.6324")


def volcano_finds_no_room(scene: Scene) -> None:
    """Do as Volcano's scheduler does with a group that its queue has no room for."""
    condition = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": "queue resource quota insufficient",
    }
    path = scene.path("podgroups/wide-ande-deep", "scheduling.volcano.sh/v1beta1")
    body = {"status": {"phase": "Pending", "conditions": [condition]}}
    scene.real.cluster.request("PATCH", path, body, content_type="application/merge-patch+json")


THEN: dict[str, Callable[[Scene], None]] = {
    "kubectl apply -f deploy/examples/wide_and_deep.yaml": training_says_its_step,
    "kubectl apply -f deploy/examples/wide_and_deep_volcano.yaml": volcano_finds_no_room,
}
"""What happens in the cluster after a command."""


@pytest.mark.parametrize("page", [page for page, found in BLOCKS.items() if found])
def test_commands_run_as_they_are_written(page, playing, scene):
    def run(command: Command) -> None:
        if ENDLESS.search(command.text):
            assert until_it_speaks(command.text, **scene.shell)
        elif command.output is None:
            scene.run(command.text)
        else:
            scene.shows(command.text, command.output)
        THEN.get(command.text, lambda _: None)(scene)

    SCENES.get(page, lambda _: None)(scene)
    playing(BLOCKS[page], run)
