"""The format of kubeconfig files, and how several become one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from paddlejob.kube.errors import ConfigError


class _Extension(msgspec.Struct, frozen=True):
    name: str
    extension: Any = None


class ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """Where an API server is."""

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


class ExecEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints credentials."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_EnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _AuthProvider(msgspec.Struct, frozen=True):
    name: str = ""


class UserEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """Ways to authenticate."""

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
    exec: ExecEntry | None = None


class ContextEntry(msgspec.Struct, frozen=True):
    """A cluster, a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: ClusterEntry = ClusterEntry()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: UserEntry = UserEntry()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: ContextEntry = ContextEntry()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


class Kubeconfig(msgspec.Struct):
    """Several files as one; each entry remembers its file, which its relative paths start from."""

    current_context: str = ""
    clusters: dict[str, tuple[ClusterEntry, Path]] = {}
    users: dict[str, tuple[UserEntry, Path]] = {}
    contexts: dict[str, tuple[ContextEntry, Path]] = {}


def read_files(paths: Sequence[Path]) -> Kubeconfig:
    """Return what some files say together.

    Guarantees kubectl's merging: the first file to name an entry, or a current context, wins whole.
    Raises ConfigError when a file cannot be read or understood.
    """
    merged = Kubeconfig()
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
    try:
        content = yaml.safe_load(path.read_bytes())
        return msgspec.convert(_without_nulls(content or {}), _File)
    except OSError as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        # Without the library's own excerpt of the file, which may hold a secret.
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"kubeconfig {path} is no YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"kubeconfig {path} is no YAML text") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"kubeconfig {path} has a field of the wrong type: {error}") from error


def _without_nulls(value: Any) -> Any:
    """Drop keys without a value, which tools like to write."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
