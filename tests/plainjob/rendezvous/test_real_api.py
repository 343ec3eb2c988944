"""Plain Jobs on a real API server: its manifests, its permissions, and a whole training."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import yaml

from devcluster import Cluster
from documents import files
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport.config import in_cluster_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.rendezvous.address import reserve_loopback
from paddlejob.plainjob.rendezvous.peers import JobShape, PodIdentity
from paddlejob.plainjob.rendezvous.pod_lister import ClusterLister
from paddlejob.plainjob.rendezvous.rendezvous import Timing
from paddlejob.plainjob.run.console import Console
from paddlejob.plainjob.run.pod import Program
from paddlejob.plainjob.run.start import Participant, StartOptions
from paddlejob.plainjob.settings import read_settings
from plainjob.line_files import lines, run_split, write
from plainjob.test_manifests import JOB, environment

pytestmark = pytest.mark.apiserver

COLLECTIONS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


def create(cluster: Cluster, namespace: str, name: str, query: str = "") -> list[dict]:
    return [
        cluster.request("POST", COLLECTIONS[body["kind"]].format(namespace) + query, body)
        for body in yaml.safe_load_all((JOB / name).read_text())
    ]


@pytest.mark.parametrize("name", ["rbac.yaml", "data.yaml", "train.yaml"])
def test_a_manifest_has_no_field_that_kubernetes_does_not_know(control_plane, namespace, name):
    assert create(control_plane, namespace, name, "?dryRun=All&fieldValidation=Strict")


@pytest.mark.parametrize("name", ["004-plain-job-1-job", "004-plain-job-2-job"])
def test_kubernetes_takes_the_manifests_of_the_original_guide(control_plane, namespace, name):
    (body,) = files.read(files.HERE / f"{name}.yaml")
    path = COLLECTIONS["Job"].format(namespace)
    assert control_plane.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", body)


def mounted(cluster: Cluster, namespace: str, account: str, directory: Path) -> Path:
    """Write what the kubelet would mount into the pods of a service account."""
    write(directory / "token", cluster.service_account_token(namespace, account).encode())
    write(directory / "ca.crt", Path(cluster.ca_file).read_bytes())
    write(directory / "namespace", namespace.encode())
    return directory


@pytest.fixture
def account(control_plane, namespace, tmp_path):
    create(control_plane, namespace, "rbac.yaml")
    return mounted(control_plane, namespace, "paddle-cluster-job", tmp_path / "serviceaccount")


@pytest.fixture
def pod_variables(control_plane):
    host, _, port = control_plane.url.removeprefix("https://").rpartition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


@pytest.fixture
async def client(account, pod_variables):
    async with Client(HttpTransport(in_cluster_config(pod_variables, account))) as found:
        yield found


async def test_the_service_account_may_ask_what_start_asks(control_plane, namespace, client):
    create(control_plane, namespace, "train.yaml")
    lister = ClusterLister(client)
    assert await lister.job_shape(namespace, "paddle-cluster-job") == JobShape(3, 3)
    assert await lister.list_pods(namespace, "job-name=nobody") == ()


async def test_a_job_without_a_service_account_needs_rbac_yaml(
    control_plane, namespace, pod_variables, tmp_path
):
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if not any(one["metadata"]["name"] == "default" for one in control_plane.request("GET", path)["items"]):
        control_plane.request("POST", path, {"metadata": {"name": "default"}})  # as its controller does
    account = mounted(control_plane, namespace, "default", tmp_path / "default")
    async with Client(HttpTransport(in_cluster_config(pod_variables, account))) as client:
        lister = ClusterLister(client)
        assert await lister.job_shape(namespace, "paddle-cluster-job") is None
        with pytest.raises(SettingsError, match=f"run `kubectl apply -n {namespace} -f .*/rbac.yaml`"):
            await lister.list_pods(namespace, "job-name=paddle-cluster-job")
        create(control_plane, namespace, "rbac.yaml")
        async with asyncio.timeout(30):
            while not await is_allowed(lister, namespace):
                await asyncio.sleep(0.05)


async def is_allowed(lister: ClusterLister, namespace: str) -> bool:
    """Whether the authorizer has seen the binding."""
    try:
        return await lister.list_pods(namespace, "job-name=paddle-cluster-job") == ()
    except SettingsError:
        return False


async def test_the_service_account_may_do_nothing_else(namespace, client):
    with pytest.raises(SettingsError, match="may not list pods in kube-system"):
        await ClusterLister(client).list_pods("kube-system", "job-name=job")
    with pytest.raises(Exception, match="cannot create"):
        await client.create(PODS, namespace, {"metadata": {"name": "x"}, "spec": {"containers": []}})


def make_running_pod(cluster: Cluster, namespace: str, job: dict, index: int, address: str) -> None:
    """Stand in for the Job controller and the kubelet."""
    template = job["spec"]["template"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    body = {
        "metadata": {
            "name": f"pod-{index}",
            "labels": template["metadata"]["labels"],
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": template["spec"],
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    created = cluster.request("POST", path, body)
    created["status"] |= {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    cluster.request("PUT", f"{path}/pod-{index}/status", created)


async def test_three_pods_train_with_the_variables_of_the_manifest(
    control_plane, namespace, account, pod_variables, tmp_path
):
    job = create(control_plane, namespace, "train.yaml")[0]
    variables = environment(job["spec"]["template"]["spec"]["containers"][0])
    variables |= {"JOB_PATH": str(tmp_path), "JOB_NAMESPACE": namespace, "TRAIN_CONFIG_DIR": "programs"}
    write(tmp_path / "train.txt", lines(9))
    programs = Path(__file__).parents[1] / "programs"
    run_split(tmp_path / "paddle-cluster-job", 3, tmp_path / "train.txt", config_directories=(programs,))
    program = Program(command=f"{sys.executable} train.py", inherited={**os.environ, **pod_variables})
    chosen = StartOptions(program=program, timing=Timing(deadline_seconds=60, poll_seconds=0.1))
    async with AsyncExitStack() as stack:
        place = stack.enter_context(reserve_loopback(3, 15000, 5))
        settings = msgspec.structs.replace(read_settings(variables), port=place.port)
        # The addresses descend while the indexes ascend: the index has to win.
        for index, address in enumerate(reversed(place.addresses)):
            make_running_pod(control_plane, namespace, job, index, address)
        members = []
        for index in range(3):
            transport = HttpTransport(in_cluster_config(pod_variables, account))
            lister = ClusterLister(await stack.enter_async_context(Client(transport)))
            console = Console(sys.stdout.buffer, sys.stderr.buffer)
            members.append(Participant(settings, chosen, lister, PodIdentity(f"pod-{index}"), console))
        runs = (member.run(tmp_path / f"work-{index}") for index, member in enumerate(members))
        assert await asyncio.gather(*runs) == [0, 0, 0]
    shards = [(tmp_path / f"work-{index}" / "data" / "train.txt").read_text() for index in range(3)]
    assert shards == [f"line {n}\nline {n + 1}\nline {n + 2}\n" for n in (0, 3, 6)]
    assert place.addresses[2] in (settings.output_directory / "node_0" / "train.log").read_text()
