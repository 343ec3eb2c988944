"""Installing and uninstalling with the commands that the documents show, on a cluster of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import ApiError, Cluster, ControlPlane
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.install import apply
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job
from tests.apiserver import installed
from tests.apiserver.test_crd import open_crd

EXAMPLES = sorted((installed.DEPLOY / "examples").glob("*.yaml"))
BOTH_FILES = (f"--filename={installed.CRD}", f"--filename={installed.OPERATOR}")
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/paddlejobs.batch.paddlepaddle.org"
pytestmark = pytest.mark.usefixtures("kubectl")

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/paddle-manager-role"


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """A control plane on which PaddleJob is unknown."""
    with ControlPlane.start() as plane:
        yield plane


@pytest.fixture
def ready(bare: ControlPlane) -> ControlPlane:
    """The same, with everything installed as the documents say."""
    if is_gone(bare, DEFINITION):
        bare.kubectl("create", "--validate=strict", *BOTH_FILES)
        bare.kubectl("wait", "--for=condition=Established", "crd/paddlejobs.batch.paddlepaddle.org")
        installed.refresh_garbage_collector(bare)
    return bare


def is_gone(cluster: Cluster, path: str) -> bool:
    try:
        cluster.request("GET", path)
    except ApiError as error:
        return error.code == 404
    return False


@pytest.mark.parametrize("runs", [True, False], ids=["with the operator running", "without an operator"])
async def test_uninstalling_ends_cleanly_with_jobs_still_there(ready, runs, tmp_path: Path) -> None:
    kubeconfig = installed.account_kubeconfig(ready)
    arguments = installed.container_arguments(installed.OPERATOR)
    system = installed.simulated_node(ready, installed.NAMESPACE)
    async with system as in_system, installed.simulated_node(ready, "default") as elsewhere:
        with installed.operators(kubeconfig, arguments, tmp_path) as [operator]:
            for stage in (in_system, elsewhere):
                metadata = {"name": "demo", "finalizers": [names.LEGACY_FINALIZER]}
                body = {**job().ps(1).worker(1).manifest, "metadata": metadata}
                await stage.client.create(PADDLE_JOBS, stage.namespace, body)
                await stage.phase("Running")
            if not runs:
                operator.kill()
            await asyncio.to_thread(ready.kubectl, "delete", "--timeout=50s", *BOTH_FILES)
            await elsewhere.gone()
    for path in (DEFINITION, ROLE, f"/api/v1/namespaces/{installed.NAMESPACE}"):
        assert is_gone(ready, path)


def test_installing_again_changes_nothing(ready: Cluster) -> None:
    def versions() -> list[str]:
        shown = ready.kubectl("get", *BOTH_FILES, "--output=jsonpath={.items[*].metadata.resourceVersion}")
        return shown.split()

    ready.kubectl("apply", "--server-side", "--force-conflicts", *BOTH_FILES)
    before = versions()
    ready.kubectl("apply", "--server-side", *BOTH_FILES)
    assert versions() == before
    assert len(before) == 1 + len(installed.objects(installed.OPERATOR))


SECRET = f"/api/v1/namespaces/{installed.NAMESPACE}/secrets/paddlejob-reports"
FILLED = {"tls.crt": "YQ==", "tls.key": "Yg=="}


@pytest.mark.parametrize("kind", ["Opaque", "kubernetes.io/tls"], ids=["ours", "of an earlier version"])
def test_installing_again_keeps_the_certificate(ready: Cluster, kind: str) -> None:
    ready.request("DELETE", SECRET)
    body = {"metadata": {"name": "paddlejob-reports"}, "type": kind, "data": FILLED}
    ready.request("POST", SECRET.rpartition("/")[0], body)
    files = f"--filename={installed.OPERATOR}"
    ready.kubectl("apply", "--server-side", "--force-conflicts", files)
    ready.kubectl("apply", files)
    objects = installed.objects(installed.OPERATOR)

    async def install() -> None:
        async with Client(HttpTransport(load_config(ready.kubeconfig))) as client:
            assert [line async for line in apply(client, objects, force=True, dry_run=False)]

    asyncio.run(install())
    assert ready.request("GET", SECRET)["data"] == FILLED


@pytest.mark.parametrize("file", [installed.OPERATOR, installed.DEPLOY / "v1" / "dashboard.yaml"])
def test_its_pods_are_admitted_where_the_restricted_standard_is_enforced(ready: Cluster, file: Path) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"
    ready.kubectl("label", "namespace", installed.NAMESPACE, "--overwrite", level)
    ready.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={file}")
    deployment = next(each for each in installed.objects(file) if each["kind"] == "Deployment")
    pod = {**deployment["spec"]["template"]}
    pod["metadata"] = {**pod["metadata"], "name": "operator"}
    path = f"/api/v1/namespaces/{installed.NAMESPACE}/pods?dryRun=All&fieldValidation=Strict"
    assert ready.request("POST", path, pod)["spec"]["securityContext"]["runAsNonRoot"] is True
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(ApiError, match="unrestricted capabilities"):
        ready.request("POST", path, pod)


def test_the_operator_for_old_clusters_is_accepted_as_it_is(ready: Cluster) -> None:
    """By a server of today: what old servers do not know, it has left out."""
    file = installed.DEPLOY / "v1beta1" / "operator.yaml"
    ready.kubectl("create", "namespace", "old-system")
    text = file.read_text().replace(installed.NAMESPACE, "old-system")
    options = ("--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server")
    said = ready.kubectl("apply", *options, "--filename=-", stdin=text)
    assert said.count("serverside-applied (server dry run)") == len(installed.objects(file))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted_as_it_is(ready: Cluster, example: Path) -> None:
    definition = open_crd("scheduling.volcano.sh", "v1beta1", "PodGroup")
    ready.apply(definition)
    said = ready.kubectl("create", "--validate=strict", "--dry-run=server", f"--filename={example}")
    assert said.count("created (server dry run)") == len(installed.objects(example))
