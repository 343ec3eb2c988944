"""`kubectl pdj` on a real API server, by a user who has the role `edit` in one namespace and nothing else."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from apiserver.real_cluster import RealCluster
from devcluster import Cluster as DevCluster
from paddlejob.cli.kubectl import group
from paddlejob.client.cluster import Cluster
from paddlejob.client.streams.port_forward import Forward
from scripts import manifests
from simkube.build import JobBuilder, job
from tests.support.editor import editor_kubeconfig

pytestmark = pytest.mark.apiserver

CRD = Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml"


@pytest.fixture
def real(control_plane: DevCluster, namespace: str) -> Iterator[RealCluster]:
    control_plane.apply(CRD)
    with RealCluster(control_plane, namespace).running() as cluster:
        yield cluster


@pytest.fixture
def editor(control_plane: DevCluster, namespace: str) -> Path:
    """The kubeconfig of a user with the role `edit`, which the shipped manifests extend to PaddleJobs."""
    roles = [
        each
        for each in manifests.operator_objects(manifests.Install())
        if any("aggregate-to" in label for label in each["metadata"].get("labels", {}))
    ]
    assert len(roles) == 2
    control_plane.apply(*roles)
    return editor_kubeconfig(control_plane, namespace)


@pytest.fixture
def pdj(editor: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.setenv("KUBECONFIG", str(editor))
    monkeypatch.setenv("HOME", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(group, [str(each) for each in arguments])


@pytest.fixture
def file(tmp_path: Path) -> Callable[[JobBuilder], Path]:
    def write(built: JobBuilder) -> Path:
        path = tmp_path / "job.yaml"
        name = built.manifest["metadata"]["name"]
        path.write_text(json.dumps({**built.manifest, "metadata": {"name": name}}))
        return path

    return write


def test_an_editor_can_do_everything_in_one_namespace(real, pdj, file):
    real.hold("demo-worker-1", 3, "ValueError: bad shape")
    path = file(job().worker(2).spec(backoffLimit=0, cleanPodPolicy="Never"))
    assert "server dry run" in pdj("submit", path, "--dry-run=server").stdout

    def train() -> None:
        real.write("demo-worker-0", "epoch 1")
        real.write("demo-worker-1", "Traceback (most recent call last):", "ValueError: bad shape")
        real.let_go("demo-worker-1")

    training = threading.Thread(target=train)
    training.start()
    followed = pdj("submit", path, "--logs")
    training.join()
    assert followed.exit_code == 1, followed.output
    assert "worker-0 | epoch 1" in followed.stdout
    assert "demo Failed: worker-1 exited with code 3: ValueError: bad shape" in followed.stderr
    assert pdj("logs", "demo", "--first-error").stdout.splitlines() == [
        "Traceback (most recent call last):",
        "ValueError: bad shape",
    ]
    assert pdj("explain", "demo").stdout.startswith("demo: Failed: ")
    (name,) = pdj("retry", "demo", "-o", "name").stdout.split()
    name = name.partition("/")[2]
    waited = pdj("wait", name, "--for=running", "--timeout=60s")
    assert waited.exit_code == 0, waited.output
    assert "PADDLE_TRAINER_ID=1" in pdj("env", name, "--rank=1").stdout
    assert "Running" in pdj("events", name).stdout
    assert "worker-1" in pdj("describe", name).stdout
    assert "worker-1" in pdj("top", name, "--once").stdout
    assert "scaling to 3" in pdj("scale", name, "--replicas=3").stdout
    assert "suspending" in pdj("suspend", name).stdout
    assert pdj("wait", name, "--for=suspended", "--timeout=60s").exit_code == 0
    assert "resuming" in pdj("resume", name).stdout
    assert [
        each["metadata"]["name"] for each in yaml.safe_load(pdj("get", "-o", "yaml").stdout)["items"]
    ] == [
        "demo",
        name,
    ]
    assert pdj("delete", "demo", name, "--timeout=60s").exit_code == 0
    assert "No PaddleJobs found" in pdj("get").stderr


def test_every_line_comes_once_through_the_real_api_server(real, pdj, file):
    """The API server passes times on in whole seconds, and closes what the kubelet breaks."""
    real.hold("demo-worker-0")
    assert pdj("submit", file(job().worker(1))).exit_code == 0

    def train() -> None:
        for number in range(40):
            real.write("demo-worker-0", f"line {number}", "the same")
            if number % 7 == 3:
                real.cut_logs()
        real.let_go("demo-worker-0")

    training = threading.Thread(target=train)
    training.start()
    followed = pdj("logs", "demo", "-f", "--no-prefix")
    training.join()
    assert followed.exit_code == 0, followed.output
    assert followed.stdout.splitlines() == [text for n in range(40) for text in (f"line {n}", "the same")]


def test_ports_are_forwarded_through_the_real_api_server(real, pdj, file, editor):
    assert pdj("submit", file(job().worker(1))).exit_code == 0
    assert pdj("wait", "demo", "--for=running", "--timeout=60s").exit_code == 0
    with socket.create_server(("127.0.0.1", 0)) as service:

        def answer() -> None:
            connection, _ = service.accept()
            with connection:
                connection.sendall(connection.recv(100).upper())

        thread = threading.Thread(target=answer)
        thread.start()
        assert asyncio.run(_through_the_pod(editor, service.getsockname()[1])) == b"HELLO"
        thread.join()


async def _through_the_pod(kubeconfig: Path, port: int) -> bytes:
    told: list[str] = []
    async with Cluster.open(kubeconfig=kubeconfig) as jobs:
        forwarder = await (await jobs.get("demo")).forwarder("0", told.append)
        async with forwarder.listening(Forward(0, port)) as local:
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            writer.write(b"hello")
            answered = await reader.read()
            writer.close()
    return answered or str(told).encode()


def test_missing_rights_are_named_with_the_right(real, pdj, file):
    result = pdj("get", "-n", "kube-system")
    expected = (
        "error: cannot list paddlejobs in namespace kube-system: needs get and list on "
        "paddlejobs.batch.paddlepaddle.org\n"
    )
    assert (result.exit_code, result.stderr) == (2, expected)
    assert "cannot list paddlejobs in all namespaces" in pdj("get", "-A").stderr
    result = pdj("submit", file(job().worker(1)), "-n", "kube-system")
    assert "cannot create paddlejobs in namespace kube-system: needs create on paddlejobs" in result.stderr
    result = pdj("logs", "nothing", "-f", "-n", "kube-system")
    assert "cannot get paddlejobs in namespace kube-system" in result.stderr


def test_what_the_api_server_refuses_is_named_by_field(real, pdj, file):
    result = pdj("submit", file(job().worker(0)), "--no-validate")
    assert result.exit_code == 2
    assert "error: spec.worker" in result.stderr
    result = pdj("submit", file(job().worker(1).spec(wroker={})), "--no-validate")
    assert (result.exit_code, 'unknown field "spec.wroker"' in result.stderr) == (2, True)
    assert "there is no PaddleJob demo in namespace" in pdj("logs", "demo").stderr
    assert pdj("submit", file(job().worker(1))).exit_code == 0
    result = pdj("scale", "demo", "5001")
    assert (result.exit_code, "spec.worker.replicas: Invalid value: 5001" in result.stderr) == (2, True)


def test_a_token_that_is_not_accepted_is_named(real, editor, pdj):
    config = yaml.safe_load(editor.read_text())
    config["users"][0]["user"] = {"token": "expired"}
    editor.write_text(yaml.safe_dump(config))
    result = pdj("get")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the API server does not accept your credentials: ")


def test_a_token_that_expires_while_logs_are_followed_is_named(real, control_plane, namespace, pdj, file):
    """The API server accepts no token of an account that is gone, though it may remember one for seconds."""
    real.hold("demo-worker-0")
    assert pdj("submit", file(job().worker(1))).exit_code == 0
    is_over = threading.Event()

    def expire() -> None:
        real.write("demo-worker-0", "training")
        control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/eve")
        while not is_over.wait(0.5):
            real.cut_logs()

    expiring = threading.Thread(target=expire)
    expiring.start()
    followed = pdj("logs", "demo", "-f")
    is_over.set()
    expiring.join()
    assert (followed.exit_code, followed.stdout) == (2, "worker-0 | training\n"), followed.output
    assert "error: the API server does not accept your credentials: " in followed.stderr
