"""The budget for encoded parts of objects: fair between namespaces, and never exceeded."""

from __future__ import annotations

import random

import pytest

from paddlejob.api.meta import ObjectMeta
from paddlejob.operator.limits import ENTRY_BYTES, PackedParts

KIB = 1024


def meta(namespace: str, number: int) -> ObjectMeta:
    return ObjectMeta(f"job-{number}", namespace, f"{namespace}-{number}")


def fill(parts: PackedParts, namespace: str, count: int, size: int) -> None:
    for number in range(count):
        parts.put(meta(namespace, number), "1", bytes(size))


def present(parts: PackedParts, namespace: str, count: int) -> list[int]:
    return [number for number in range(count) if parts.get(meta(namespace, number), "1") is not None]


@pytest.mark.parametrize("hostile_first", [True, False])
def test_the_namespace_with_the_most_bytes_loses_its_oldest_parts_and_no_other_does(hostile_first):
    parts = PackedParts(1024 * KIB)
    tenants = [("mallory", 100, 64 * KIB), ("alice", 20, 2 * KIB), ("bob", 1, 200 * KIB)]
    for tenant in tenants if hostile_first else reversed(tenants):
        fill(parts, *tenant)
    assert present(parts, "alice", 20) == list(range(20))
    assert present(parts, "bob", 1) == [0]
    kept = present(parts, "mallory", 100)
    assert kept == list(range(100 - len(kept), 100))
    assert 900 * KIB < parts.size <= 1024 * KIB


def test_a_part_is_known_by_its_object_and_version():
    parts = PackedParts()
    parts.put(meta("a", 0), "1", b"one")
    assert parts.get(meta("a", 0), "1") == b"one"
    assert parts.get(meta("a", 0), "2") is None
    assert parts.get(ObjectMeta("job-0", "a", "another"), "1") is None
    parts.put(meta("a", 0), "2", b"second")
    assert (parts.get(meta("a", 0), "1"), parts.get(meta("a", 0), "2")) == (None, b"second")
    assert parts.size == ENTRY_BYTES + len(b"second")


@pytest.mark.parametrize("seed", range(20))
def test_any_history_stays_in_the_budget_and_leaves_nothing_behind(seed):
    rng, parts = random.Random(seed), PackedParts(10 * KIB)
    for _ in range(500):
        found = meta(rng.choice("abc"), rng.randrange(10))
        if rng.random() < 0.3:
            parts.drop(found)
        else:
            parts.put(found, str(rng.randrange(3)), bytes(rng.randrange(3 * KIB)))
        assert 0 <= parts.size <= 10 * KIB
    for namespace in "abc":
        for number in range(10):
            parts.drop(meta(namespace, number))
    assert (parts.size, parts._parts, +parts._sizes) == (0, {}, {})
