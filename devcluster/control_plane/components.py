"""The command lines of a cluster's components; nothing here touches the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from devcluster.node import components as node_components
from devcluster.node.link import SERVICE_RANGE
from devcluster.settings import ClusterSettings, Layout


def arguments(component: str, settings: ClusterSettings, layout: Layout) -> list[str]:
    """Give a component's command line without the program itself."""
    return [*ARGUMENTS[component](settings, layout), *settings.extra_args.get(component, ())]


def _etcd(_: ClusterSettings, layout: Layout) -> list[str]:
    client, peer = (f"https://127.0.0.1:{layout.ports[name]}" for name in ("etcd", "etcd-peer"))
    return [
        "--name=devcluster",
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devcluster={peer}",
        *(flag for prefix in ("", "peer-") for flag in _mutual_tls(prefix, layout)),
        # The data is as short-lived as the cluster; waiting for the disk would only slow the tests.
        "--unsafe-no-fsync",
    ]


def _mutual_tls(prefix: str, layout: Layout) -> list[str]:
    # The store holds every secret of the cluster, and on loopback every user of the machine can knock.
    return [
        f"--{prefix}cert-file={layout.pki('etcd.crt')}",
        f"--{prefix}key-file={layout.pki('etcd.key')}",
        f"--{prefix}trusted-ca-file={layout.pki('ca.crt')}",
        f"--{prefix}client-cert-auth=true",
    ]


def _apiserver(settings: ClusterSettings, layout: Layout) -> list[str]:
    return [
        f"--etcd-servers=https://127.0.0.1:{layout.ports['etcd']}",
        f"--etcd-cafile={layout.pki('ca.crt')}",
        f"--etcd-certfile={layout.pki('etcd.crt')}",
        f"--etcd-keyfile={layout.pki('etcd.key')}",
        f"--bind-address={layout.address}",
        f"--advertise-address={layout.address}",
        f"--secure-port={layout.ports['kube-apiserver']}",
        f"--tls-cert-file={layout.pki('apiserver.crt')}",
        f"--tls-private-key-file={layout.pki('apiserver.key')}",
        f"--client-ca-file={layout.pki('ca.crt')}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.pki('service-account.key')}",
        f"--service-account-signing-key-file={layout.pki('service-account.key')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        *_towards_kubelets(settings, layout),
        *_switches("runtime-config", settings.runtime_config),
        *_switches("feature-gates", settings.feature_gates),
    ]


def _towards_kubelets(settings: ClusterSettings, layout: Layout) -> list[str]:
    if not settings.has_node:
        # The endpoints of the one server would be its loopback address, which the API refuses.
        return ["--endpoint-reconciler-type=none"]
    return [
        # Only the node can resolve its name.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={layout.pki('ca.crt')}",
        f"--kubelet-client-certificate={layout.pki('apiserver-to-kubelet.crt')}",
        f"--kubelet-client-key={layout.pki('apiserver-to-kubelet.key')}",
    ]


def _controller_manager(settings: ClusterSettings, layout: Layout) -> list[str]:
    return [
        *_controller_base("kube-controller-manager", settings, layout),
        f"--controllers={','.join(settings.controllers)}",
        f"--root-ca-file={layout.pki('ca.crt')}",
        f"--service-account-private-key-file={layout.pki('service-account.key')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
    ]


def _scheduler(settings: ClusterSettings, layout: Layout) -> list[str]:
    return _controller_base("kube-scheduler", settings, layout)


def _controller_base(name: str, settings: ClusterSettings, layout: Layout) -> list[str]:
    kubeconfig = layout.component_kubeconfig(name)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[name]}",
        f"--tls-cert-file={layout.pki('apiserver.crt')}",
        f"--tls-private-key-file={layout.pki('apiserver.key')}",
        "--leader-elect=false",
        *_switches("feature-gates", settings.feature_gates),
    ]


def _switches(flag: str, values: Mapping[str, bool]) -> list[str]:
    if not values:
        return []
    return [f"--{flag}=" + ",".join(f"{name}={str(value).lower()}" for name, value in sorted(values.items()))]


ARGUMENTS: Mapping[str, Callable[[ClusterSettings, Layout], list[str]]] = {
    "machine": node_components.machine,
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
    "containerd": node_components.containerd,
    "coredns": node_components.coredns,
    "kube-proxy": node_components.kube_proxy,
    "kubelet": node_components.kubelet,
}
