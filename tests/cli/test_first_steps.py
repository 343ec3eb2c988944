"""What somebody needs who has installed the package and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from paddlejob.cli.main import main
from paddlejob.local.input.documents import read

DEPLOY = Path(__file__).parents[2] / "deploy" / "v1"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in a directory that is called My Model."""
    directory = tmp_path / "My Model"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return lambda *arguments: CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("arguments", "replicas"),
    [((), {"worker": 1}), (("collective",), {"worker": 2}), (("ps",), {"ps": 2, "worker": 2})],
)
def test_init_writes_a_job_that_can_be_run(run, arguments, replicas):
    done = run("init", *arguments)
    assert (done.exit_code, done.stdout) == (0, "wrote job.yaml; run it: paddlejob run job.yaml\n")
    job = read(Path("job.yaml").read_text()).job
    assert job.name == "my-model"
    assert {str(role): spec.replicas for role, spec in job.spec.roles()} == replicas


def test_init_overwrites_nothing(run):
    Path("job.yaml").write_text("mine")
    refused = run("init")
    assert (refused.exit_code, Path("job.yaml").read_text()) == (2, "mine")
    assert refused.stderr == "paddlejob: job.yaml exists; choose another with --file\n"
    assert run("init", "-f", "no/such/job.yaml").stderr == (
        "paddlejob: cannot write no/such/job.yaml: No such file or directory\n"
    )


def test_manifests_prints_what_the_documents_apply(run):
    shipped = [
        each for name in ("crd", "operator") for each in read_all((DEPLOY / f"{name}.yaml").read_text())
    ]
    assert read_all(run("manifests").stdout) == shipped


def test_manifests_takes_the_image_and_the_namespace(run):
    text = run("manifests", "--image", "mirror/operator:1", "-n", "team-a").stdout
    objects = {each["kind"]: each for each in read_all(text)}
    deployment = objects["Deployment"]
    assert deployment["metadata"]["namespace"] == objects["Namespace"]["metadata"]["name"] == "team-a"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "mirror/operator:1"
    assert "paddle-system" not in text


def read_all(text):
    return list(yaml.safe_load_all(text))
