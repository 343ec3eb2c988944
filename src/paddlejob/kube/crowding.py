"""Bounds the number of objects that are cached for one namespace."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from paddlejob.api.meta import HasMeta, ObjectKey
from paddlejob.kube.cache import Change

T = TypeVar("T", bound=HasMeta)

log = logging.getLogger(__name__)


class Group(NamedTuple):
    """Objects that are counted together."""

    namespace: str
    is_retired: bool = False


class Crowding(Generic[T]):
    """Counts the cached objects of each namespace, and remembers the namespaces above the limit.

    Objects above the limit are not cached. They are found by a new list once others are deleted. Retired
    objects, such as finished jobs, have a limit of their own, so that they do not keep new objects out.
    """

    def __init__(self, plural: str, limit: int | None, is_retired: Callable[[T], bool] | None = None) -> None:
        self._plural = plural
        self._limit = limit
        self._is_retired = is_retired
        self._cached: Counter[Group] = Counter()
        self._staged: Counter[Group] = Counter()
        """New objects of the list that is being read."""
        self._retired: defaultdict[str, dict[ObjectKey, None]] = defaultdict(dict)
        """Cached retired objects by namespace, the first that retired first."""
        self._crowded: set[Group] = set()
        """Groups with objects that are not cached."""

    def group_of(self, found: T) -> Group:
        """Return the group that an object is counted in."""
        is_retired = self._is_retired is not None and self._is_retired(found)
        return Group(found.metadata.namespace, is_retired)

    def admits(self, group: Group) -> bool:
        """Return whether a new object may be cached; log the first one of a group that may not."""
        if self._limit is None or self._cached[group] + self._staged[group] < self._limit:
            return True
        self._add_crowded(group)
        return False

    def begin_list(self) -> None:
        """Forget the counts of the list that was being read, and the crowded groups."""
        self._staged.clear()
        self._crowded.clear()

    def stage(self, group: Group, change: int) -> None:
        """Count a new object of a list (1), or its deletion before the end of the list (-1)."""
        self._staged[group] += change

    def end_list(self) -> None:
        """Count the objects of a list only as cached ones from now on."""
        self._staged.clear()

    def count(self, changes: Iterable[Change[T]]) -> None:
        """Count the changes of the cache."""
        for change in changes:
            for found, amount in ((change.old, -1), (change.new, 1)):
                if found is not None:
                    self._count(found, amount)

    def _count(self, found: T, amount: int) -> None:
        group = self.group_of(found)
        self._cached[group] += amount
        if not group.is_retired:
            return
        retired = self._retired[group.namespace]
        if amount > 0:
            retired[found.metadata.key] = None
        else:
            retired.pop(found.metadata.key, None)

    def surplus(self, namespace: str) -> ObjectKey | None:
        """Return the cached object that retired first, None if the namespace has few enough retired ones."""
        retired = self._retired.get(namespace, {})
        if self._limit is None or len(retired) <= self._limit:
            return None
        self._add_crowded(Group(namespace, is_retired=True))
        return next(iter(retired))

    @property
    def has_room(self) -> bool:
        """Whether a group with objects that are not cached has room for some again."""
        return any(self._cached[each] < (self._limit or 0) for each in self._crowded)

    def _add_crowded(self, group: Group) -> None:
        if group not in self._crowded:
            what = f"{'finished ' if group.is_retired else ''}{self._plural}"
            text = "namespace %s has more than %d %s: the others are ignored until some are deleted"
            log.warning(text, group.namespace, self._limit, what)
        self._crowded.add(group)
