"""The chart installed, upgraded and uninstalled by a real helm on a real API server."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from devcluster import ControlPlane
from simkube.build import job
from tests.apiserver.test_crd import open_crd
from tests.deploy.test_chart import CHART

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl")]

JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/default/paddlejobs"
DEPLOYMENT = "deployment/paddle-controller-manager"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster that knows ServiceMonitors, as one with the Prometheus operator does."""
    with ControlPlane.start() as plane:
        monitors = open_crd("monitoring.coreos.com", "v1", "ServiceMonitor")
        plane.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", monitors)
        plane.kubectl("wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com")
        yield plane


@pytest.fixture
def release(helm, plane: ControlPlane):
    """Return a function that runs helm on the cluster; the release is gone afterwards."""

    def run(*arguments: str) -> str:
        return helm(*arguments, f"--kubeconfig={plane.kubeconfig}")

    yield run
    run("uninstall", "paddle", "--ignore-not-found")


def install(release, *options: str) -> str:
    """Install as the guide says."""
    return release("install", "paddle", str(CHART), "--create-namespace", *options)


def submit(plane: ControlPlane, name: str) -> None:
    body = {**job().worker(1).manifest, "metadata": {"name": name}}
    plane.request("POST", f"{JOBS}?fieldValidation=Strict", body)


def replicas(plane: ControlPlane) -> int:
    shown = plane.kubectl("-n", "paddle-system", "get", DEPLOYMENT, "--output=json")
    count: int = json.loads(shown)["spec"]["replicas"]
    return count


def test_a_release_is_installed_and_says_what_to_do_next(plane, release) -> None:
    notes = install(release)
    assert "kubectl create -f deploy/examples/wide_and_deep.yaml" in notes
    plane.kubectl("wait", "--for=condition=Established", "crd/paddlejobs.batch.paddlepaddle.org")
    submit(plane, "first")
    assert replicas(plane) == 1


def test_a_release_can_be_upgraded_with_everything_switched_on(plane, release) -> None:
    install(release)
    choices = (
        "replicas=2",
        "podDisruptionBudget.enabled=true",
        "metrics.serviceMonitor.enabled=true",
        "operator.logFormat=json",
        "dashboard.enabled=true",
    )
    notes = release("upgrade", "paddle", str(CHART), *(f"--set={choice}" for choice in choices))
    assert "port-forward service/paddle-dashboard 8787:80" in notes
    assert replicas(plane) == 2
    plane.kubectl("-n", "paddle-system", "get", "deployment,service,serviceaccount", "paddle-dashboard")
    found = plane.kubectl("-n", "paddle-system", "get", "poddisruptionbudget,servicemonitor", "--output=name")
    assert [line.rpartition("/")[2] for line in found.split()] == ["paddle-controller-manager"] * 2


SECRETS = "/api/v1/namespaces/paddle-system/secrets"
FILLED = {"tls.crt": "YQ==", "tls.key": "Yg=="}


def test_an_upgrade_keeps_the_certificate_that_the_operator_has_stored(plane, release) -> None:
    install(release)
    merge = {"content_type": "application/merge-patch+json"}
    plane.request("PATCH", f"{SECRETS}/paddlejob-reports", {"data": FILLED}, **merge)
    release("upgrade", "paddle", str(CHART), "--set=replicas=2")
    assert plane.request("GET", f"{SECRETS}/paddlejob-reports")["data"] == FILLED
    release("uninstall", "paddle")
    assert "paddlejob-reports" not in plane.kubectl("-n", "paddle-system", "get", "secrets", "--output=name")


def test_a_certificate_that_an_earlier_operator_has_created_is_left_alone(plane, release) -> None:
    body = {"metadata": {"name": "paddlejob-reports"}, "type": "kubernetes.io/tls", "data": FILLED}
    install(release)
    release("uninstall", "paddle")
    plane.request("POST", SECRETS, body)
    try:
        install(release)
        release("upgrade", "paddle", str(CHART), "--set=replicas=2")
        found = plane.request("GET", f"{SECRETS}/paddlejob-reports")
        assert (found["data"], found["type"]) == (FILLED, "kubernetes.io/tls")
    finally:
        plane.request("DELETE", f"{SECRETS}/paddlejob-reports")


def test_the_dashboard_is_added_as_its_guide_says(plane, release) -> None:
    install(release)
    guide = (CHART.parents[2] / "docs" / "dashboard.md").read_text()
    [arguments] = re.findall(r"^helm (upgrade .*)$", guide, flags=re.MULTILINE)
    release(*arguments.replace("deploy/helm/paddlejob", str(CHART)).split())
    plane.kubectl("-n", "paddle-system", "get", "deployment,service", "paddle-dashboard")


def test_jobs_outlive_the_release_and_are_found_by_the_next(plane, release) -> None:
    install(release)
    submit(plane, "kept")
    release("uninstall", "paddle")
    assert plane.request("GET", f"{JOBS}/kept")["metadata"]["name"] == "kept"
    with pytest.raises(subprocess.CalledProcessError):
        replicas(plane)
    install(release)
    assert plane.request("GET", f"{JOBS}/kept")["metadata"]["name"] == "kept"


def test_a_team_installs_it_for_its_own_namespace(plane, release) -> None:
    plane.kubectl("create", "namespace", "team-a")
    notes = install(release, "--set=watchNamespace=team-a,crds.enabled=false")
    assert "for jobs in namespace team-a" in notes
    assert plane.kubectl("-n", "team-a", "get", "roles", "--output=name").split() == [
        "role.rbac.authorization.k8s.io/paddle-history-role",
        "role.rbac.authorization.k8s.io/paddle-log-reader-role",
        "role.rbac.authorization.k8s.io/paddle-manager-role",
    ]


def test_an_installation_from_the_plain_files_is_taken_over(plane, release) -> None:
    files = CHART.parents[1] / "v1"
    plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={files / 'crd.yaml'}")
    plane.kubectl("apply", "--server-side", f"--filename={files / 'operator.yaml'}")
    plane.kubectl("-n", "paddle-system", "delete", DEPLOYMENT)
    install(release, "--take-ownership", "--force-conflicts")
    assert replicas(plane) == 1
