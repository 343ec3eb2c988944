"""The manifests that install the operator, changed by a few options."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

import paddlejob
from paddlejob import bundle

NAMESPACE = "paddle-system"
IMAGE = f"paddlejob-operator:{paddlejob.__version__}"
CRD = "crd.yaml"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator is installed."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    namespaced: bool = False
    """It works in its own namespace only, and needs no right beyond it."""
    replicas: int = 1
    crd: bool = True
    """Whether the CRD is installed too, for which an administrator of the cluster is needed."""
    dashboard: bool = False
    """Whether the dashboard is installed too; docs/dashboard.md says how it is reached."""


def text(options: Options) -> str:
    """Return the objects as YAML, in the order in which they are to be created."""
    changes = {
        rf"\b{NAMESPACE}\b": options.namespace,
        rf"(?<=^          image: ){re.escape(IMAGE)}$": options.image,
    }
    replicas = {r"(?<=^  replicas: )1$": str(options.replicas)}
    operator = "operator-namespaced.yaml" if options.namespaced else "operator.yaml"
    parts = [_read(CRD)] if options.crd else []
    parts.append(_changed(operator, changes | replicas))
    if options.dashboard:
        parts.append(_changed("dashboard.yaml", changes))
    return "---\n".join(parts)


def _changed(name: str, changes: Mapping[str, str]) -> str:
    changed = _read(name)
    for pattern, value in changes.items():
        changed, count = re.subn(pattern, value.replace("\\", ""), changed, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{name} has nothing that {pattern!r} matches")
    return changed


def _read(name: str) -> str:
    return bundle.folder(bundle.MANIFESTS).joinpath(name).read_text()
