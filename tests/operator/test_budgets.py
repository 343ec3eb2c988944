"""The table of shared budgets names all of them, and the documents show it."""

from __future__ import annotations

import enum
import re

import msgspec
import pytest

from paddlejob.core import network
from paddlejob.core.snapshot import Settings as JobSettings
from paddlejob.kube.events import EventLimits
from paddlejob.kube.transport import fair_limiter
from paddlejob.operator import history, limits, progress
from paddlejob.operator.reports import attendance, writer
from paddlejob.operator.settings import OperatorSettings
from paddlejob.training import report_rate
from tests.support.simulated_cluster import ROOT

SOURCES = ROOT / "src"
SHARES = re.compile(
    r"^from paddlejob\.fair_share import|= WorkQueue\(|\bnamespace_share\(|^class PackedParts", re.MULTILINE
)
"""Matches code that divides something between namespaces."""
MECHANISMS = {
    "paddlejob.kube.workqueue",
    "paddlejob.operator.reports.rank_registry",
}
"""Modules that divide on behalf of others."""
PAGES = ["docs/install.md", "docs/install.zh-CN.md"]


class Rule(enum.Enum):
    """How a budget is divided."""

    HALF = "a namespace gets another slot only while more are free than it holds"
    EQUAL = "each namespace gets an equal part; parts that are not needed go to the others"
    LARGEST = "when all is taken, the namespace that holds most gives up first"


class Budget(msgspec.Struct, frozen=True):
    """An amount that all namespaces share."""

    name: str
    size: int
    module: str
    """The module that enforces it."""
    rule: Rule = Rule.HALF

    @property
    def alone(self) -> int:
        """The amount that a namespace gets while no other needs any."""
        return (self.size + 1) // 2 if self.rule is Rule.HALF else self.size


BUDGETS = (
    Budget("connections for requests in namespaces", fair_limiter.CONNECTION_LIMIT, fair_limiter.__name__),
    Budget("jobs reconciled concurrently", OperatorSettings().workers, "paddlejob.operator.controller"),
    Budget("events written concurrently", EventLimits().writers, "paddlejob.kube.events"),
    Budget("events remembered or waiting", EventLimits().remembered, "paddlejob.kube.events", Rule.LARGEST),
    Budget(
        "logs read for progress, each second",
        int(progress.MAX_READS / progress.SLOT_SECONDS),
        progress.__name__,
    ),
    Budget(
        "progress written, each second", int(writer.MAX_WRITES / writer.WRITE_SLOT_SECONDS), writer.__name__
    ),
    Budget(
        "logs read for records, each second",
        int(history.MAX_LOGS / history.LOGS_PERIOD_SECONDS),
        history.__name__,
    ),
    Budget(
        "records written or deleted, each second",
        int(history.MAX_WRITES / history.WRITE_SLOT_SECONDS),
        history.__name__,
    ),
    Budget("MiB of records that wait to be written", history.MAX_WAITING_BYTES >> 20, history.__name__),
    Budget(
        "reports of ranks, each second",
        int(report_rate.REQUESTS_PER_SECOND),
        report_rate.__name__,
        Rule.EQUAL,
    ),
    Budget("pods that can be restarted in place", attendance.MAX_ATTENDING, attendance.__name__),
    Budget("requests of supervisors that are held", attendance.MAX_HELD, attendance.__name__),
    Budget("blocks of host ports", network.port_blocks(JobSettings().host_port_range), network.__name__),
    Budget("MiB of encoded specs in memory", limits.MAX_PACKED_BYTES >> 20, limits.__name__, Rule.LARGEST),
)


def sharing_modules() -> set[str]:
    """Return the modules under src that divide something between namespaces."""
    files = [
        *(SOURCES / "paddlejob" / "kube").rglob("*.py"),
        *(SOURCES / "paddlejob" / "core").rglob("*.py"),
        *(SOURCES / "paddlejob" / "operator").rglob("*.py"),
        *(SOURCES / "paddlejob" / "training").rglob("*.py"),
    ]
    return {
        ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        for file in files
        if SHARES.search(file.read_text())
    }


def test_every_module_that_shares_something_is_in_the_table():
    assert sharing_modules() - MECHANISMS == {budget.module for budget in BUDGETS}


def numbers(budget: Budget) -> str:
    return f"| {budget.size:,} | {budget.alone:,} |"


@pytest.mark.parametrize("page", PAGES)
def test_the_documents_show_the_table(page):
    text = (ROOT / page).read_text()
    rows = [line for line in text.splitlines() if re.fullmatch(r"\| [^|`]+ \| [\d,]+ \| [\d,]+ \|", line)]
    assert [row[row.index("|", 1) :] for row in rows] == [numbers(budget) for budget in BUDGETS]
    if page == PAGES[0]:
        assert rows == [f"| {budget.name} {numbers(budget)}" for budget in BUDGETS]
