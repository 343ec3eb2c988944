"""What a platform team installs, as data: who the operator is, what it may do, and how it runs.

The three operator files under deploy/ are made from here, and the permissions and the definition that the
Helm chart installs. The other templates of the chart are written by hand; a test renders them and compares
the outcome with this.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import yaml

import paddlejob
from paddlejob.api import names
from paddlejob.api.crd.definition import CRD_NAME, crd_v1
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import VOLCANO_QUEUES
from paddlejob.core.actions import Kind
from paddlejob.core.gang.model import FLAVORS, GANG_RESOURCES
from paddlejob.kube.transport.config import SERVICE_ACCOUNT
from paddlejob.operator.manager import LEASE_NAME
from paddlejob.operator.reports.certificate import SECRET_NAME

NAMESPACE = "paddle-system"
PREFIX = "paddle"
"""What every object's name begins with; in the chart it is the name of the release.

The names are those that paddle-operator gives its objects, so that applying these files replaces it in place.
"""
IMAGE = f"paddlejob-operator:{paddlejob.__version__}"
METRICS_PORT = 8080
HEALTH_PORT = 8081
REPORTS_PORT = 8443
REPORTS_SERVICE = f"{PREFIX}-controller-manager-reports"
REPORTS: JsonObject = {"name": "reports", "containerPort": REPORTS_PORT, "protocol": "TCP"}
USER = 65532
SELECTOR = {"control-plane": "controller-manager"}
DASHBOARD_SELECTOR = {"control-plane": "dashboard"}
LABELS = {"app.kubernetes.io/name": "paddlejob", "app.kubernetes.io/component": "operator"}
RBAC = "rbac.authorization.k8s.io"
OLD_SECCOMP_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"


class Rule(msgspec.Struct, frozen=True):
    """A permission: verbs on resources of one API group, perhaps only on objects of certain names."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def manifest(self) -> JsonObject:
        """Return it as RBAC writes it."""
        rule: JsonObject = {"apiGroups": [self.group], "resources": [self.resource]}
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule | {"verbs": list(self.verbs)}


JOB_RULES = (
    Rule(names.GROUP, names.PLURAL, ("list", "watch", "patch", "delete")),
    Rule(names.GROUP, f"{names.PLURAL}/status", ("patch",)),
    # Nothing is written there; clusters that check owner references ask for it when a pod names its job.
    Rule(names.GROUP, f"{names.PLURAL}/finalizers", ("update",)),
    Rule("", "pods", ("list", "watch", "get", "create", "patch", "delete")),
    # Marks pods that have no node when their job ends.
    Rule("", "pods/status", ("patch",)),
    Rule("", "services", ("list", "watch", "get", "create", "delete")),
    Rule("", "configmaps", ("list", "watch", "get", "create", "update")),
    Rule("", "events", ("create", "patch")),
)
"""What the operator does where jobs are. A test sees it use every one of them, and no other."""

_GANG_VERBS = ("list", "watch", "get", "create", "patch", "delete")

WORKLOADS = GANG_RESOURCES[Kind.WORKLOAD_V1BETA2]
_GANG_OBJECTS = dict.fromkeys((resource.group, resource.plural) for resource in GANG_RESOURCES.values())

LOG_RULES = (Rule("", "pods/log", ("get",)),)
"""What it reads the progress of jobs from. Without it, jobs run all the same and show no progress."""

HISTORY_RULES = (Rule("", "configmaps", ("delete",)),)
"""What it removes old records of jobs with; without it, turn `--history` off."""
REVIEW_RULES = (Rule("authentication.k8s.io", "tokenreviews", ("create",)),)
"""What it verifies the reports of pods by. It belongs to no namespace."""

REPORT_RULES = (Rule("", "secrets", ("get", "patch"), (SECRET_NAME,)),)
"""Rights on the certificate of the reports port. The manifests create its Secret: RBAC cannot limit `create`
to a name, and whoever may create any Secret can have one filled with the token of another account."""

GANG_RULES = (
    *(Rule(group, plural, _GANG_VERBS) for group, plural in _GANG_OBJECTS),
    Rule(WORKLOADS.group, f"{WORKLOADS.plural}/status", ("patch",)),
)
"""What it does besides where pods of a job are scheduled together."""

