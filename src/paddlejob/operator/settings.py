"""What the platform team can choose."""

from __future__ import annotations

import msgspec

from paddlejob.core.snapshot import Settings as JobSettings


class OperatorSettings(msgspec.Struct, frozen=True):
    """How the operator runs; `jobs` is how it treats jobs."""

    namespace: str = ""
    """The one namespace to look at; empty for all."""
    workers: int = 100
    """How many jobs may be worked on at the same time."""
    writes_per_job: int = 32
    """How many writes of one job may be under way: a large job leaves room for small ones beside it."""
    batch_seconds: float = 0.1
    """How long the changes of a job's pods are gathered before the job is looked at."""
    idle_batch_seconds: float = 5.0
    """The same for changes that decide nothing: our own writes coming back, a pod put on a node."""
    counts_pause_seconds: float = 5.0
    """The least time between a write of a job's status and another one for mere counts.

    A change of phase is never held back, and takes the counts with it.
    """
    pass_timeout_seconds: float = 120.0
    """After this time a pass that hangs is given up and retried."""
    jobs: JobSettings = JobSettings()
