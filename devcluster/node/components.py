"""The command lines and configuration files of a node's components; nothing here touches the machine.

They are what works as root without CAP_SYS_RESOURCE, with the old or the unified control groups.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from devcluster.cache import cache_directory
from devcluster.node.cgroups import group_name
from devcluster.settings import ClusterSettings, Layout

PAUSE_IMAGE = "devcluster/pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CLUSTER_DOMAIN = "cluster.local"
PLUGIN_DIRECTORIES = ("/usr/lib/cni", "/opt/cni/bin")
"""Usual directory of the network plugins."""
NETWORK_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
"""The plugins that containerd and the pods' network below call."""
COREDNS_READY_PORT = 8181
KUBE_PROXY_HEALTH_PORT = 10256

CONTAINERD = """\
version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE nobody can make a process less likely to be killed than its parent.
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{networks}"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registries}"
"""

COREFILE = """\
.:53 {{
    bind {address}
    errors
    ready {address}:{ready}
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
}}
"""


def machine(_: ClusterSettings, layout: Layout) -> list[str]:
    """Give the arguments of unshare(1) that make the node's machine."""
    script = str(Path(__file__).with_name("machine.py"))
    return [
        *("--pid", "--fork", "--kill-child=KILL", "--mount", "--net", "--uts", "--ipc"),
        *(sys.executable, "-I", "-S", script, layout.node_name, layout.node.node_address),
        *(str(layout.directory / "machine"), str(layout.directory), str(cache_directory())),
    ]


def containerd(_: ClusterSettings, layout: Layout) -> list[str]:
    """Give the arguments of containerd."""
    return [f"--config={_configuration(layout, 'containerd.toml')}"]


def coredns(_: ClusterSettings, layout: Layout) -> list[str]:
    """Give the arguments of CoreDNS."""
    return [f"-conf={_configuration(layout, 'Corefile')}"]


def kube_proxy(settings: ClusterSettings, layout: Layout) -> list[str]:
    """Give the arguments of kube-proxy."""
    return [
        f"--kubeconfig={layout.component_kubeconfig('kube-proxy')}",
        f"--hostname-override={layout.node_name}",
        "--proxy-mode=iptables",
        "--nodeport-addresses=primary",
        f"--cluster-cidr={layout.node.pod_range}",
        f"--healthz-bind-address={layout.node.node_address}:{KUBE_PROXY_HEALTH_PORT}",
        # The limits of connection tracking are the whole machine's, not the node's.
        "--conntrack-max-per-core=0",
        *_gates(settings),
    ]


def kubelet(_: ClusterSettings, layout: Layout) -> list[str]:
    """Give the arguments of the kubelet."""
    return [
        f"--config={_configuration(layout, 'kubelet.json')}",
        f"--kubeconfig={layout.component_kubeconfig('kubelet')}",
        f"--hostname-override={layout.node_name}",
        f"--node-ip={layout.node.node_address}",
    ]


def configuration_files(settings: ClusterSettings, layout: Layout, plugins: str) -> dict[Path, str]:
    """Give the text of every file that the node's components read."""
    networks = _configuration(layout, "networks")
    containerd_text = CONTAINERD.format(
        socket=CONTAINERD_SOCKET,
        pause=PAUSE_IMAGE,
        plugins=plugins,
        networks=networks,
        registries=registry_directory(layout.directory),
    )
    corefile = COREFILE.format(
        address=layout.node.node_address,
        ready=COREDNS_READY_PORT,
        domain=CLUSTER_DOMAIN,
        kubeconfig=layout.component_kubeconfig("coredns"),
    )
    return {
        _configuration(layout, "containerd.toml"): containerd_text,
        _configuration(layout, "Corefile"): corefile,
        _configuration(layout, "kubelet.json"): json.dumps(
            _kubelet_configuration(settings, layout), indent=1
        ),
        networks / "pods.conflist": json.dumps(_pod_network(layout), indent=1),
    }


def registry_directory(directory: Path) -> Path:
    """Return the directory of containerd's hosts.toml files; without one, every pull fails."""
    return directory / "node" / "registries"


def _configuration(layout: Layout, name: str) -> Path:
    return layout.directory / "node" / name


def _gates(settings: ClusterSettings) -> list[str]:
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(settings.feature_gates.items()))
    return [f"--feature-gates={gates}"] if gates else []


def _kubelet_configuration(settings: ClusterSettings, layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.node.node_address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": layout.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.pki("kubelet.crt"),
        "tlsPrivateKeyFile": layout.pki("kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "clusterDNS": [layout.node.node_address],
        "clusterDomain": CLUSTER_DOMAIN,
        # Names outside the cluster do not resolve in it: a test must not depend on the machine's network.
        "resolvConf": "",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group_name(layout.directory)}",
        "oomScoreAdj": 0,
        "featureGates": dict(settings.feature_gates),
        # Images come from nowhere but here, so none may be removed to save space.
        "imageGCHighThresholdPercent": 100,
        # An image that was once pulled from the tests' registry is used under its other names too.
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
    }


def _pod_network(layout: Layout) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": layout.node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        # Addresses of pods that ran before the machine was restarted are free again.
        "dataDir": "/run/pod-addresses",
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
