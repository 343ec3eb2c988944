"""The work queue against a model that is slow and obvious."""

from __future__ import annotations

import asyncio
import random

import pytest

from paddlejob.kube.workqueue import Priority, WorkQueue
from simkube import virtual_loop


class ModelQueue:
    """A list of waiting keys, looked through from the beginning each time."""

    def __init__(self) -> None:
        self.ready: list[tuple[str, Priority]] = []
        self.delayed: list[tuple[float, str, Priority]] = []
        self.running: set[str] = set()
        self.dirty: dict[str, Priority] = {}

    def add(self, key: str, priority: Priority, at: float, now: float) -> None:
        self.pass_time(now)
        waiting = dict(self.ready)
        if at > now and key not in waiting and key not in self.dirty:
            known = [entry for entry in self.delayed if entry[1] == key]
            self.delayed = [entry for entry in self.delayed if entry[1] != key]
            at = min([at, *(entry[0] for entry in known)])
            priority = max([priority, *(entry[2] for entry in known)])
            self.delayed.append((at, key, priority))
            return
        self.make_ready(key, priority)

    def make_ready(self, key: str, priority: Priority) -> None:
        priority = max([priority, *(entry[2] for entry in self.delayed if entry[1] == key)])
        self.delayed = [entry for entry in self.delayed if entry[1] != key]
        if key in self.running:
            self.dirty[key] = max(priority, self.dirty.get(key, priority))
            return
        known = dict(self.ready).get(key)
        if known is None or known < priority:
            self.ready = [entry for entry in self.ready if entry[0] != key]
            self.ready.append((key, priority))

    def pass_time(self, now: float) -> None:
        for at, key, priority in sorted(self.delayed):
            if at <= now:
                self.make_ready(key, priority)

    def candidates(self) -> set[str]:
        """The first key of each priority: which of them is next depends on the rule against starvation."""
        firsts: dict[Priority, str] = {}
        for key, priority in self.ready:
            firsts.setdefault(priority, key)
        return set(firsts.values())

    def take(self, key: str) -> None:
        self.ready = [entry for entry in self.ready if entry[0] != key]
        self.running.add(key)

    def done(self, key: str) -> None:
        self.running.remove(key)
        if key in self.dirty:
            self.make_ready(key, self.dirty.pop(key))


async def agree(seed: int) -> None:
    rng = random.Random(seed)
    queue: WorkQueue[str] = WorkQueue(rng=rng)
    model = ModelQueue()
    loop = asyncio.get_running_loop()
    for _ in range(300):
        match rng.randrange(5):
            case 0 | 1:
                # Distinct deadlines: keys that are due at one instant may come in any order.
                key, delay = rng.choice("abcdefgh"), rng.choice([0, rng.uniform(0.1, 9)])
                priority = rng.choice(list(Priority))
                queue.add(key, priority=priority, after_seconds=delay)
                model.add(key, priority, loop.time() + delay, loop.time())
            case 2:
                await asyncio.sleep(rng.uniform(0, 3))
                model.pass_time(loop.time())
            case 3 if model.ready:
                key_or_none = await queue.get()
                assert key_or_none in model.candidates()
                model.take(key_or_none)
            case 4 if model.running:
                key = rng.choice(sorted(model.running))
                queue.done(key)
                model.done(key)
        sizes = (len(model.ready), len(model.delayed), len(model.running))
        assert (queue.depth, queue.delayed, queue.running) == sizes


@pytest.mark.parametrize("seed", range(200))
def test_the_queue_agrees_with_the_model(seed: int):
    virtual_loop.run(agree(seed), seed=seed)


async def run_workers(seed: int) -> None:
    """Check that every change is followed by a reconcile that starts after it, and no key has two workers."""
    rng = random.Random(seed)
    queue: WorkQueue[str] = WorkQueue(rng=rng, group_of=lambda key: key in "ab", workers=3)
    loop = asyncio.get_running_loop()
    changed_at: dict[str, float] = {}
    passed_at: dict[str, float] = {}
    busy: set[str] = set()

    async def work() -> None:
        while (key := await queue.get()) is not None:
            assert key not in busy
            busy.add(key)
            passed_at[key] = loop.time()
            await asyncio.sleep(rng.uniform(0, 2))
            busy.remove(key)
            if rng.random() < 0.2:
                queue.retry(key)
            else:
                queue.forget(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(3)]
    for _ in range(100):
        key = rng.choice("abcdef")
        queue.add(key, after_seconds=rng.choice([0, 0, 1]))
        changed_at[key] = loop.time()
        await asyncio.sleep(rng.expovariate(2))
    await asyncio.sleep(600)
    assert all(passed_at[key] >= changed_at[key] for key in changed_at)
    queue.close()
    await asyncio.gather(*workers)


@pytest.mark.parametrize("seed", range(100))
def test_every_change_is_followed_by_a_pass(seed: int):
    virtual_loop.run(run_workers(seed), seed=seed)