NAMESPACE_RULES = JOB_RULES + GANG_RULES
_CLUSTER_OBJECTS = dict.fromkeys(
    (resource.group, resource.plural) for resource in (*FLAVORS.values(), VOLCANO_QUEUES)
)
CLUSTER_RULES = (
    *NAMESPACE_RULES,
    *(Rule(group, plural, ("list", "watch")) for group, plural in _CLUSTER_OBJECTS),
    Rule("apiextensions.k8s.io", "customresourcedefinitions", ("get",), (CRD_NAME,)),
)
"""Kueue's flavors, Volcano's queues and definitions belong to no namespace: a Role cannot grant them."""

LEASE_RULES = (
    Rule("coordination.k8s.io", "leases", ("create",)),
    Rule("coordination.k8s.io", "leases", ("get", "update"), (LEASE_NAME,)),
)
"""What the election of a leader needs, where the operator is."""

EDITOR_RULES = (
    Rule(
        names.GROUP,
        names.PLURAL,
        ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    ),
    Rule(names.GROUP, f"{names.PLURAL}/scale", ("get", "update", "patch")),
    Rule(names.GROUP, f"{names.PLURAL}/status", ("get",)),
)
VIEWER_RULES = (
    Rule(names.GROUP, names.PLURAL, ("get", "list", "watch")),
    Rule(names.GROUP, f"{names.PLURAL}/scale", ("get",)),
    Rule(names.GROUP, f"{names.PLURAL}/status", ("get",)),
)
"""What people may do: Kubernetes makes the first a part of its roles edit and admin, the second of view."""


class Install(msgspec.Struct, frozen=True):
    """One way to install the operator."""

    namespaced: bool = False
    """It works in its own namespace only, and needs no right beyond it."""
    old_cluster: bool = False
    """For Kubernetes before 1.16: no Lease to be elected by, and seccomp is an annotation."""

    @property
    def takes_reports(self) -> bool:
        """Whether pods may report: that needs tokens bound to pods, and a right of the whole cluster."""
        return not self.namespaced and not self.old_cluster


def operator_objects(install: Install) -> list[JsonObject]:
    """Return all objects of an installation, in the order in which they are to be created."""
    namespace, rules = (NAMESPACE, NAMESPACE_RULES) if install.namespaced else (None, CLUSTER_RULES)
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": SELECTOR}},
        _object("v1", "ServiceAccount", "manager-sa"),
        *_granted("manager-role", rules, namespace),
        *_granted("log-reader-role", LOG_RULES, namespace),
        *_granted("history-role", HISTORY_RULES, namespace),
        _deployment(install),
        _metrics_service(),
        _network_policy(install),
    ]
    if not install.old_cluster:
        objects[2:2] = _granted("leader-election-role", LEASE_RULES, NAMESPACE)
    if not install.namespaced:
        objects[-3:-3] = [
            _user_role("job-editor", EDITOR_RULES, "edit"),
            _user_role("job-viewer", VIEWER_RULES, "view"),
        ]
    if install.takes_reports:
        objects += [
            *_granted("report-reviewer-role", REVIEW_RULES, None),
            *_granted("report-certificate-role", REPORT_RULES, NAMESPACE),
            _certificate_secret(),
            _reports_service(),
        ]
    return objects


