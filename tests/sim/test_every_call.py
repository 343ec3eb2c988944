"""One fault at every call of an operator: the job comes to the same end as without it."""

from __future__ import annotations

import pytest

from sim.every_call import SCENARIOS, check
from sim.simulation import SEEDS
from sim.wire import Fault

pytestmark = pytest.mark.slow

ALL = [
    (name, fault)
    for name, scenario in SCENARIOS.items()
    for fault in Fault
    if scenario.is_supervised or not fault.is_about_supervisors
]


def quick_scenario(number: int, fault: Fault) -> str:
    if fault.is_about_supervisors:
        return "a restart in place"
    return "collective" if fault.needs_standby else tuple(SCENARIOS)[number % len(SCENARIOS)]


QUICK = [(quick_scenario(number, fault), fault) for number, fault in enumerate(Fault)]
"""Every fault once, two operators in a short life; `make test-seeds` plays all of them in every scenario."""


@pytest.mark.parametrize(("scenario", "fault"), ALL if SEEDS > 300 else QUICK)
def test_every_call(scenario, fault):
    assert check(scenario, fault) > 0
