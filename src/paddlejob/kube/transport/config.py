"""Finds and reads the cluster configuration: kubeconfig files, or the service account of this pod."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paddlejob.kube.decoding import without_nulls
from paddlejob.kube.errors import ConfigError
from paddlejob.kube.transport.cluster import (
    ClusterConfig,
    ExecPlugin,
    Impersonation,
    User,
    check_proxy,
    parse_url,
    proxy_from_env,
)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
_REMOVED_PROVIDERS = ("gcp", "azure", "openstack")
_PLUGINS = {
    "oidc": "kubelogin (kubectl oidc-login)",
    "gcp": "gke-gcloud-auth-plugin",
    "azure": "Azure's kubelogin",
    "openstack": "client-keystone-auth",
}
"""The replacement of each auth-provider."""
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def load_config(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterConfig:
    """Return the first of: the given file, KUBECONFIG, the pod's service account, ~/.kube/config.

    The pod's service account is skipped if a context is given. HTTPS_PROXY and NO_PROXY apply if the
    kubeconfig has no proxy.
    Raises ConfigError, which lists all sources.
    """
    env = os.environ if env is None else env
    config = _find(kubeconfig, context, env, service_account)
    if config.proxy_url:
        return config
    return msgspec.structs.replace(config, proxy_url=proxy_from_env(config.server, env))


def in_cluster_config(
    env: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT, *, with_token: bool = True
) -> ClusterConfig:
    """Return the cluster and the service account of this pod; without a token, only the cluster.

    Raises ConfigError outside a pod.
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
    """Return the existing files of KUBECONFIG; like kubectl, ignore missing ones.

    If all are missing, raise an error instead of using another cluster.
    """
    paths = [Path(name) for name in listed.split(os.pathsep) if name]
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise ConfigError(f"KUBECONFIG: no such file: {listed!r}")
    return existing


def _not_in_cluster(env: Mapping[str, str], token: Path | None) -> str:
    """Return the reason why this process does not run in a pod, or an empty string."""
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


def read_kubeconfig(paths: Sequence[Path], context: str | None = None) -> ClusterConfig:
    """Return the cluster and user of a context, by default the current one.

    Merges like kubectl: the first file that defines an entry, or the current context, wins.
    Raises ConfigError with the fix.
    """
    merged = _read_files(paths)
    source = os.pathsep.join(map(str, paths))
    chosen = context or merged.current_context
    if not chosen:
        raise ConfigError(f"{source}: current-context is not set; choose one of: {_names(merged.contexts)}")
    selected, _ = _entry(merged.contexts, chosen, f"{source}: context")
    where = f"{source}: context {chosen!r}"
    cluster, file = _entry(merged.clusters, selected.cluster, f"{where}: cluster")
    config = _cluster_config(cluster, file, f"{file}: cluster {selected.cluster!r}")
    config = msgspec.structs.replace(config, source=source, namespace=selected.namespace or "default")
    # As in kubectl, the user is optional, and credentials are never sent unencrypted.
    if not selected.user or config.server.startswith("http://"):
        return config
    entry, file = _entry(merged.users, selected.user, f"{where}: user")
    user = _user(entry, file, f"{file}: user {selected.user!r}", _cluster_info(config, cluster))
    return msgspec.structs.replace(config, user=user)


_Entry = TypeVar("_Entry")


def _entry(entries: Mapping[str, tuple[_Entry, Path]], name: str, field: str) -> tuple[_Entry, Path]:
    if name not in entries:
        raise ConfigError(f"{field} {name!r} does not exist; choose one of: {_names(entries)}")
    return entries[name]


def _names(entries: Mapping[str, Any]) -> str:
    return ", ".join(sorted(entries)) or "none"


def _cluster_config(cluster: _ClusterEntry, file: Path, where: str) -> ClusterConfig:
    parse_url(cluster.server, f"{where}: server", "https://HOST:PORT")
    authority = _pem(cluster, "certificate_authority", file, where)
    if isinstance(authority, Path):
        authority = authority.read_bytes()
    if cluster.insecure_skip_tls_verify and authority is not None:
        raise ConfigError(
            f"{where}: insecure-skip-tls-verify and certificate-authority are mutually exclusive; remove one"
        )
    proxy = check_proxy(cluster.proxy_url, f"{where}: proxy-url") if cluster.proxy_url else ""
    return ClusterConfig(
        server=cluster.server.rstrip("/"),
        certificate_authority=authority,
        insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy_url=proxy,
    )


def _unsupported_provider(name: str) -> str:
    """Return the message for an auth-provider; some were removed, kubectl still supports oidc."""
    why = "was removed from Kubernetes" if name in _REMOVED_PROVIDERS else "is not supported"
    plugin = _PLUGINS.get(name, "kubelogin")
    return f"auth-provider {name!r} {why}; use a token or an exec plugin such as {plugin}"


def _user(user: _UserEntry, file: Path, where: str, cluster_info: Mapping[str, Any]) -> User:
    if user.auth_provider is not None:
        raise ConfigError(f"{where}: {_unsupported_provider(user.auth_provider.name)}")
    certificate = _pem(user, "client_certificate", file, where)
    key = _pem(user, "client_key", file, where)
    if (certificate is None) != (key is None):
        raise ConfigError(f"{where}: client-certificate and client-key must be set together")
    if (user.token or user.token_file) and user.username:
        raise ConfigError(f"{where}: token and username are mutually exclusive; remove one")
    return User(
        token=user.token,
        token_file=_beside(file, user.token_file) if user.token_file else None,
        client_certificate=certificate,
        client_key=key,
        username=user.username,
        password=user.password,
        exec_plugin=_exec_plugin(user.exec, file, f"{where}: exec", cluster_info) if user.exec else None,
        impersonate=_impersonation(user, where),
    )


