"""Resource types and their paths on the API server."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

_PLAIN = re.compile(r"[a-z0-9.-]+")
"""Names that need no quoting, which are nearly all."""


class Resource(msgspec.Struct, frozen=True):
    """A resource type: group, version, plural, kind and scope."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """The path of the discovery document of this group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of a collection, an object or its subresource.

        Raises ValueError if a part is missing or invalid, such as a required namespace.
        """
        parts = [self.group_path]
        if namespace:
            if not self.namespaced:
                raise ValueError(f"{self.kind} is cluster-scoped and has no namespace, not {namespace!r}")
            parts += ["namespaces", _segment(namespace)]
        elif self.namespaced and name is not None:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name))
        if subresource:
            if name is None:
                raise ValueError(f"subresource {subresource!r} of {self.kind} needs an object's name")
            parts.append(subresource)
        return "/".join(parts)


def _segment(text: str) -> str:
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} is not a valid object name")
    return text if _PLAIN.fullmatch(text) else quote(text, safe=":@")
