from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from devcluster import ApiError, Client, Cluster
from tests.support.waiting import eventually


def absent(cluster: Cluster, path: str) -> bool:
    try:
        cluster.request("GET", path)
    except ApiError as error:
        return error.code == 404
    return False


def config_map(name: str, owner: dict[str, object] | None = None) -> dict[str, object]:
    owners = []
    if owner is not None:
        meta = owner["metadata"]
        owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}]
    return {"metadata": {"name": name, "ownerReferences": owners}}


def test_serves_the_pinned_version(control_plane: Cluster) -> None:
    assert control_plane.request("GET", "/version")["gitVersion"] == control_plane.version == "v1.35.4"


def test_its_certificate_satisfies_the_strictest_verification(control_plane: Cluster) -> None:
    client = Client(control_plane.url, ca_file=control_plane.ca_file, token=control_plane.token)
    client._tls.verify_flags |= ssl.VERIFY_X509_STRICT
    assert client.text("/readyz") == "ok"


def test_a_client_that_trusts_other_authorities_refuses_it(control_plane: Cluster) -> None:
    system = Client(control_plane.url, ca_file=control_plane.ca_file)
    system._tls = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        system.text("/readyz")


def test_collects_a_config_map_whose_owner_is_gone(control_plane: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = control_plane.request("POST", path, config_map("owner"))
    control_plane.request("POST", path, config_map("owned", owner))
    control_plane.request("DELETE", f"{path}/owner")
    eventually(lambda: absent(control_plane, f"{path}/owned"))


def test_a_service_account_may_do_only_what_rbac_grants(control_plane: Cluster, namespace: str) -> None:
    token = control_plane.service_account_token(namespace, "default")
    client = Client(control_plane.url, ca_file=control_plane.ca_file, token=token)
    with pytest.raises(ApiError, match="cannot list resource") as refused:
        client.request("GET", f"/api/v1/namespaces/{namespace}/pods")
    assert refused.value.code == 403


@pytest.mark.usefixtures("kubectl")
def test_its_own_kubectl_acts_as_a_service_account(control_plane: Cluster, namespace: str) -> None:
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "default")
    answer = control_plane.kubectl("auth", "whoami", "-o", "name", "-o", "json", kubeconfig=kubeconfig)
    assert f"system:serviceaccount:{namespace}:default" in answer


def test_a_pod_is_accepted_in_a_fresh_namespace(control_plane: Cluster, namespace: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    created = control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    assert created["spec"]["serviceAccountName"] == "default"


def test_the_administrators_files_are_private(control_plane: Cluster) -> None:
    private = (control_plane.kubeconfig, Path(control_plane.directory) / "tokens.csv")
    assert [path.stat().st_mode & 0o077 for path in private] == [0, 0]
