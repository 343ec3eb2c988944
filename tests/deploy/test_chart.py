"""The chart as helm renders it: the same operator as in the plain files, and every choice it offers."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import paddlejob
from paddlejob.api.crd.definition import crd_v1
from paddlejob.cli.setup.dashboard import command as dashboard_command
from paddlejob.cli.setup.operator import command
from scripts import manifests
from scripts.manifests import Install

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "paddlejob"
pytestmark = pytest.mark.apiserver

Objects = dict[tuple[str, str], dict[str, Any]]


def by_name(objects: list[dict[str, Any]]) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@pytest.fixture(scope="session")
def render(helm):
    def render(*settings: str) -> Objects:
        values = [f"--set={setting}" for setting in settings]
        text = helm("template", "paddle", CHART, *values)
        return by_name([each for each in yaml.safe_load_all(text) if each])

    return render


def container(objects: Objects) -> dict[str, Any]:
    return pod_spec(objects)["containers"][0]


def pod_spec(objects: Objects) -> dict[str, Any]:
    return objects["Deployment", "paddle-controller-manager"]["spec"]["template"]["spec"]


def without_labels(value: Any) -> Any:
    """Leave out what helm adds to find its objects again."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in ("labels", "matchLabels", "selector")}
        return {key: without_labels(each) for key, each in kept.items()}
    return [without_labels(each) for each in value] if isinstance(value, list) else value


def meaning(arguments: list[str]) -> dict[str, Any]:
    with command.make_context("operator", list(arguments)) as context:
        return context.params


@pytest.mark.parametrize(
    ("install", "settings"),
    [
        pytest.param(Install(), (), id="for the whole cluster"),
        pytest.param(Install(namespaced=True), ("watchNamespace=paddle-system",), id="for one namespace"),
    ],
)
def test_it_is_the_same_operator_as_in_the_plain_files(render, install, settings):
    rendered, plain = render(*settings), by_name(manifests.operator_objects(install))
    rendered.pop(("CustomResourceDefinition", "paddlejobs.batch.paddlepaddle.org"))
    plain.pop(("Namespace", "paddle-system"))
    arguments = [container(each).pop("args") for each in (rendered, plain)]
    assert meaning(arguments[0]) == meaning(arguments[1])
    assert without_labels(rendered) == without_labels(plain)


def test_the_dashboard_is_the_same_as_in_the_plain_file_and_only_there_when_asked_for(render):
    rendered, plain = render("dashboard.enabled=true"), by_name(manifests.dashboard_objects())
    added = {key: each for key, each in rendered.items() if key not in render()}
    assert without_labels(added) == without_labels(plain)
    pods = added["Deployment", "paddle-dashboard"]["spec"]["template"]["metadata"]["labels"]
    assert added["Service", "paddle-dashboard"]["spec"]["selector"].items() <= pods.items()
    operators = rendered["Service", "paddle-controller-manager-metrics"]["spec"]["selector"]
    assert not operators.items() <= pods.items()


