"""Find the cluster to talk to: a kubeconfig, or the service account of the pod we run in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from paddlejob.kube.errors import ConfigError
from paddlejob.kube.transport.cluster import ClusterConfig, User
from paddlejob.kube.transport.kubeconfig import read_kubeconfig
from paddlejob.kube.transport.url import parse_url, proxy_from_env

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_config(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterConfig:
    """Return the first of: the given file, KUBECONFIG, the pod's service account, ~/.kube/config.

    The pod's service account is skipped when a context is asked for. HTTPS_PROXY and NO_PROXY apply where the
    kubeconfig names no proxy.
    Raises ConfigError, which lists what was tried.
    """
    env = os.environ if env is None else env
    config = _find(kubeconfig, context, env, service_account)
    if config.proxy_url:
        return config
    return msgspec.structs.replace(config, proxy_url=proxy_from_env(config.server, env))


def in_cluster_config(
    env: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT, *, with_token: bool = True
) -> ClusterConfig:
    """Return the cluster and service account of the pod we run in; without a token, only the cluster.

    Raises ConfigError when there is none.
    """
    if missing := _not_in_cluster(env, service_account / "token" if with_token else None):
        raise ConfigError(f"not running in a pod: {missing}")
    host, port = env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    parse_url(server, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT", "an address and a port")
    return ClusterConfig(
        server=server,
        source=f"the pod's service account in {service_account}",
        namespace=_content(service_account / "namespace").decode("utf-8", "replace") or "default",
        certificate_authority=_content(service_account / "ca.crt") or None,
        user=User(token_file=service_account / "token") if with_token else User(),
    )


def _find(
    kubeconfig: str | Path | None, context: str | None, env: Mapping[str, str], service_account: Path
) -> ClusterConfig:
    if kubeconfig is not None:
        return read_kubeconfig([Path(kubeconfig)], context)
    if listed := env.get("KUBECONFIG"):
        return read_kubeconfig(_existing(listed), context)
    outside = _not_in_cluster(env, service_account / "token")
    if not outside and context is None:
        return in_cluster_config(env, service_account)
    default = Path(env.get("HOME") or Path.home()) / ".kube" / "config"
    if default.exists():
        return read_kubeconfig([default], context)
    raise ConfigError(
        "no Kubernetes cluster is configured: no kubeconfig was given, KUBECONFIG is not set, "
        f"{outside or 'the service account of this pod has no contexts'}, and {default} does not exist; "
        "pass a kubeconfig or set KUBECONFIG"
    )


def _existing(listed: str) -> list[Path]:
    """Return the files of a KUBECONFIG that exist; like kubectl, ignore the others.

    None at all is an error: another cluster would be a worse surprise.
    """
    paths = [Path(name) for name in listed.split(os.pathsep) if name]
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise ConfigError(f"KUBECONFIG: no such file: {listed!r}")
    return existing


def _not_in_cluster(env: Mapping[str, str], token: Path | None) -> str:
    """Return why this is not running in a pod, empty if it is."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not env.get(name):
            return f"{name} is not set"
    return "" if token is None or token.exists() else f"{token} does not exist"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"unable to read {path}: {error.strerror}") from error
