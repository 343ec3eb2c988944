"""Bounds the number of objects that are cached for one namespace."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from paddlejob.api.meta import ObjectKey
from paddlejob.kube.cache import Change

log = logging.getLogger(__name__)


class Crowding:
    """Counts the cached objects of each namespace, and remembers the namespaces with more than the limit.

    Objects above the limit are not cached. They are found by a new list once others are deleted.
    """

    def __init__(self, plural: str, limit: int | None) -> None:
        self._plural = plural
        self._limit = limit
        self._cached: Counter[str] = Counter()
        self._staged: Counter[str] = Counter()
        """New objects of the list that is being read."""
        self.crowded: set[str] = set()
        """Namespaces with objects that are not cached."""

    def admits(self, key: ObjectKey) -> bool:
        """Return whether a new object may be cached; log the first one of a namespace that may not."""
        namespace = key.namespace
        held = self._cached[namespace] + self._staged[namespace]
        if self._limit is None or held < self._limit:
            return True
        if namespace not in self.crowded:
            log.warning(
                "namespace %s has more than %d %s: the others are ignored until some are deleted",
                *(namespace, self._limit, self._plural),
            )
        self.crowded.add(namespace)
        return False

    def begin_list(self) -> None:
        """Forget the counts of the list that was being read, and the crowded namespaces."""
        self._staged.clear()
        self.crowded.clear()

    def stage(self, key: ObjectKey, change: int) -> None:
        """Count a new object of a list (1), or its deletion before the end of the list (-1)."""
        self._staged[key.namespace] += change

    def end_list(self) -> None:
        """Count the objects of a list only as cached ones from now on."""
        self._staged.clear()

    def count(self, changes: Iterable[Change[Any]]) -> None:
        """Count the changes of the cache."""
        for change in changes:
            known = change.new or change.old
            if known is not None:
                self._cached[known.metadata.namespace] += (change.new is not None) - (change.old is not None)

    @property
    def has_room(self) -> bool:
        """Whether a namespace with objects that are not cached has room for some again."""
        return any(self._cached[each] < (self._limit or 0) for each in self.crowded)