def dashboard_objects() -> list[JsonObject]:
    """Return the dashboard for many users: a program, its address, and an account that may do nothing."""
    labels = {**LABELS, "app.kubernetes.io/component": "dashboard"}
    account = _object("v1", "ServiceAccount", "dashboard") | {"automountServiceAccountToken": False}
    service = _object("v1", "Service", "dashboard")
    port = {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
    service["spec"] = {"selector": DASHBOARD_SELECTOR, "ports": [port]}
    deployment = _object("apps/v1", "Deployment", "dashboard")
    deployment["spec"] = {
        # Who has signed in is known to one process only.
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": DASHBOARD_SELECTOR},
        "template": {"metadata": {"labels": {**labels, **DASHBOARD_SELECTOR}}, "spec": _dashboard_pod()},
    }
    objects = [account, deployment, service]
    for each in objects:
        each["metadata"]["labels"] = labels
    return objects


def _dashboard_pod() -> JsonObject:
    probe = {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 3}
    # The certificate of the API server, without a token.
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    return {
        "serviceAccountName": f"{PREFIX}-dashboard",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "dashboard",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["paddlejob", "dashboard"],
                "args": [f"--bind-address=:{METRICS_PORT}"],
                "ports": [{"name": "http", "containerPort": METRICS_PORT, "protocol": "TCP"}],
                "livenessProbe": probe | {"periodSeconds": 20},
                "readinessProbe": probe | {"periodSeconds": 5},
                "resources": {
                    "requests": {"cpu": "50m", "memory": "128Mi"},
                    "limits": {"cpu": "1", "memory": "512Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "cluster", "mountPath": str(SERVICE_ACCOUNT), "readOnly": True}],
            }
        ],
        "volumes": [{"name": "cluster", "projected": {"sources": [{"configMap": authority}]}}],
    }


def _user_role(name: str, rules: tuple[Rule, ...], part_of: str) -> JsonObject:
    role = _object(f"{RBAC}/v1", "ClusterRole", name, namespace=None)
    role["metadata"]["labels"] = {**LABELS, f"{RBAC}/aggregate-to-{part_of}": "true"}
    return role | {"rules": _manifests(rules)}


def _object(api_version: str, kind: str, name: str, *, namespace: str | None = NAMESPACE) -> JsonObject:
    metadata: JsonObject = {"name": f"{PREFIX}-{name}"}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata | {"labels": LABELS}}


def _granted(name: str, rules: tuple[Rule, ...], namespace: str | None) -> list[JsonObject]:
    """Return a role and its binding: of one namespace, or of the cluster where none is given."""
    prefix = "" if namespace else "Cluster"
    role = _object(f"{RBAC}/v1", f"{prefix}Role", name, namespace=namespace)
    binding = _object(f"{RBAC}/v1", f"{prefix}RoleBinding", f"{name}binding", namespace=namespace)
    reference = {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]}
    account = {"kind": "ServiceAccount", "name": f"{PREFIX}-manager-sa", "namespace": NAMESPACE}
    return [
        role | {"rules": _manifests(rules)},
        binding | {"roleRef": reference, "subjects": [account]},
    ]


def _manifests(rules: tuple[Rule, ...]) -> list[JsonObject]:
    return [rule.manifest() for rule in rules]


def _deployment(install: Install) -> JsonObject:
    spec: JsonObject = {
        "replicas": 1,
        "selector": {"matchLabels": SELECTOR},
        "template": _pod_template(install),
    }
    if install.old_cluster:
        # Without an election the old one must be gone before the new one comes.
        spec["strategy"] = {"type": "Recreate"}
    return _object("apps/v1", "Deployment", "controller-manager") | {"spec": spec}


def _pod_template(install: Install) -> JsonObject:
    metadata: JsonObject = {"labels": {**SELECTOR, **LABELS}}
    security: JsonObject = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER}
    if install.old_cluster:
        metadata["annotations"] = {OLD_SECCOMP_ANNOTATION: "runtime/default"}
    else:
        security["seccompProfile"] = {"type": "RuntimeDefault"}
    return {
        "metadata": metadata,
        "spec": {
            "serviceAccountName": f"{PREFIX}-manager-sa",
            "securityContext": security,
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_APART]}},
            "containers": [_container(install)],
            "terminationGracePeriodSeconds": 30,
        },
    }


_APART: JsonObject = {
    "weight": 100,
    "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": SELECTOR},
    },
}
"""Two replicas are of use when one node fails only if they are not both on it."""


def _container(install: Install) -> JsonObject:
    arguments = [] if install.old_cluster else ["--leader-elect"]
    if install.namespaced:
        arguments.append(f"--namespace={NAMESPACE}")
    if install.takes_reports:
        arguments.append(f"--reports-url=https://{REPORTS_SERVICE}.{NAMESPACE}.svc:{REPORTS_PORT}")
    return {
        "name": "manager",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["paddlejob", "operator"],
        "args": arguments,
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
            *([REPORTS] if install.takes_reports else ()),
        ],
        "livenessProbe": _probe("/healthz", period_seconds=20),
        "readinessProbe": _probe("/readyz", period_seconds=5),
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probe(path: str, *, period_seconds: int) -> JsonObject:
    target = {"path": path, "port": "health"}
    return {
        "httpGet": target,
        "initialDelaySeconds": 3,
        "periodSeconds": period_seconds,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
    }


