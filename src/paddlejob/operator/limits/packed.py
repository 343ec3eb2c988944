"""Encoded parts of objects in memory, within a budget that all namespaces share.

A part that is dropped is read from the API server again when it is needed: a namespace above its share pays
with requests.
"""

from __future__ import annotations

from collections import Counter

from paddlejob.api.meta import ObjectMeta

MAX_PACKED_BYTES = 96 << 20
"""Enough for 10,000 running jobs of 10 KiB, in an operator that the manifests give 512 MiB."""
ENTRY_BYTES = 200
"""Cost of an entry in addition to its bytes."""


class PackedParts:
    """One part of each object, by UID and version."""

    def __init__(self, max_bytes: int = MAX_PACKED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: dict[str, dict[str, tuple[str, bytes]]] = {}
        """Version and part, by namespace and UID, the oldest first."""
        self._sizes: Counter[str] = Counter()
        self.size = 0
        """Bytes that all parts take."""

    def get(self, metadata: ObjectMeta, version: str) -> bytes | None:
        """Return a part, None unless it is in memory in this version."""
        known = self._parts.get(metadata.namespace, {}).get(metadata.uid)
        return known[1] if known and known[0] == version else None

    def put(self, metadata: ObjectMeta, version: str, part: bytes) -> None:
        """Keep a part. While the budget is exceeded, the namespace with the most bytes loses its oldest."""
        if self.get(metadata, version) is not None:
            return
        namespace = metadata.namespace
        self.drop(metadata)
        self._parts.setdefault(namespace, {})[metadata.uid] = (version, part)
        self._add(namespace, ENTRY_BYTES + len(part))
        while self.size > self._max_bytes:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._drop(largest, next(iter(self._parts[largest])))

    def drop(self, metadata: ObjectMeta) -> None:
        """Forget the part of an object."""
        if metadata.uid in self._parts.get(metadata.namespace, {}):
            self._drop(metadata.namespace, metadata.uid)

    def _drop(self, namespace: str, uid: str) -> None:
        _, part = self._parts[namespace].pop(uid)
        self._add(namespace, -ENTRY_BYTES - len(part))
        if not self._parts[namespace]:
            del self._parts[namespace], self._sizes[namespace]

    def _add(self, namespace: str, size: int) -> None:
        self._sizes[namespace] += size
        self.size += size
