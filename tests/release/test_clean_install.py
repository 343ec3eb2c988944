"""What somebody can do who has a Python and the wheel, and no clone."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from devcluster import ControlPlane
from devcluster.settings import DEFAULT_CONTROLLERS
from paddlejob.kube.client import PatchType
from paddlejob.kube.resource import PODS
from scripts import manifests
from scripts.release.source import ROOT
from tests.apiserver.installed import simulated_node
from tests.release.conftest import run_program
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.timeout(600)
SYSTEM = "paddle-system"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/paddle-controller-manager"


@pytest.mark.tools
def test_the_manifests_are_those_of_the_repository(run):
    printed = run("paddlejob", "install")
    shipped = [
        yaml.safe_load_all((ROOT / "deploy" / "v1" / name).read_text())
        for name in ("crd.yaml", "operator.yaml")
    ]
    assert list(yaml.safe_load_all(printed.stdout)) == [each for file in shipped for each in file]
    assert run("kubectl-pdj", "install").stdout == printed.stdout


@pytest.mark.tools
@pytest.mark.parametrize("installer", ["clean_venv", "pipx_programs"], ids=["pip", "pipx"])
def test_a_first_job_runs(installer, request, tmp_path):
    run = partial(run_program, request.getfixturevalue(installer), tmp_path)
    assert run("paddlejob", "init", "collective", "--name=first").returncode == 0
    (tmp_path / "train.py").write_text(
        "import os\nprint('rank', os.environ['PADDLE_TRAINER_ID'], 'trains')\n"
    )
    done = run("paddlejob", "run", "job.yaml", "--logs=all")
    assert done.returncode == 0, done.stderr
    assert {"rank 0 trains", "rank 1 trains"} <= {
        line.partition("| ")[2] for line in done.stdout.splitlines()
    }


@pytest.mark.paddle
def test_the_demo_trains(run, tmp_path):
    python, data = (
        subprocess.run(
            [sys.executable, ROOT / "scripts" / script, argument], check=True, capture_output=True, text=True
        )
        for script, argument in (("paddle_env.py", "2.6.2"), ("example_data.py", "wide_and_deep"))
    )
    wrote = run("paddlejob", "init", "--example=wide_and_deep")
    assert "paddlejob run wide_and_deep.yaml --python paddle/bin/python" in wrote.stdout, wrote.stderr
    example = tmp_path / "wide_and_deep"
    shutil.copytree(data.stdout.strip(), example / "data")
    model = tmp_path / "model"
    done = run(
        *("paddlejob", "run", example / "wide_and_deep.yaml", "--python", python.stdout.strip()),
        *("-e", f"MODEL_DIR={model}", "-e", "EPOCHS=1"),
    )
    assert done.returncode == 0, done.stderr
    assert (model / "wide_and_deep.pdmodel").exists()


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """A control plane on which PaddleJob is unknown and Deployments become pods."""
    with ControlPlane.start(
        controllers=(*DEFAULT_CONTROLLERS, "deployment-controller", "replicaset-controller")
    ) as plane:
        yield plane


@pytest.mark.tools
@pytest.mark.apiserver
async def test_install_applies_what_it_prints_and_waits_for_the_operator(run, bare):
    def install(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run("paddlejob", "install", "--apply", *arguments, KUBECONFIG=str(bare.kubeconfig))

    checked = await asyncio.to_thread(install, "--dry-run")
    assert checked.returncode == 0, checked.stderr
    assert "not checked: namespace paddle-system does not exist yet" in checked.stdout
    # There is no node yet.
    waited = await asyncio.to_thread(install, "--timeout=2s")
    assert waited.returncode == 124
    assert waited.stderr.startswith("error: the operator is not running after 2s: ")
    objects = 1 + len(manifests.operator_objects(manifests.Install()))
    assert waited.stdout.count(" created\n") == objects
    async with simulated_node(bare, SYSTEM) as stage:
        again = await asyncio.to_thread(install)
        assert again.returncode == 0, again.stderr
        *lines, last = again.stdout.splitlines()
        assert last == "the operator runs in namespace paddle-system and reconciles jobs in all namespaces"
        assert [line.rpartition(" ")[2] for line in lines] == ["unchanged"] * objects

        other = {"spec": {"replicas": 3}}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "paddle-controller-manager"},
            **other,
        }
        await asyncio.to_thread(
            bare.request,
            "PATCH",
            f"{DEPLOYMENT}?fieldManager=somebody&force=true",
            body,
            content_type=PatchType.APPLY.value,
        )
        refused = await asyncio.to_thread(install)
        assert (refused.returncode, 'conflict with "somebody"' in refused.stderr) == (2, True)
        assert refused.stderr.endswith("; use --force-conflicts to take over the fields\n")
        forced = await asyncio.to_thread(
            install, "--force-conflicts", "--replicas=2", "--image=mirror/operator:1"
        )
        assert "deployments/paddle-controller-manager changed" in forced.stdout, forced.stderr

        async def images() -> set[str]:
            listed = await stage.client.list(PODS, SYSTEM)
            return {each["spec"]["containers"][0]["image"] for each in listed.items}

        async def replaced() -> bool:
            return await images() == {"mirror/operator:1"}

        await eventually_async(replaced, says=lambda: "pods of the old image are left")


@pytest.mark.tools
@pytest.mark.apiserver
async def test_an_operator_for_one_namespace_needs_nothing_else(run, bare):
    arguments = ("install", "--apply", "-n", "team-a", "--namespaced", "--context=admin")
    refused = await asyncio.to_thread(run, "kubectl-pdj", *arguments, KUBECONFIG=str(bare.kubeconfig))
    assert (refused.returncode, "context" in refused.stderr) == (2, True)
    async with simulated_node(bare, "team-a"):
        done = await asyncio.to_thread(run, "kubectl-pdj", *arguments[:-1], KUBECONFIG=str(bare.kubeconfig))
        assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(
        "the operator runs in namespace team-a and reconciles jobs in namespace team-a\n"
    )
    assert "clusterroles" not in done.stdout


@pytest.mark.tools
def test_the_chart_can_be_written(run, tmp_path: Path):
    done = run("paddlejob", "install", "--chart", "chart")
    assert done.stdout.startswith("wrote chart; install it: helm install paddle chart ")
    original = ROOT / "deploy" / "helm" / "paddlejob"
    files = [path.relative_to(original) for path in original.rglob("*") if path.is_file()]
    assert [(tmp_path / "chart" / each).read_bytes() for each in files] == [
        (original / each).read_bytes() for each in files
    ]
    refused = run("paddlejob", "install", "--chart", "chart")
    assert (refused.returncode, refused.stderr) == (2, "error: cannot write chart: File exists\n")
