"""Settings and location of a cluster; nothing here touches the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from devcluster.errors import DevclusterError
from devcluster.node.link import Link

LOOPBACK = "127.0.0.1"
NODE_NAME = "node-0"
DEFAULT_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager")
DEFAULT_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
ON_THE_NODE = ("containerd", "coredns", "kubelet", "kube-proxy")
NODE_COMPONENTS = ("machine", *DEFAULT_COMPONENTS, "kube-scheduler", *ON_THE_NODE)
"""A cluster with a real node, on which containers run."""
COMPONENTS = NODE_COMPONENTS
"""All there are, in the order of starting; stopping goes the other way."""
NODE_CONTROLLERS = (
    *DEFAULT_CONTROLLERS,
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "job-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)
NEEDS = {
    "kube-apiserver": ("etcd",),
    "kube-controller-manager": ("kube-apiserver",),
    "kube-scheduler": ("kube-apiserver",),
    "containerd": ("machine",),
    "coredns": ("machine", "kube-apiserver"),
    "kubelet": ("containerd", "kube-apiserver"),
    # It waits for the node to be known.
    "kube-proxy": ("kubelet",),
}
API_SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")

PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of a cluster.

    `extra_args` are appended per component, so they win over ours; `kubernetes` names the Go module that
    pins the version.
    """

    components: tuple[str, ...] = DEFAULT_COMPONENTS
    controllers: tuple[str, ...] = DEFAULT_CONTROLLERS
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    extra_args: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kubernetes: str = "kubernetes"

    def __post_init__(self) -> None:
        """Refuse a combination that cannot start."""
        for name in (*self.components, *self.extra_args):
            if name not in COMPONENTS:
                raise DevclusterError(
                    f"There is no component {name!r}; the choices are {', '.join(COMPONENTS)}."
                )
        for name in self.components:
            for needed in NEEDS.get(name, ()):
                if needed not in self.components:
                    raise DevclusterError(f"The component {name} needs {needed}; add it to the components.")

    @classmethod
    def with_node(cls, **changes: Any) -> Self:
        """Give the settings of a cluster on which containers run."""
        return cls(**{"components": NODE_COMPONENTS, "controllers": NODE_CONTROLLERS, **changes})

    @property
    def has_node(self) -> bool:
        """Return whether the cluster has a node."""
        return "machine" in self.components


@dataclass(frozen=True)
class Layout:
    """The directory of a cluster, its ports, and the network of its node, if it has one."""

    directory: Path
    ports: Mapping[str, int]
    link: Link | None = None
    node_name: str = NODE_NAME

    @property
    def address(self) -> str:
        """Listen address of the API server, as narrow as possible."""
        return self.link.host_address if self.link else LOOPBACK

    @property
    def node(self) -> Link:
        """The network of the node.

        Assumes: there is one.
        """
        assert self.link is not None
        return self.link

    def pki(self, name: str) -> str:
        """Give the path of a certificate or key."""
        return str(self.directory / "pki" / name)

    @property
    def tokens(self) -> Path:
        """The API server's static tokens."""
        return self.directory / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "admin.kubeconfig"

    def component_kubeconfig(self, name: str) -> Path:
        """Give the kubeconfig of a component."""
        return self.directory / f"{name}.kubeconfig"

    def log(self, name: str) -> Path:
        """Give a component's log."""
        return self.directory / "logs" / f"{name}.log"
