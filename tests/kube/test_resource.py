from __future__ import annotations

import pytest

from paddlejob.kube import resource

WIDGETS = resource.Resource("example.org", "v1", "widgets", "Widget")


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        pytest.param(resource.PODS, (), "/api/v1/pods", id="core objects of all namespaces"),
        pytest.param(resource.PODS, ("ns",), "/api/v1/namespaces/ns/pods", id="core objects of a namespace"),
        pytest.param(resource.PODS, ("ns", "p"), "/api/v1/namespaces/ns/pods/p", id="one core object"),
        pytest.param(
            resource.PODS, ("ns", "p", "log"), "/api/v1/namespaces/ns/pods/p/log", id="a subresource"
        ),
        pytest.param(WIDGETS, (), "/apis/example.org/v1/widgets", id="custom objects of all namespaces"),
        pytest.param(
            WIDGETS,
            ("ns", "w", "status"),
            "/apis/example.org/v1/namespaces/ns/widgets/w/status",
            id="the status of a custom object",
        ),
        pytest.param(resource.NODES, (None, "n"), "/api/v1/nodes/n", id="a cluster-wide object"),
        pytest.param(resource.NODES, ("", "n"), "/api/v1/nodes/n", id="an empty namespace is none"),
        pytest.param(
            resource.PODS,
            ("ns", "a/b?c"),
            "/api/v1/namespaces/ns/pods/a%2Fb%3Fc",
            id="a name cannot leave its place",
        ),
        pytest.param(
            resource.Resource(
                "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
            ),
            (None, "system:node"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
            id="a colon stays readable",
        ),
    ],
)
def test_path(kind, arguments, path):
    assert kind.path(*arguments) == path


@pytest.mark.parametrize(
    ("kind", "arguments", "sentence"),
    [
        pytest.param(
            resource.PODS, (None, "p"), "Pod 'p' needs a namespace", id="an object without its namespace"
        ),
        pytest.param(
            resource.NODES, ("ns", "n"), "Node is cluster-scoped", id="a namespace where there is none"
        ),
        pytest.param(resource.PODS, ("ns", ""), "'' is not a valid object name", id="an empty name"),
        pytest.param(resource.PODS, ("ns", ".."), "'..' is not a valid object name", id="a name that climbs"),
        pytest.param(
            resource.PODS, ("..", "p"), "'..' is not a valid object name", id="a namespace that climbs"
        ),
        pytest.param(
            resource.PODS, ("ns", None, "log"), "needs an object's name", id="a subresource of nothing"
        ),
    ],
)
def test_no_path(kind, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        kind.path(*arguments)


def test_api_version():
    assert resource.PODS.api_version == "v1"
    assert resource.LEASES.api_version == "coordination.k8s.io/v1"
