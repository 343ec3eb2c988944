"""The command lines of the control plane's components; nothing here touches the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.programs import DevclusterError

DEFAULT_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager")
DEFAULT_CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
SERVICE_RANGE = "10.96.0.0/16"
API_SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1")


@dataclass(frozen=True)
class Settings:
    """What may differ between two clusters.

    `extra_args` are appended per component, so they win over ours; `kubernetes` names the Go module that
    pins the version.
    """

    components: tuple[str, ...] = DEFAULT_COMPONENTS
    controllers: tuple[str, ...] = DEFAULT_CONTROLLERS
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    extra_args: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kubernetes: str = "kubernetes"
    address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        """Refuse a combination that cannot start."""
        for name in (*self.components, *self.extra_args):
            if name not in ARGUMENTS:
                raise DevclusterError(
                    f"There is no component {name!r}; the choices are {', '.join(ARGUMENTS)}."
                )
        for name in self.components:
            needed = "etcd" if name == "kube-apiserver" else "kube-apiserver"
            if name != "etcd" and needed not in self.components:
                raise DevclusterError(f"The component {name} needs {needed}; add it to the components.")


@dataclass(frozen=True)
class Site:
    """Where one cluster lives: its directory and its ports."""

    directory: Path
    ports: Mapping[str, int]

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


PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def arguments(component: str, settings: Settings, site: Site) -> list[str]:
    """Give a component's command line without the program itself."""
    return [*ARGUMENTS[component](settings, site), *settings.extra_args.get(component, ())]


def _etcd(_: Settings, site: Site) -> list[str]:
    client, peer = (f"https://127.0.0.1:{site.ports[name]}" for name in ("etcd", "etcd-peer"))
    return [
        "--name=devcluster",
        f"--data-dir={site.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devcluster={peer}",
        *(flag for prefix in ("", "peer-") for flag in _mutual_tls(prefix, site)),
        # The data is as short-lived as the cluster; waiting for the disk would only slow the tests.
        "--unsafe-no-fsync",
    ]


def _mutual_tls(prefix: str, site: Site) -> list[str]:
    # The store holds every secret of the cluster, and on loopback every user of the machine can knock.
    return [
        f"--{prefix}cert-file={site.pki('etcd.crt')}",
        f"--{prefix}key-file={site.pki('etcd.key')}",
        f"--{prefix}trusted-ca-file={site.pki('ca.crt')}",
        f"--{prefix}client-cert-auth=true",
    ]


def _apiserver(settings: Settings, site: Site) -> list[str]:
    return [
        f"--etcd-servers=https://127.0.0.1:{site.ports['etcd']}",
        f"--etcd-cafile={site.pki('ca.crt')}",
        f"--etcd-certfile={site.pki('etcd.crt')}",
        f"--etcd-keyfile={site.pki('etcd.key')}",
        f"--bind-address={settings.address}",
        f"--advertise-address={settings.address}",
        f"--secure-port={site.ports['kube-apiserver']}",
        f"--tls-cert-file={site.pki('apiserver.crt')}",
        f"--tls-private-key-file={site.pki('apiserver.key')}",
        f"--client-ca-file={site.pki('ca.crt')}",
        f"--token-auth-file={site.tokens}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={site.pki('service-account.key')}",
        f"--service-account-signing-key-file={site.pki('service-account.key')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        # The endpoints of the one server would be its loopback address, which the API refuses.
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",
        *_switches("runtime-config", settings.runtime_config),
        *_switches("feature-gates", settings.feature_gates),
    ]


def _controller_manager(settings: Settings, site: Site) -> list[str]:
    return [
        *_controller_base("kube-controller-manager", settings, site),
        f"--controllers={','.join(settings.controllers)}",
        f"--root-ca-file={site.pki('ca.crt')}",
        f"--service-account-private-key-file={site.pki('service-account.key')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
    ]


def _scheduler(settings: Settings, site: Site) -> list[str]:
    return _controller_base("kube-scheduler", settings, site)


def _controller_base(name: str, settings: Settings, site: Site) -> list[str]:
    kubeconfig = site.component_kubeconfig(name)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports[name]}",
        f"--tls-cert-file={site.pki('apiserver.crt')}",
        f"--tls-private-key-file={site.pki('apiserver.key')}",
        "--leader-elect=false",
        *_switches("feature-gates", settings.feature_gates),
    ]


def _switches(flag: str, values: Mapping[str, bool]) -> list[str]:
    if not values:
        return []
    return [f"--{flag}=" + ",".join(f"{name}={str(value).lower()}" for name, value in sorted(values.items()))]


ARGUMENTS: Mapping[str, Callable[[Settings, Site], list[str]]] = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
}
"""In the order of starting; stopping goes the other way."""
