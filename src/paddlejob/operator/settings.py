"""Settings of the operator."""

from __future__ import annotations

import msgspec

from paddlejob.core.snapshot import Settings as JobSettings
from paddlejob.training.hangs import HangLimits


class HistorySettings(msgspec.Struct, frozen=True):
    """Limits of the records of jobs."""

    days: int = 30
    """Days to keep a record after its job has ended."""
    per_namespace: int = 100
    """Maximum number of records in a namespace; the oldest are deleted first."""


class ReportSettings(msgspec.Struct, frozen=True):
    """How pods report their progress."""

    url: str = ""
    """URL at which pods reach the operator; if empty, pods get no recorder."""
    address: str = ":8443"
    """Listen address for reports, host:port."""
    recorder_by_default: bool = False
    """Whether jobs without spec.recorder get the recorder."""
    hangs: HangLimits = HangLimits()
    """Bounds of the timeout after which a job counts as hung."""
    straggler_seconds: float = 300.0
    """Time for which a rank must be slow before it is replaced (stragglerPolicy Replace)."""


class OperatorSettings(msgspec.Struct, frozen=True):
    """Settings of the operator; `jobs` are those that planning depends on."""

    namespace: str = ""
    """The namespace to watch; empty for all namespaces."""
    workers: int = 40
    """Number of jobs reconciled concurrently.

    Slightly more than the connection limit; more workers would only queue for a connection.
    """
    writes_per_job: int = 8
    """Maximum number of concurrent writes of one job.

    A fraction of the connections: a large job must leave room for small ones, and must not fill the API
    server's queue for this account.
    """
    batch_seconds: float = 0.1
    """Time in which changes of a job's pods are collected before the job is reconciled."""
    idle_batch_seconds: float = 5.0
    """The same for changes that no decision depends on, such as our own writes or a pod bound to a node."""
    counts_pause_seconds: float = 5.0
    """Minimum time between two writes of a job's status if only counts have changed.

    A change of phase is written immediately, together with the counts.
    """
    progress_from_logs: bool = True
    """Whether the log of worker 0 is read for the job's progress."""
    history: HistorySettings | None = None
    """Limits of the records; None disables them."""
    reports: ReportSettings = ReportSettings()
    reconcile_timeout_seconds: float = 120.0
    """A reconcile that takes longer is cancelled and retried."""
    jobs: JobSettings = JobSettings()


class ProcessSettings(msgspec.Struct, frozen=True):
    """Settings of the process: addresses and leader election."""

    metrics_address: str = ":8080"
    health_address: str = ":8081"
    leader_election: bool = False
    lease_namespace: str = ""