def _network_policy(install: Install) -> JsonObject:
    """Return a policy that opens the ports for other pods and nothing else.

    Sources are not limited: reports also come from nodes, by pods with hostNetwork. The health port is not
    listed, since the kubelet of a node always reaches the pods on it. Egress is left open: no policy can name
    the API server of every cluster.
    """
    opened = (METRICS_PORT, *((REPORTS_PORT,) if install.takes_reports else ()))
    policy = _object("networking.k8s.io/v1", "NetworkPolicy", "controller-manager")
    policy["spec"] = {
        "podSelector": {"matchLabels": {**SELECTOR, **LABELS}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": port, "protocol": "TCP"}]} for port in opened],
    }
    return policy


def _metrics_service() -> JsonObject:
    port = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}
    service = _object("v1", "Service", "controller-manager-metrics")
    return service | {"spec": {"selector": SELECTOR, "ports": [port]}}


def _certificate_secret() -> JsonObject:
    """Return the Secret that the operator fills.

    Without data, so that applying it again keeps the certificate; and without a type, which cannot be changed
    and is kubernetes.io/tls where an earlier version created it.
    """
    metadata = {"name": SECRET_NAME, "namespace": NAMESPACE, "labels": LABELS}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def _reports_service() -> JsonObject:
    """Return the address of all replicas; of these only the leader listens."""
    port = {"name": "reports", "port": REPORTS_PORT, "targetPort": "reports", "protocol": "TCP"}
    service = _object("v1", "Service", REPORTS_SERVICE.removeprefix(f"{PREFIX}-"))
    return service | {"spec": {"selector": SELECTOR, "ports": [port]}}


def chart_rules() -> str:
    """Return the permissions as named templates of the chart."""
    templates = {
        "paddlejob.namespaceRules": NAMESPACE_RULES,
        "paddlejob.clusterRules": CLUSTER_RULES,
        "paddlejob.logRules": LOG_RULES,
        "paddlejob.historyRules": HISTORY_RULES,
        "paddlejob.reviewRules": REVIEW_RULES,
        "paddlejob.reportRules": REPORT_RULES,
        "paddlejob.leaseRules": LEASE_RULES,
        "paddlejob.editorRules": EDITOR_RULES,
        "paddlejob.viewerRules": VIEWER_RULES,
    }
    return "\n".join(
        f'{{{{- define "{name}" -}}}}\n{_yaml(_manifests(rules))}{{{{- end }}}}'
        for name, rules in templates.items()
    )


def chart_crd() -> str:
    """Return the definition of PaddleJob as a template, which an uninstalled release leaves behind."""
    definition = crd_v1()
    head = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
    spec = _yaml({"spec": definition["spec"]})
    if list(definition["metadata"]) != ["name"] or "{{" in spec:
        raise ValueError("the definition has something in it that this template does not carry over")
    return (
        "{{- if .Values.crds.enabled }}\n"
        f"{head}metadata:\n  name: {definition['metadata']['name']}\n"
        '  labels:\n    {{- include "paddlejob.labels" . | nindent 4 }}\n'
        "  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"
        f"{spec}{{{{- end }}}}\n"
    )


class _PlainDumper(yaml.SafeDumper):
    """Writes every value in full, and lists indented as people write them."""

    def ignore_aliases(self, _data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)

    def represent_sequence(
        self,
        tag: str,
        sequence: Iterable[object],
        flow_style: bool | None = None,  # noqa: FBT001
    ) -> yaml.SequenceNode:
        """A list of words stays on one line, as in `verbs: [list, watch]`."""
        items = list(sequence)
        words = all(isinstance(item, str) for item in items)
        return super().represent_sequence(tag, items, flow_style=words or flow_style)


def documents(objects: list[JsonObject]) -> str:
    """Return objects as one YAML file."""
    return "---\n".join(_yaml(each) for each in objects)


def _yaml(value: object) -> str:
    return yaml.dump(value, Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True)
