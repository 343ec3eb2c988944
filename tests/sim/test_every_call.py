"""One fault at every call of an operator: the job comes to the same end as without it."""

from __future__ import annotations

import pytest

from sim.every_call import SCENARIOS, check
from sim.simulation import SEEDS
from sim.wire import Fault

pytestmark = pytest.mark.slow

ALL = [(scenario, fault) for scenario in SCENARIOS for fault in Fault]
QUICK = [
    ("collective" if fault.needs_standby else tuple(SCENARIOS)[number % len(SCENARIOS)], fault)
    for number, fault in enumerate(Fault)
]
"""Every fault once, two operators in a short life; `make test-seeds` plays all of them in every scenario."""


@pytest.mark.parametrize(("scenario", "fault"), ALL if SEEDS > 300 else QUICK)
def test_every_call(scenario, fault):
    assert check(scenario, fault) > 0
