"""Divides a fixed number of slots between groups such as namespaces, so that no group takes all of them.

A group may take another slot only while more slots are free than it holds. A single group gets half of the
slots, and n busy groups converge to 1/(n + 1) of them each. The rest stays free for a group without a slot.
No group count and no reserve has to be configured.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable


def may_take(free: int, held: int) -> bool:
    """Return whether a group that holds this many slots may take another one."""
    return free > held


class FairShare:
    """Counts the slots that each group holds."""

    def __init__(self, size: int) -> None:
        self.free = size
        self._held: Counter[Hashable] = Counter()

    def may_take(self, group: Hashable) -> bool:
        """Return whether `take` would succeed."""
        return may_take(self.free, self._held[group])

    def take(self, group: Hashable) -> bool:
        """Take a slot unless the group has its share; the caller must give it back."""
        if not self.may_take(group):
            return False
        self.free -= 1
        self._held[group] += 1
        return True

    def give_back(self, group: Hashable) -> None:
        self.free += 1
        self._held[group] -= 1
        if not self._held[group]:
            del self._held[group]


class FairRate:
    """Limits a rate: each use occupies a slot for a number of seconds.

    A single group gets half of `size` uses in `seconds`, rounded up; all groups together at most `size`.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self._share = FairShare(size)
        self._seconds = seconds
        self._used: deque[tuple[float, Hashable]] = deque()

    def take(self, group: Hashable, now: float) -> bool:
        """Use a slot unless the group has its share; `now` must not decrease."""
        while self._used and self._used[0][0] <= now - self._seconds:
            self._share.give_back(self._used.popleft()[1])
        if not self._share.take(group):
            return False
        self._used.append((now, group))
        return True