def _impersonation(user: _UserEntry, where: str) -> Impersonation | None:
    if user.as_user:
        return Impersonation(
            user=user.as_user, uid=user.as_uid, groups=user.as_groups, extra=user.as_user_extra
        )
    if user.as_uid or user.as_groups or user.as_user_extra:
        raise ConfigError(
            f"{where}: as-uid, as-groups and as-user-extra require `as`, the user to impersonate"
        )
    return None


def _exec_plugin(plugin: _ExecEntry, file: Path, where: str, cluster_info: Mapping[str, Any]) -> ExecPlugin:
    if not plugin.command:
        raise ConfigError(f"{where}.command is required")
    if plugin.api_version not in EXEC_API_VERSIONS:
        raise ConfigError(
            f"{where}.apiVersion: unsupported value {plugin.api_version!r}; use one of "
            f"{', '.join(EXEC_API_VERSIONS)}, and update {plugin.command!r} if it only supports an older one"
        )
    mode = plugin.interactive_mode
    if not mode and plugin.api_version.endswith("/v1beta1"):
        mode = "IfAvailable"
    if mode not in INTERACTIVE_MODES:
        modes = ", ".join(INTERACTIVE_MODES)
        raise ConfigError(f"{where}.interactiveMode: unsupported value {mode!r}; use one of {modes}")
    command = plugin.command
    return ExecPlugin(
        api_version=plugin.api_version,
        command=str(_beside(file, command)) if os.sep in command else command,
        args=plugin.args,
        env={variable.name: variable.value for variable in plugin.env},
        install_hint=plugin.install_hint,
        interactive_mode=mode,
        cluster_info=cluster_info if plugin.provide_cluster_info else None,
    )


def _cluster_info(config: ClusterConfig, cluster: _ClusterEntry) -> dict[str, Any]:
    """Return `spec.cluster` of an ExecCredential."""
    authority = base64.b64encode(config.certificate_authority or b"").decode()
    settings = [entry.extension for entry in cluster.extensions if entry.name == _EXEC_EXTENSION]
    info = {
        "server": config.server,
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": config.proxy_url,
        "config": settings[0] if settings else None,
    }
    return {key: value for key, value in info.items() if value}


def _pem(entry: _ClusterEntry | _UserEntry, field: str, file: Path, where: str) -> bytes | Path | None:
    """Return the content of `field`-data, or the path in `field`, or None."""
    label = field.replace("_", "-")
    if data := getattr(entry, f"{field}_data"):
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error:
            raise ConfigError(f"{where}: {label}-data is not valid base64") from None
    if not (name := getattr(entry, field)):
        return None
    path = _beside(file, name)
    try:
        path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{where}: {label}: unable to read {path}: {reason}") from None
    return path


def _beside(file: Path, name: str) -> Path:
    """Resolve a path relative to its kubeconfig."""
    return file.parent.absolute() / name


def _read_files(paths: Sequence[Path]) -> _Kubeconfig:
    merged = _Kubeconfig()
    for path in paths:
        file = _parse(path)
        merged.current_context = merged.current_context or file.current_context
        for cluster in file.clusters:
            merged.clusters.setdefault(cluster.name, (cluster.cluster, path))
        for user in file.users:
            merged.users.setdefault(user.name, (user.user, path))
        for context in file.contexts:
            merged.contexts.setdefault(context.name, (context.context, path))
    return merged


def _parse(path: Path) -> _File:
    import yaml  # noqa: PLC0415 - in a pod there is no kubeconfig

    from paddlejob.yaml_depth import check_depth  # noqa: PLC0415 - imports yaml

    try:
        # libyaml's loader reads certificates twenty times as fast.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        text = path.read_bytes()
        check_depth(text, loader)
        content = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe
        # Some tools write keys with null values.
        return msgspec.convert(without_nulls(content or {}), _File)
    except OSError as error:
        raise ConfigError(f"unable to read kubeconfig {path}: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        # Without the library's excerpt of the file, which may contain a secret.
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise ConfigError(f"kubeconfig {path} is not valid YAML{line}: {error.problem}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(f"kubeconfig {path} is not valid YAML") from None


class _Extension(msgspec.Struct, frozen=True):
    name: str
    extension: Any = None


class _ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[_Extension, ...] = ()


class _EnvVar(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _ExecEntry(msgspec.Struct, frozen=True, rename="camel"):
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_EnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _AuthProvider(msgspec.Struct, frozen=True):
    name: str = ""


class _UserEntry(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    as_user: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    auth_provider: _AuthProvider | None = None
    exec: _ExecEntry | None = None


class _ContextEntry(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _ClusterEntry = _ClusterEntry()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _UserEntry = _UserEntry()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _ContextEntry = _ContextEntry()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


class _Kubeconfig(msgspec.Struct):
    """Merged files; each entry has its file, because paths are relative to it."""

    current_context: str = ""
    clusters: dict[str, tuple[_ClusterEntry, Path]] = {}
    users: dict[str, tuple[_UserEntry, Path]] = {}
    contexts: dict[str, tuple[_ContextEntry, Path]] = {}
