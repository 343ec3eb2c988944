"""A queue of keys to reconcile, with deduplication, one worker per key, and priorities.

A key is in one or two of four states:

- ready: waiting for a worker. Within a priority, groups of keys take turns; within a group, keys are served
  in order. Each group gets at most its fair share of the workers, so a group with many or slow keys does not
  delay the others;
- delayed: waiting for a deadline;
- running: held by a worker, from `get` to `done`;
- dirty: added while running; `done` makes it ready, so no change is missed.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from paddlejob.fair_share import FairShare
from paddlejob.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class Priority(enum.IntEnum):
    """The order of service, lowest first."""

    RESYNC = 0
    """Periodic reconcile without a known change."""
    STARTUP = 1
    """Listed when the process started."""
    CHANGE = 2
    """An object changed."""
    REQUEST = 3
    """A request of a user, which starts the longest work."""


_REVERSE_EVERY = 8
"""One `get` in this many serves the lowest priority first, so that no key starves."""

_STALE_ENTRIES_KEPT = 64


class _Lane(Generic[K]):
    """Ready keys of one priority, with the times at which they became ready."""

    def __init__(self, group_of: Callable[[K], Hashable], may_take: Callable[[Hashable], bool]) -> None:
        self._group_of = group_of
        self._may_take = may_take
        self._groups: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        """The next group comes first; no group is empty."""

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __contains__(self, key: K) -> bool:
        return key in self._groups.get(self._group_of(key), ())

    def put(self, key: K, since: float) -> None:
        self._groups.setdefault(self._group_of(key), OrderedDict())[key] = since

    def take_next(self) -> tuple[K, float] | None:
        """Remove and return the next key, or None if no group may use another worker."""
        for group in filter(self._may_take, self._groups):
            taken = self._groups[group].popitem(last=False)
            self._groups.move_to_end(group)
            self._drop_empty(group)
            return taken
        return None

    def take(self, key: K) -> float:
        group = self._group_of(key)
        since = self._groups[group].pop(key)
        self._drop_empty(group)
        return since

    def clear(self) -> None:
        self._groups.clear()

    def _drop_empty(self, group: Hashable) -> None:
        if not self._groups[group]:
            del self._groups[group]


class WorkQueue(Generic[K]):
    """A queue of keys with deduplication, delay, backoff and priority, for workers on one event loop.

    A key that is added twice gets the earlier of the two times and the higher of the two priorities. So an
    immediate add absorbs a delayed one; a reconcile that still needs the delay adds the key again.
    """

    def __init__(
        self,
        *,
        rng: random.Random,
        backoff: Backoff | None = None,
        group_of: Callable[[K], Hashable] = lambda _: None,
        workers: int = sys.maxsize,
        observe_wait: Callable[[float], None] | None = None,
        observe_work: Callable[[float], None] | None = None,
    ) -> None:
        """`workers` is the number of concurrent callers of `get`."""
        self._rng = rng
        self._backoff = backoff or Backoff()
        self._group_of = group_of
        self._workers = FairShare(workers)
        self._observe_wait = observe_wait
        self._observe_work = observe_work
        self._lanes: dict[Priority, _Lane[K]] = {
            each: _Lane(group_of, self._workers.may_take) for each in reversed(Priority)
        }
        """Highest priority first."""
        self._delayed: dict[K, tuple[float, Priority]] = {}
        self._heap: list[tuple[float, int, K]] = []
        """Deadlines of delayed keys; entries that differ from `_delayed` are stale."""
        self._timer: tuple[float, asyncio.TimerHandle] | None = None
        """The next timer with its deadline, because uvloop's handles do not expose it."""
        self._running: dict[K, float] = {}
        self._dirty: dict[K, Priority] = {}
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Idle workers. Each ready key wakes one of them; waking all would not scale."""
        self._closed = False
        self._pushed = 0
        self._served = 0

    @property
    def depth(self) -> int:
        """Number of ready keys."""
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def delayed(self) -> int:
        """Number of delayed keys."""
        return len(self._delayed)

    @property
    def running(self) -> int:
        """Number of running keys."""
        return len(self._running)

    def longest_running_seconds(self) -> float:
        """Return the age of the longest-running key, or 0."""
        return _now() - min(self._running.values()) if self._running else 0.0

    def failures(self, key: K) -> int:
        """Return the number of consecutive retries of the key."""
        return self._failures.get(key, 0)

    def add(self, key: K, *, priority: Priority = Priority.CHANGE, after_seconds: float = 0.0) -> None:
        """Add a key, now or after a delay; ignored after `close`."""
        if self._closed:
            return
        if after_seconds <= 0 or key in self._dirty or self._ready_priority(key) is not None:
            self._make_ready(key, priority)
        else:
            self._delay(key, _now() + after_seconds, priority)

    def retry(self, key: K) -> float:
        """Add a failed key again after a delay that doubles with every failure, and return the delay."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        delay_seconds = self._backoff.delay_seconds(failures, self._rng)
        self.add(key, after_seconds=delay_seconds)
        return delay_seconds

    def forget(self, key: K) -> None:
        """Reset the failure count of a key that succeeded or was deleted."""
        self._failures.pop(key, None)

    async def get(self) -> K | None:
        """Wait for the next key and return it, or None after `close`; the caller must call `done`.

        Guarantees that no other worker has the key, and that cancellation loses no key.
        """
        while not self._closed:
            for lane in self._lanes_in_order():
                if (taken := lane.take_next()) is not None:
                    return self._start(*taken)
            await self._wait_for_key()
        return None

    def done(self, key: K) -> None:
        """Return a key to the queue; it becomes ready if it was added while running.

        Raises KeyError if the key is not running.
        """
        started = self._running.pop(key)
        if self._observe_work is not None:
            self._observe_work(_now() - started)
        self._workers.give_back(self._group_of(key))
        if key in self._dirty:
            self._make_ready(key, self._dirty.pop(key))
        elif any(self._lanes.values()):
            # A group that had used up its share may have room for an idle worker now.
            self._wake_one()

    def close(self) -> None:
        """Reject new keys and drop the waiting ones; the next process lists them again."""
        self._closed = True
        for lane in self._lanes.values():
            lane.clear()
        self._delayed.clear()
        self._dirty.clear()
        self._arm_timer()
        while self._waiting:
            self._wake_one()

    def _ready_priority(self, key: K) -> Priority | None:
        return next((priority for priority, lane in self._lanes.items() if key in lane), None)

    def _lanes_in_order(self) -> Iterable[_Lane[K]]:
        is_reversed = self._served % _REVERSE_EVERY == _REVERSE_EVERY - 1
        return reversed(self._lanes.values()) if is_reversed else self._lanes.values()

    def _start(self, key: K, since: float) -> K:
        self._workers.take(self._group_of(key))
        self._served += 1
        self._running[key] = now = _now()
        if self._observe_wait is not None:
            self._observe_wait(now - since)
        return key

    def _make_ready(self, key: K, priority: Priority) -> None:
        if key in self._delayed:
            priority = max(priority, self._delayed.pop(key)[1])
            self._arm_timer()
        if key in self._running:
            self._dirty[key] = max(priority, self._dirty.get(key, priority))
            return
        known = self._ready_priority(key)
        if known is None:
            self._lanes[priority].put(key, _now())
        elif known < priority:
            self._lanes[priority].put(key, self._lanes[known].take(key))
        self._wake_one()

    async def _wait_for_key(self) -> None:
        """Wait to be woken; a worker that is cancelled after being woken wakes another one."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake_one()
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _delay(self, key: K, deadline: float, priority: Priority) -> None:
        known = self._delayed.get(key)
        if known is not None and known[0] <= deadline:
            self._delayed[key] = known[0], max(known[1], priority)
            return
        self._delayed[key] = deadline, max(known[1], priority) if known is not None else priority
        self._pushed += 1
        heapq.heappush(self._heap, (deadline, self._pushed, key))
        self._arm_timer()

    def _is_current(self, deadline: float, key: K) -> bool:
        known = self._delayed.get(key)
        return known is not None and known[0] == deadline

    def _arm_timer(self) -> None:
        """Set the timer to the earliest deadline."""
        if len(self._heap) > 2 * len(self._delayed) + _STALE_ENTRIES_KEPT:
            self._heap = [entry for entry in self._heap if self._is_current(entry[0], entry[2])]
            heapq.heapify(self._heap)
        while self._heap and not self._is_current(self._heap[0][0], self._heap[0][2]):
            heapq.heappop(self._heap)
        deadline = self._heap[0][0] if self._heap else None
        if self._timer is not None and self._timer[0] != deadline:
            self._timer[1].cancel()
            self._timer = None
        if self._timer is None and deadline is not None:
            self._timer = deadline, asyncio.get_running_loop().call_at(deadline, self._on_timer, deadline)

    def _on_timer(self, deadline: float) -> None:
        self._timer = None
        # A timer may fire slightly early; its own deadline counts as reached.
        due_at = max(deadline, _now())
        while self._heap and self._heap[0][0] <= due_at:
            entry_deadline, _, key = heapq.heappop(self._heap)
            if self._is_current(entry_deadline, key):
                self._make_ready(key, self._delayed.pop(key)[1])
        self._arm_timer()


def _now() -> float:
    return asyncio.get_running_loop().time()
