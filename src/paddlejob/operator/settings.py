"""Settings of the operator."""

from __future__ import annotations

import msgspec

from paddlejob.core.recording.hangs import HangLimits
from paddlejob.core.snapshot import Settings as JobSettings


class HistorySettings(msgspec.Struct, frozen=True):
    """How long the records of jobs are kept."""

    days: int = 30
    """How long after a job has ended."""
    per_namespace: int = 100
    """How many there may be in a namespace; the oldest go first."""


class ReportSettings(msgspec.Struct, frozen=True):
    """How pods report how far they are."""

    url: str = ""
    """Where pods reach the operator; empty: pods are given no recorder."""
    address: str = ":8443"
    """Where reports are taken, host:port."""
    recorder_by_default: bool = False
    """Whether jobs have the recorder that do not say anything about it."""
    hangs: HangLimits = HangLimits()
    """When a job makes no progress any more."""
    straggler_seconds: float = 300.0
    """How long a rank is slow before it is replaced, where its job asks for that."""


class OperatorSettings(msgspec.Struct, frozen=True):
    """How the operator runs; `jobs` is how it treats jobs."""

    namespace: str = ""
    """The namespace to watch; empty for all namespaces."""
    workers: int = 40
    """How many jobs are reconciled concurrently.

    Few more than there are connections: further ones would only let the jobs that come next wait for one.
    """
    writes_per_job: int = 8
    """How many writes of one job may be in flight.

    A fraction of the connections: a large job leaves room for small ones and does not fill the API server's
    queue for this account.
    """
    batch_seconds: float = 0.1
    """How long changes of a job's pods are collected before the job is reconciled."""
    idle_batch_seconds: float = 5.0
    """The same for changes that decide nothing: echoes of our own writes, a pod bound to a node."""
    counts_pause_seconds: float = 5.0
    """The minimum time between a write of a job's status and another one for changed counts only.

    A change of phase is written at once, together with the counts.
    """
    progress_from_logs: bool = True
    """Whether the log of worker 0 is read for the job's progress."""
    history: HistorySettings | None = None
    """How jobs are recorded; None: they are not."""
    reports: ReportSettings = ReportSettings()
    reconcile_timeout_seconds: float = 120.0
    """A reconcile that takes longer is cancelled and retried."""
    jobs: JobSettings = JobSettings()


class ProcessSettings(msgspec.Struct, frozen=True):
    """Settings of the process; OperatorSettings has how it treats jobs."""

    metrics_address: str = ":8080"
    health_address: str = ":8081"
    leader_election: bool = False
    lease_namespace: str = ""
