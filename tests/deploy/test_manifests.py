"""What the shipped files say, without a cluster; tests/apiserver shows them to a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

import paddlejob
from paddlejob.cli.setup.operator import command
from scripts import manifests
from scripts.manifests import Install
from tests.support.definitions import documents

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = {
    "v1/operator.yaml": Install(),
    "v1/operator-namespaced.yaml": Install(namespaced=True),
    "v1beta1/operator.yaml": Install(old_cluster=True),
}


def objects(name: str) -> list[dict]:
    return documents((DEPLOY / name).read_text())


def find(name: str, kind: str) -> dict:
    return next(each for each in objects(name) if each["kind"] == kind)


def pod_spec(name: str) -> dict:
    return find(name, "Deployment")["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_loses_nothing(name):
    assert objects(name) == manifests.operator_objects(FILES[name])


@pytest.mark.parametrize("name", FILES)
def test_objects_have_the_names_that_the_documents_show(name):
    named = {(each["kind"], each["metadata"]["name"]) for each in objects(name)}
    assert {("Namespace", "paddle-system"), ("Deployment", "paddle-controller-manager")} <= named


@pytest.mark.parametrize("name", FILES)
def test_every_argument_is_one_of_the_operators(name):
    given = pod_spec(name)["containers"][0]["args"]
    with command.make_context("operator", list(given)):
        pass


@pytest.mark.parametrize("name", FILES)
def test_the_image_is_of_this_version(name):
    assert pod_spec(name)["containers"][0]["image"] == f"paddlejob-operator:{paddlejob.__version__}"


@pytest.mark.parametrize("name", FILES)
def test_the_selector_finds_the_pods_and_the_service_too(name):
    deployment, service = find(name, "Deployment"), find(name, "Service")
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"] == selector


@pytest.mark.parametrize("name", FILES)
def test_bindings_name_roles_and_accounts_that_are_there(name):
    present = {(each["kind"], each["metadata"]["name"]) for each in objects(name)}
    bindings = [each for each in objects(name) if each["kind"].endswith("RoleBinding")]
    assert bindings
    for binding in bindings:
        named = [binding["roleRef"], *binding["subjects"]]
        assert len(named) > 1
        assert {(each["kind"], each["name"]) for each in named} <= present


@pytest.mark.parametrize("name", FILES)
def test_no_right_is_a_wildcard(name):
    rules = [rule for each in objects(name) for rule in each.get("rules", ())]
    assert rules
    assert not [rule for rule in rules for words in rule.values() if "*" in words]


def test_one_namespace_leaves_the_cluster_alone():
    kinds = {each["kind"] for each in objects("v1/operator-namespaced.yaml")}
    assert not {kind for kind in kinds if kind.startswith("Cluster")}
    assert "--namespace=paddle-system" in pod_spec("v1/operator-namespaced.yaml")["containers"][0]["args"]


def test_every_mention_of_the_namespace_is_a_word_that_can_be_replaced():
    text = (DEPLOY / "v1/operator-namespaced.yaml").read_text().replace("paddle-system", "team-a")
    spaces = {each["metadata"].get("namespace", "team-a") for each in documents(text)}
    assert spaces == {"team-a"}


def test_an_old_cluster_is_given_nothing_that_it_does_not_know():
    old = find("v1beta1/operator.yaml", "Deployment")
    assert "seccompProfile" not in pod_spec("v1beta1/operator.yaml")["securityContext"]
    assert old["spec"]["template"]["metadata"]["annotations"] == {
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default"
    }
    assert old["spec"]["strategy"] == {"type": "Recreate"}
    assert "leases" not in (DEPLOY / "v1beta1/operator.yaml").read_text()


def test_apart_from_that_old_and_new_are_the_same():
    def rules(name: str) -> list[dict]:
        return find(name, "ClusterRole")["rules"]

    assert rules("v1beta1/operator.yaml") == rules("v1/operator.yaml")
    old, new = pod_spec("v1beta1/operator.yaml"), pod_spec("v1/operator.yaml")
    new["securityContext"].pop("seccompProfile")
    new["containers"][0]["args"] = []
    new["containers"][0]["ports"] = [
        port for port in new["containers"][0]["ports"] if port["name"] != "reports"
    ]
    assert old == new


@pytest.mark.parametrize("name", FILES)
def test_the_operator_may_read_and_fill_its_secret_and_touch_no_other(name):
    """RBAC cannot limit `create` to a name, so the manifests create the Secret."""
    rules = [rule for each in objects(name) for rule in each.get("rules", ())]
    secrets = [rule for rule in rules if "secrets" in rule["resources"]]
    takes_reports = FILES[name].takes_reports
    allowed = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["paddlejob-reports"]}
    assert secrets == [{**allowed, "verbs": ["get", "patch"]}] * takes_reports
    created = [each for each in objects(name) if each["kind"] == "Secret"]
    assert [each["metadata"]["name"] for each in created] == ["paddlejob-reports"] * takes_reports
    assert not any({"data", "stringData", "type"} & each.keys() for each in created)


@pytest.mark.parametrize("name", FILES)
def test_a_network_policy_opens_the_ports_for_metrics_and_reports_only(name):
    policy, template = find(name, "NetworkPolicy")["spec"], find(name, "Deployment")["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    opened = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    ports = {each["name"]: each["containerPort"] for each in template["spec"]["containers"][0]["ports"]}
    assert sorted(opened) == sorted(port for purpose, port in ports.items() if purpose != "health")
    assert {"metrics", "health"} <= ports.keys()
