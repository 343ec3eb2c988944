"""The budgets that all namespaces share, and the share of a namespace: one table.

The sizes are those of the modules that enforce them. docs/install.md shows the table to users.
"""

from __future__ import annotations

import enum

import msgspec

from paddlejob.core import network
from paddlejob.core.snapshot import Settings as JobSettings
from paddlejob.fair_share import alone
from paddlejob.kube.events import EventLimits
from paddlejob.kube.transport import fair_limiter
from paddlejob.operator import history, progress
from paddlejob.operator.reports import pace, writer
from paddlejob.operator.settings import OperatorSettings


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
        return alone(self.size) if self.rule is Rule.HALF else self.size


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
    Budget("reports of ranks, each second", int(pace.REQUESTS_PER_SECOND), pace.__name__, Rule.EQUAL),
    Budget("blocks of host ports", network.port_blocks(JobSettings().host_port_range), network.__name__),
)