def test_the_dashboard_has_an_account_without_rights_and_a_pod_without_its_token(render):
    rendered = render("dashboard.enabled=true")
    bound = [
        subject["name"]
        for (kind, _), each in rendered.items()
        if kind.endswith("RoleBinding")
        for subject in each["subjects"]
    ]
    assert bound
    assert "paddle-dashboard" not in bound
    spec = rendered["Deployment", "paddle-dashboard"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    (source,) = spec["volumes"][0]["projected"]["sources"]
    assert source == {
        "configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    }


def test_the_dashboard_is_told_its_names_its_path_and_its_certificate(render, tmp_path):
    settings = ("hosts={a.example,b:8443}", "pathPrefix=/paddle", "tlsSecret=mine", "resources.limits.cpu=2")
    rendered = render("dashboard.enabled=true", *(f"dashboard.{each}" for each in settings))
    spec = rendered["Deployment", "paddle-dashboard"]["spec"]["template"]["spec"]
    (only,) = spec["containers"]
    certificate = tmp_path / "tls.crt"
    certificate.touch()
    arguments = [each.replace("/tls/tls.crt", str(certificate)) for each in only["args"]]
    arguments = [each.replace("/tls/tls.key", str(certificate)) for each in arguments]
    with dashboard_command.make_context("dashboard", arguments) as context:
        meant = context.params
    assert (meant["hosts"], meant["path_prefix"]) == (("a.example", "b:8443"), "/paddle")
    assert meant["tls_cert_file"] == meant["tls_private_key_file"] == certificate
    assert only["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert only["resources"]["limits"]["cpu"] == 2
    assert spec["volumes"][1] == {"name": "tls", "secret": {"secretName": "mine"}}
    assert rendered["Service", "paddle-dashboard"]["spec"]["ports"][0]["port"] == 443


def test_its_selectors_find_its_pods(render):
    rendered = render("metrics.serviceMonitor.enabled=true", "podDisruptionBudget.enabled=true")
    deployment = rendered["Deployment", "paddle-controller-manager"]["spec"]
    service = rendered["Service", "paddle-controller-manager-metrics"]
    monitor = rendered["ServiceMonitor", "paddle-controller-manager"]["spec"]
    pods = deployment["template"]["metadata"]["labels"].items()
    budget = rendered["PodDisruptionBudget", "paddle-controller-manager"]["spec"]
    assert deployment["selector"]["matchLabels"].items() <= pods
    assert budget["selector"]["matchLabels"].items() <= pods
    policy = rendered["NetworkPolicy", "paddle-controller-manager"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pods
    assert service["spec"]["selector"].items() <= pods
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def test_the_definition_is_the_shipped_one_and_is_kept(render):
    definition = render()["CustomResourceDefinition", "paddlejobs.batch.paddlepaddle.org"]
    assert definition["spec"] == crd_v1()["spec"]
    assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_definition_may_be_left_to_others(render):
    assert not [kind for kind, _ in render("crds.enabled=false") if kind == "CustomResourceDefinition"]


def test_the_definition_may_go_with_the_release(render):
    definition = render("crds.keep=false")["CustomResourceDefinition", "paddlejobs.batch.paddlepaddle.org"]
    assert "annotations" not in definition["metadata"]


def test_jobs_may_be_elsewhere_than_the_operator(render):
    rendered = render("watchNamespace=team-a")
    spaces = {
        name: each["metadata"]["namespace"] for (kind, name), each in rendered.items() if kind == "Role"
    }
    assert spaces == {
        "paddle-manager-role": "team-a",
        "paddle-log-reader-role": "team-a",
        "paddle-history-role": "team-a",
        "paddle-leader-election-role": "paddle-system",
    }
    assert {kind for kind, _ in rendered if kind.startswith("Cluster")} == set()


def test_pods_report_only_where_their_tokens_can_be_reviewed(render):
    parts = {
        ("ClusterRole", "paddle-report-reviewer-role"),
        ("Role", "paddle-report-certificate-role"),
        ("Secret", "paddlejob-reports"),
        ("Service", "paddle-controller-manager-reports"),
    }
    rendered = render("operator.recorder=true")
    assert parts <= rendered.keys()
    pods = rendered["Deployment", "paddle-controller-manager"]["spec"]["template"]["metadata"]["labels"]
    service = rendered["Service", "paddle-controller-manager-reports"]["spec"]
    assert service["selector"].items() <= pods.items()
    assert meaning(container(rendered)["args"])["recorder"] == "on"
    for settings in (("operator.reports=false",), ("watchNamespace=team-a", "operator.recorder=true")):
        rendered = render(*settings)
        assert not parts & rendered.keys()
        assert meaning(container(rendered)["args"])["reports_url"] == ""
        assert len(container(rendered)["ports"]) == 2


def test_the_network_policy_opens_metrics_and_reports_only(render):
    def opened(*settings: str) -> list[tuple[int, list | None]]:
        ingress = render(*settings)["NetworkPolicy", "paddle-controller-manager"]["spec"]["ingress"]
        return [(rule["ports"][0]["port"], rule.get("from")) for rule in ingress]

    assert opened() == [(8080, None), (8443, None)]
    assert opened("operator.reports=false") == [(8080, None)]
    prometheus = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring"
    assert opened(prometheus)[0] == (8080, [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}])
    assert ("NetworkPolicy", "paddle-controller-manager") not in render("networkPolicy.enabled=false")


def test_without_an_election_the_old_operator_goes_first(render):
    rendered = render("leaderElection.enabled=false")
    assert rendered["Deployment", "paddle-controller-manager"]["spec"]["strategy"] == {"type": "Recreate"}
    assert "--leader-elect" not in container(rendered)["args"]
    assert ("Role", "paddle-leader-election-role") not in rendered


SETTINGS = {
    "image.repository=mirror/operator": ("containers", 0, "image"),
    "operator.extraArgs={--context=a}": ("containers", 0, "args", -1),
    "resources.limits.memory=1Gi": ("containers", 0, "resources", "limits", "memory"),
    "nodeSelector.pool=infra": ("nodeSelector", "pool"),
    "tolerations[0].operator=Exists": ("tolerations", 0, "operator"),
    "imagePullSecrets[0].name=mine": ("imagePullSecrets", 0, "name"),
    "priorityClassName=high": ("priorityClassName",),
    "affinity.nodeAffinity.a=b": ("affinity", "nodeAffinity", "a"),
    "serviceAccount.name=mine": ("serviceAccountName",),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_reaches_the_pod(render, setting):
    found = functools.reduce(lambda value, step: value[step], SETTINGS[setting], pod_spec(render(setting)))
    wanted = setting.partition("=")[2].strip("{}")
    assert found.removesuffix(f":{paddlejob.__version__}") == wanted


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        pytest.param("replica=2", "additional properties 'replica' not allowed", id="a typo"),
        pytest.param("replicas=two", "got string, want integer", id="a word for a number"),
        pytest.param("image.pullPolicy=Sometimes", "value must be one of", id="an unknown policy"),
        pytest.param("watchNamespace=Team_A", "does not match pattern", id="a bad namespace"),
        pytest.param("dashboard.hosts={https://a}", "does not match pattern", id="a URL for a name"),
        pytest.param("operator.logLevel=loud", "value must be one of", id="an unknown level"),
        pytest.param(
            "replicas=2,leaderElection.enabled=false", "there may be one replica only", id="two leaders"
        ),
        pytest.param(
            "metrics.service=false,metrics.serviceMonitor.enabled=true",
            "Prometheus finds the operator by that service",
            id="a monitor of nothing",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_a_reason(render, setting, sentence):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(setting)
    assert sentence in refused.value.stderr


def test_records_may_be_left_out_with_their_right(render):
    kept = render("operator.history.days=7", "operator.history.perNamespace=5")
    meant = meaning(container(kept)["args"])
    assert (meant["history"], meant["history_days"], meant["history_per_namespace"]) == (True, 7, 5)
    without = render("operator.history.enabled=false")
    assert not meaning(container(without)["args"])["history"]
    assert {name for _, name in kept} - {name for _, name in without} == {
        "paddle-history-role",
        "paddle-history-rolebinding",
    }


def test_every_choice_of_the_operator_is_one_of_its_own(render):
    chosen = render("operator.scheduling=auto", "operator.etcdServer=etcd:2379", "operator.logFormat=json")
    assert meaning(container(render("operator.basePort=2379"))["args"])["base_port"] == 2379
    meant = meaning(container(chosen)["args"])
    assert (meant["scheduling"], meant["etcd_server"], meant["log_format"]) == ("auto", "etcd:2379", "json")


def test_the_schema_offers_what_the_operator_accepts():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["operator"]["properties"]
    choices = {
        option.name: set(option.type.choices) for option in command.params if hasattr(option.type, "choices")
    }
    assert choices["scheduling"] == set(schema["scheduling"]["enum"])
    assert choices["log_level"] == set(schema["logLevel"]["enum"])
    assert choices["log_format"] == set(schema["logFormat"]["enum"])


def test_helm_finds_no_fault(helm):
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


def test_the_chart_is_of_the_version_of_the_operator():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == paddlejob.__version__


def test_the_schema_knows_every_value_and_no_other():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        known = set(schema["properties"]) - {"global", "claims"}
        assert set(values) == known, path
        assert schema["additionalProperties"] is False, path
        for name, value in values.items():
            inner = schema["properties"][name]
            if "properties" in inner:
                compare(value, inner, f"{path}.{name}")

    compare(values, schema, "values")
