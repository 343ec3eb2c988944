"""The rules about a hostile tenant, kept and broken on purpose: each protection is switched off once."""

from __future__ import annotations

import pytest

from paddlejob import fair_share
from paddlejob.operator import limits, progress
from paddlejob.operator.reports.pod_log import LogReader
from sim import memory
from sim.bystander import DelayedError
from sim.hostile_tenant import FatObjects, HostileTenant, SilentNodes, SlowWebhook
from sim.memory import MemoryExceededError
from sim.simulation import Simulation, play
from sim.test_evidence import CALM
from simkube.build import job

pytestmark = pytest.mark.slow

WEBHOOK = SlowWebhook(0, ("pods",), 29.0)
NODES = SilentNodes(0, 7)
FAT = FatObjects(0)


def played(*ingredients: HostileTenant, **changes) -> Simulation:
    """Play a history of one ordinary job and a hostile tenant."""
    built = job("job-0").worker(1)
    built.manifest["metadata"].pop("uid")
    calm = {**CALM, "old_definition": None, "heal_after_seconds": 60.0}
    return play(1, **{**calm, "jobs": (built.manifest,), "ingredients": ingredients, **changes})


@pytest.mark.parametrize("tenant", [WEBHOOK, NODES, FAT], ids=lambda tenant: type(tenant).__name__)
def test_all_rules_hold_beside(tenant):
    simulation = played(tenant)
    assert simulation.bystander.beside.keys() == simulation.bystander.alone.keys()
    if tenant is FAT:
        # The budget was needed, and the measurement counts the parts in it.
        assert simulation.memory.largest_packed > 0.8 * memory.PACKED_BYTES
        assert simulation.memory.largest > 0.5 * memory.PACKED_BYTES


def test_without_fair_shares_a_slow_webhook_delays_others(monkeypatch):
    monkeypatch.setattr(fair_share, "may_take", lambda free, _held: free > 0)
    with pytest.raises(ExceptionGroup) as raised:
        played(WEBHOOK)
    assert raised.group_contains(DelayedError, match="Running after .* beside a hostile tenant")


def test_without_fair_shares_and_time_limits_silent_nodes_delay_others(monkeypatch):
    monkeypatch.setattr(progress, "MAX_READS", 4)
    played(NODES)
    monkeypatch.setattr(fair_share, "may_take", lambda free, _held: free > 0)
    monkeypatch.setattr(LogReader, "may_read", lambda _self, _pod: True)
    monkeypatch.setitem(LogReader.read_end.__kwdefaults__, "timeout_seconds", 60.0)
    with pytest.raises(ExceptionGroup) as raised:
        played(NODES)
    assert raised.group_contains(DelayedError)


def unlimited(max_bytes: int) -> limits.PackedParts:
    return limits.PackedParts(100 * max_bytes)


def test_without_a_budget_specs_exceed_the_bound(monkeypatch):
    monkeypatch.setattr(memory, "PackedParts", unlimited)
    with pytest.raises(ExceptionGroup) as raised:
        played(FAT)
    assert raised.group_contains(MemoryExceededError)


def test_a_wrong_account_is_noticed(monkeypatch):
    add = limits.PackedParts._add
    monkeypatch.setattr(limits.PackedParts, "_add", lambda self, of, size: add(self, of, size // 2))
    monkeypatch.setattr(memory, "IDLE_BYTES", 100 << 20)
    with pytest.raises(ExceptionGroup) as raised:
        played(FAT)
    assert raised.group_contains(MemoryExceededError, match="but its own account is")


def test_whole_objects_in_a_cache_exceed_the_bound(monkeypatch):
    monkeypatch.setattr(limits, "outline_of", lambda job: job)
    with pytest.raises(ExceptionGroup) as raised:
        played(FAT)
    assert raised.group_contains(MemoryExceededError, match=r"bytes for \d+ objects are more than")
