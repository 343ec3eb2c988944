"""What somebody needs who has installed the package and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paddlejob.cli.main import main
from paddlejob.cli.setup.init import EXAMPLES
from paddlejob.install import RESOURCES
from paddlejob.local.input.documents import read
from paddlejob.local.input.images import collect
from tests.support.definitions import documents

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
    assert refused.stderr == "error: job.yaml exists; choose another with --file\n"
    assert run("init", "-f", "no/such/job.yaml").stderr == (
        "error: cannot write no/such/job.yaml: No such file or directory\n"
    )


def test_install_prints_what_the_documents_apply(run):
    shipped = [
        each for name in ("crd", "operator") for each in documents((DEPLOY / f"{name}.yaml").read_text())
    ]
    assert documents(run("install").stdout) == shipped


def test_install_takes_the_image_and_the_namespace(run):
    text = run("install", "--replicas=2", "--image", "mirror/operator:1", "-n", "team-a").stdout
    objects = {each["kind"]: each for each in documents(text)}
    deployment = objects["Deployment"]
    assert deployment["metadata"]["namespace"] == objects["Namespace"]["metadata"]["name"] == "team-a"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "mirror/operator:1"
    assert deployment["spec"]["replicas"] == 2
    assert "paddle-system" not in text


def test_install_leaves_out_the_crd_and_the_rights_beyond_a_namespace(run):
    printed = documents(run("install", "--skip-crd", "--namespaced").stdout)
    assert printed == documents((DEPLOY / "operator-namespaced.yaml").read_text())


def test_install_adds_the_dashboard(run):
    printed = documents(
        run("install", "--dashboard", "-n", "team-a", "--replicas=2", "--image=mirror/a:1").stdout
    )
    deployments = {each["metadata"]["name"]: each for each in printed if each["kind"] == "Deployment"}
    dashboard = deployments["paddle-dashboard"]
    assert dashboard["metadata"]["namespace"] == "team-a"
    assert dashboard["spec"]["template"]["spec"]["containers"][0]["image"] == "mirror/a:1"
    assert {name: each["spec"].get("replicas", 1) for name, each in deployments.items()} == {
        "paddle-controller-manager": 2,
        "paddle-dashboard": 1,
    }


def test_every_kind_of_an_installation_can_be_applied(run):
    for arguments in ((), ("--namespaced",), ("--dashboard",)):
        for each in documents(run("install", *arguments).stdout):
            resource = RESOURCES[each["kind"]]
            assert resource.api_version == each["apiVersion"]
            assert resource.namespaced == ("namespace" in each["metadata"])


@pytest.mark.parametrize("example", EXAMPLES)
def test_init_writes_an_example_that_is_its_own_image(run, example):
    done = run("init", "--example", example)
    assert done.exit_code == 0, done.stderr
    folder = Path(example)
    assert folder.joinpath("requirements.txt").read_text().count(f"paddlepaddle=={EXAMPLES[example]}\n") == 1
    assert not folder.joinpath("data").exists()
    job = read(folder.joinpath(f"{example}.yaml").read_text()).job
    images = collect((), folder.resolve())
    for _, role in job.spec.roles():
        [container] = role.template["spec"]["containers"]
        assert images.find(container["image"]).directory == folder.resolve()
    refused = run("init", "--example", example)
    assert (refused.exit_code, "exists; remove it" in refused.stderr) == (2, True)


def test_an_example_elsewhere_knows_its_image_too(run):
    """The package carries the programs that the images of the examples are made of."""
    known = collect((), Path("/"))
    assert known.find("registry.baidubce.com/paddle-operator/demo-resnet:v1").directory.name == "resnet"
