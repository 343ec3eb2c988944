"""The shipped role is enough for gangs of Kubernetes itself, and all of it but one verb is used."""

from __future__ import annotations

import pytest

from behaviour.stage import Stage
from devcluster import ControlPlane
from paddlejob.api.resources import POD_GROUPS_V1ALPHA2
from paddlejob.kube.client import Client, RequestRecord
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from scripts import manifests
from tests.apiserver import gang_acts, installed
from tests.gang.nodes import Nodes

pytestmark = pytest.mark.gang

ONLY_LATER = {"patch"}
"""A PodGroup of v1alpha2 cannot be changed, only recreated; one of v1beta1 can."""


RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{installed.NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}


def create_account(plane: ControlPlane) -> None:
    """Create the operator's account and its rights from the shipped file."""
    for each in installed.objects(installed.OPERATOR):
        if each["kind"] in PATHS:
            plane.request("POST", PATHS[each["kind"]], each)


def fresh_namespace(plane: ControlPlane) -> str:
    made = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "rights-"}})
    name: str = made["metadata"]["name"]
    plane.await_found(f"/api/v1/namespaces/{name}/serviceaccounts/default")
    return name


async def test_the_role_is_enough_and_used(plane: ControlPlane, nodes: Nodes) -> None:
    nodes.add(cpu=8)
    create_account(plane)
    config = load_config(installed.account_kubeconfig(plane))
    seen: list[RequestRecord] = []

    def verbs() -> set[str]:
        return {record.verb for record in seen if record.resource == POD_GROUPS_V1ALPHA2.plural}

    async with (
        Client(HttpTransport(load_config(plane.kubeconfig))) as admin,
        Client(HttpTransport(config), observe=seen.append) as restricted,
        Client(gang_acts.Deaf(config), observe=seen.append) as deaf,
    ):
        await Stage(admin, fresh_namespace(plane), operator_client=restricted).play(gang_acts.native_gang)
        unseen = gang_acts.unseen(POD_GROUPS_V1ALPHA2, lambda: "get" in verbs())
        await Stage(admin, fresh_namespace(plane), operator_client=deaf).play(unseen)
    assert not [record for record in seen if record.code == 403]
    rules = [rule for rule in manifests.GANG_RULES if rule.group == POD_GROUPS_V1ALPHA2.group]
    assert verbs() | ONLY_LATER == {verb for rule in rules for verb in rule.verbs}
